//! Would a run work: a tool's command line, read by the tool's own parser, against what was seen of the node.
//!
//! It is judged as the client would judge it before it speaks to anybody; what the other end can do is the other end's.

use linkproof_common::args::{DeviceArgs, Parse, parse};
use linkproof_common::conduct::Ends;
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::finding::{Code, Finding, Severity, Topic};
use linkproof_common::gid::{self, LinkLayer};
use linkproof_common::host::HostFiles;
use linkproof_common::memory::GpuUse;
use linkproof_common::node::{Node, NodeFile, RdmaDevice, RdmaPort, roce_mtu};
use linkproof_common::plan::{BufferLayout, Plan, Role, Transport};
use linkproof_common::session::{check_device_limits, check_path_mtu, try_gpu_memory};
use linkproof_common::units::ByteSize;
use serde::{Deserialize, Serialize};

/// A command line, understood.
#[derive(Clone, Debug)]
pub struct Claim {
    /// As it was given.
    pub command: String,
    device: DeviceArgs,
    transport: Transport,
    plan: Plan,
}

/// What would come of it on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The command line that was asked about.
    pub command: String,
    /// The device that it would use.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<String>,
    /// The port of that device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port_num: Option<u8>,
    /// The entry of the port's GID table, for a peer with a table like it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gid_index: Option<u32>,
    /// The memory that it would pin as the client; absent where it uses no RDMA.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pins_bytes: Option<u64>,
    /// The GPU whose memory it would use, and how the device came to that in a trial; absent where it uses none, or it did not
    /// come to a trial.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gpu: Option<GpuUse>,
    /// What would stop it, the first being what the tool would say.
    pub failures: Vec<Error>,
}

impl Claim {
    /// The command line `text`, read as the tool that it names would read it.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`]: the tool's own refusal, or a tool that is not known here.
    pub fn of(text: &str) -> Result<Self> {
        let words = words(text)?;
        let tool = words.first().map_or("", |word| word.rsplit('/').next().unwrap_or_default());
        let argv = words.iter().map(Into::into);
        let (device, transport, plan) = match tool {
            "write-bw" => {
                let args: write_bw::args::Args = understood(parse(argv)?)?;
                let transport = Ends { device: &args.device, peer: &args.peer }.transport();
                (args.device, transport, args.transfer.plan(tool, transport)?)
            }
            "write-lat" => {
                let args: write_lat::args::Args = understood(parse(argv)?)?;
                let transport = Ends { device: &args.device, peer: &args.peer }.transport();
                (args.device, transport, args.latency.plan(transport)?)
            }
            _ => {
                return Err(Error::new(
                    ErrorKind::Usage,
                    format!("--for: {tool:?} is no tool whose runs are known here"),
                )
                .hint("write-bw and write-lat are: --for 'write-bw -d mlx5_0 -s 1M'"));
            }
        };
        Ok(Self { command: text.to_owned(), device, transport, plan })
    }

    /// Whether it needs an RDMA device of this node.
    fn uses_node(&self) -> bool {
        self.transport == Transport::Rdma && !self.device.soft_device
    }

    /// What would come of it on `node`.
    pub fn on(&self, node: &Node) -> Run {
        let mut run = Run {
            command: self.command.clone(),
            device: None,
            port_num: None,
            gid_index: None,
            pins_bytes: None,
            gpu: None,
            failures: Vec::new(),
        };
        if self.uses_node() {
            self.look(node, &mut run);
        }
        run
    }

    /// Tries to take and register the GPU memory that it would use, on this machine; nothing of it stays.
    pub fn try_gpu_memory(&self, run: &mut Run, files: &HostFiles) {
        if run.failures.is_empty() {
            match try_gpu_memory(&self.plan, Role::Client, &self.device.wish(), files) {
                Ok(gpu) => run.gpu = gpu,
                Err(error) => run.failures.push(error),
            }
        }
    }

    fn look(&self, node: &Node, run: &mut Run) {
        let layout = BufferLayout::new(&self.plan, Role::Client);
        // Memory of a GPU does not count against the limit of locked memory.
        let on_host = self.plan.gpu_of(Role::Client).is_none();
        run.pins_bytes = on_host.then(|| layout.total_len());
        let chosen = self.device(node).and_then(|device| Ok((device, self.port(node, device)?)));
        let name = match chosen {
            Err(error) => {
                run.failures.push(error);
                self.device.ib_dev.clone().unwrap_or("any device".to_owned())
            }
            Ok((device, port)) => {
                run.device = Some(device.name.clone());
                run.port_num = Some(port.port_num);
                let gid = self.gid(device, port);
                run.gid_index = gid.as_ref().ok().copied().flatten();
                run.failures.extend(gid.err());
                run.failures.extend(self.limits(node, device, port).err());
                device.name.clone()
            }
        };
        if let Some(memlock) = node.limits.memlock.as_ref().filter(|_| on_host) {
            run.failures.extend(memlock.check(layout.total_len(), &layout.describe(), &name).err());
        }
    }

    fn device<'a>(&self, node: &'a Node) -> Result<&'a RdmaDevice> {
        if let Some(missing) = &node.library_missing {
            return Err(Error::new(ErrorKind::LibraryMissing, missing.clone()));
        }
        let present =
            || node.devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ");
        let is_active = |device: &&RdmaDevice| device.ports.iter().any(|port| port.is_active() == Some(true));
        let device = match &self.device.ib_dev {
            _ if node.devices.is_empty() => {
                return Err(Error::new(ErrorKind::NoDevice, "this machine has no RDMA device")
                    .hint("load the adapter's driver and ib_uverbs, or measure TCP on both ends with --transport tcp"));
            }
            Some(name) => node.devices.iter().find(|device| device.name == *name).ok_or_else(|| {
                Error::new(ErrorKind::DeviceNotFound, format!("no RDMA device is called {name}"))
                    .fact("present", present())
                    .hint("choose one with --ib-dev, or omit it to take the first with an ACTIVE port")
            })?,
            None => node.devices.iter().find(is_active).ok_or_else(|| {
                Error::new(ErrorKind::PortNotActive, "no RDMA device has an ACTIVE port")
                    .fact("present", present())
            })?,
        };
        let unusable = |why: &str| {
            Err(Error::new(ErrorKind::DeviceUnusable, format!("cannot open {}: {why}", device.name)))
        };
        let path = device.node_path.as_deref().unwrap_or("its node");
        match (&device.refusal, device.node_file) {
            (Some(refusal), _) => unusable(refusal),
            (None, Some(NodeFile::None)) => unusable("ib_uverbs is not loaded"),
            (None, Some(NodeFile::Missing)) => unusable(&format!("{path} is not there")),
            (None, Some(NodeFile::Closed)) => unusable(&format!("{path} is closed to this user")),
            (None, Some(NodeFile::Usable) | None) => Ok(device),
        }
    }

    fn port<'a>(&self, node: &Node, device: &'a RdmaDevice) -> Result<&'a RdmaPort> {
        let is_active = |port: &&RdmaPort| port.is_active() == Some(true);
        let port = match self.device.ib_port {
            Some(number) => device.ports.iter().find(|port| port.port_num == number),
            None => device.ports.iter().find(is_active).or(device.ports.first()),
        };
        let Some(port) = port else {
            let number = self.device.ib_port.map_or("at all".to_owned(), |number| number.to_string());
            return Err(Error::new(ErrorKind::PortNotFound, format!("{} has no port {number}", device.name)));
        };
        if is_active(&port) {
            return Ok(port);
        }
        let state = port.state.as_deref().unwrap_or("in a state that can't be seen");
        let netdev = node.netdev_of(port).map(|netdev| {
            format!("{} {}", netdev.name, netdev.state.as_deref().unwrap_or("of unknown state"))
        });
        Err(Error::new(
            ErrorKind::PortNotActive,
            format!("port {} of {} is {state}, not ACTIVE", port.port_num, device.name),
        )
        .fact_if("network interface", netdev))
    }

    /// The entry, where the port is not addressed by its LID alone.
    fn gid(&self, device: &RdmaDevice, port: &RdmaPort) -> Result<Option<u32>> {
        let name = format!("{} port {}", device.name, port.port_num);
        match self.device.gid_index {
            Some(index) if port.gids.iter().any(|entry| entry.index == index) => Ok(Some(index)),
            Some(index) => {
                Err(Error::new(ErrorKind::GidIndex, format!("GID index {index} of {name} is no used entry"))
                    .fact("in use", gid::describe_all(&port.gids))
                    .hint("omit --gid-index to have one chosen to match the other end"))
            }
            None if port.gids.is_empty() && port.link_layer == Some(LinkLayer::Ethernet) => {
                Err(Error::new(ErrorKind::NoGid, format!("the GID table of {name} is empty"))
                    .hint("give the port's network interface an IP address, and see that it is in this network namespace"))
            }
            None => Ok(port.chosen_gid.as_ref().and_then(|chosen| chosen.index)),
        }
    }

    fn limits(&self, node: &Node, device: &RdmaDevice, port: &RdmaPort) -> Result<()> {
        if let Some(limits) = &device.limits {
            check_device_limits(&self.plan, &device.name, limits)?;
        }
        // A recorded tree has no verbs to ask; on Ethernet the rule tells the same.
        let by_rule = || {
            let mtu =
                node.netdev_of(port).filter(|_| port.link_layer == Some(LinkLayer::Ethernet))?.mtu_bytes?;
            Some(roce_mtu(mtu))
        };
        match port.active_mtu_bytes.or_else(by_rule) {
            Some(active) => check_path_mtu(&self.plan, &device.name, port.port_num, active),
            None => Ok(()),
        }
    }

    /// What is to be said of the node for the sake of this run.
    pub fn findings(&self, run: &Run, found: Vec<Finding>) -> Vec<Finding> {
        let mut findings: Vec<Finding> = run.failures.iter().map(refused).collect();
        if run.failures.is_empty() {
            findings.push(Finding::new(Code::RunPossible, run.describe()));
        }
        if !self.uses_node() {
            return findings;
        }
        let found = found.into_iter().filter(|finding| concerns(run, finding));
        // What stops every default run need not stop this one.
        let for_this_run = |finding: Finding| {
            let stops = finding.severity == Severity::Unfit && run.failures.is_empty();
            if stops { finding.as_bad_as(Severity::Warning) } else { finding }
        };
        findings.extend(found.map(for_this_run));
        findings
    }
}

impl Run {
    fn describe(&self) -> String {
        let gpu = self.gpu.as_ref().map_or(String::new(), |gpu| format!("; as tried, {}", gpu.describe()));
        let Some(device) = &self.device else { return format!("it needs no RDMA device of this node{gpu}") };
        let port = self.port_num.map_or(String::new(), |port| format!(" port {port}"));
        let gid = self.gid_index.map_or(String::new(), |index| format!(", GID {index}"));
        let pins = self.pins_bytes.map_or(String::new(), |bytes| format!(", and pin {}", ByteSize(bytes)));
        format!("it would use {device}{port}{gid}{pins}{gpu}")
    }
}

/// Whether a finding is of the device that the run would use, or of more than one device.
fn concerns(run: &Run, finding: &Finding) -> bool {
    let of_devices = matches!(finding.topic, Topic::Device | Topic::Network | Topic::Pci | Topic::Counters);
    let Some(device) = run.device.as_ref().filter(|_| of_devices) else { return true };
    // What several interfaces do to each other is found of interfaces, not of devices.
    let of_interfaces = matches!(
        finding.code,
        Code::SameSubnet | Code::ReversePath | Code::DefaultRoutes | Code::BondMemberDown
    );
    of_interfaces || finding.on.is_empty() || finding.on.iter().any(|on| on.split(' ').next() == Some(device))
}

/// The tool's own error as a finding: its section is the error's.
fn refused(error: &Error) -> Finding {
    let facts = error.facts.iter().map(|fact| format!("; {}: {}", fact.label, fact.value));
    let mut finding = Finding::new(Code::RunRefused, format!("{}{}", error.what, facts.collect::<String>()));
    finding.remedy = error.hint.clone();
    error.kind.code().clone_into(&mut finding.section);
    finding
}

fn understood<A>(parse: Parse<A>) -> Result<A> {
    match parse {
        Parse::Run(parsed) => Ok(parsed.args),
        Parse::Text(_) => {
            Err(Error::new(ErrorKind::Usage, "--for: the command line asks for a text, not for a run"))
        }
    }
}

/// Words as a shell parts them, with both kinds of quotes and without anything else that a shell does.
pub(crate) fn words(text: &str) -> Result<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(Error::new(ErrorKind::Usage, "--for: a quote is not closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkproof_common::finding::examine;
    use linkproof_common::host::HostFiles;
    use linkproof_common::node::fixture::{self, Tree};

    fn run(tree: &Tree, command: &str) -> Run {
        let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
        tree.write_to(folder.path()).unwrap();
        Claim::of(command).unwrap().on(&Node::read(&HostFiles::below(folder.path())))
    }

    fn stops(tree: &Tree, command: &str) -> Vec<ErrorKind> {
        run(tree, command).failures.iter().map(|error| error.kind).collect()
    }

    #[test]
    fn a_run_that_would_work_says_what_it_would_use() {
        let run = run(&fixture::roce(), "write-bw -d mlx5_0 -s 1M -q 4 node-b");
        assert!(run.failures.is_empty());
        assert_eq!((run.gid_index, run.pins_bytes), (Some(3), Some(4 << 20)));
        assert_eq!(run.describe(), "it would use mlx5_0 port 1, GID 3, and pin 4 MiB");
    }

    #[test]
    fn each_thing_that_stops_a_run_has_the_tools_own_code() {
        let roce = fixture::roce();
        let mut small = fixture::infiniband();
        small.memlock("65536");
        let cases = [
            (&roce, "write-bw -d mlx5_9", ErrorKind::DeviceNotFound),
            (&roce, "write-bw -i 2", ErrorKind::PortNotFound),
            (&roce, "write-lat -x 9 node-b", ErrorKind::GidIndex),
            (&small, "write-bw -s 1M", ErrorKind::Memlock),
            (&fixture::virtual_function(), "write-bw -m 4096", ErrorKind::DeviceLimit),
            (&fixture::pod_without_node(), "/usr/bin/write-bw", ErrorKind::DeviceUnusable),
            (&fixture::link_down(), "write-bw -d mlx5_0", ErrorKind::PortNotActive),
            (&fixture::bare(), "write-bw", ErrorKind::NoDevice),
        ];
        for (tree, command, kind) in cases {
            assert_eq!(stops(tree, command), [kind], "{command}");
        }
    }

    #[test]
    fn smaller_messages_fit_where_larger_ones_do_not() {
        let mut small = fixture::infiniband();
        small.memlock("32768");
        assert_eq!(stops(&small, "write-bw -s 4K"), []);
        assert_eq!(stops(&small, "write-bw -s 64K"), [ErrorKind::Memlock]);
        assert_eq!(stops(&small, "write-bw -s 4K -q 9"), [ErrorKind::Memlock]);
    }

    #[test]
    fn tcp_needs_nothing_of_the_node() {
        let claim = Claim::of("write-bw --transport tcp node-b").unwrap();
        let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
        fixture::bare().write_to(folder.path()).unwrap();
        let node = Node::read(&HostFiles::below(folder.path()));
        let findings = claim.findings(&claim.on(&node), examine(&node));
        assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), [Code::RunPossible]);
    }

    #[test]
    fn what_other_devices_have_is_not_this_runs_concern() {
        let state = "/sys/devices/pci0000:26/0000:26:01.0/0000:27:00.0/0000:28:01.0/0000:2a:00.0/infiniband/mlx5_1/ports/1/state";
        let tree = fixture::pairs(2).with(state, "1: DOWN");
        let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
        tree.write_to(folder.path()).unwrap();
        let node = Node::read(&HostFiles::below(folder.path()));
        let warned = |command: &str| {
            let claim = Claim::of(command).unwrap();
            let findings = claim.findings(&claim.on(&node), examine(&node));
            findings.iter().any(|finding| finding.code == Code::PortDown)
        };
        assert!(!warned("write-bw -d mlx5_0 node-b"));
        assert!(warned("write-bw -d mlx5_1 node-b"));
    }

    #[test]
    fn a_command_line_is_refused_as_its_tool_would() {
        let refusal = |text: &str| Claim::of(text).unwrap_err();
        assert!(refusal("write-bw -s 2Q").what.contains("\"Q\" is no unit of size"));
        assert!(refusal("ib_write_bw -a").what.contains("is no tool whose runs are known here"));
        assert!(refusal("write-bw 'a").what.contains("quote"));
        assert_eq!(refusal("write-bw --help").kind, ErrorKind::Usage);
    }

    #[test]
    fn words_are_parted_as_a_shell_does() {
        assert_eq!(words("  a 'b c'  d\"e f\" ''").unwrap(), ["a", "b c", "de f", ""]);
    }
}
