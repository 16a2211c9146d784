//! Would a run work: a tool's command line, read by the tool's own parser, against what was seen of the node.
//!
//! It is judged as this end would judge it before it speaks to anybody; what the others can do is theirs.

mod collectives;
mod port;
mod writes;

use linkproof_common::args::{Parse, parse};
use linkproof_common::conduct::Ends;
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::finding::{Code, Finding, Severity, Topic};
use linkproof_common::host::HostFiles;
use linkproof_common::memory::GpuUse;
use linkproof_common::node::Node;
use linkproof_common::units::ByteSize;
use serde::{Deserialize, Serialize};

use self::collectives::Collectives;
use self::writes::Writes;

/// The words of a command line, as a shell parts them.
///
/// # Errors
/// [`ErrorKind::Usage`] where a quote is not closed.
pub(crate) fn words(text: &str) -> Result<Vec<String>> {
    shlex::split(text).ok_or_else(|| {
        Error::new(ErrorKind::Usage, "--for: a quote is not closed, or nothing follows a backslash")
    })
}

/// A command line, understood.
#[derive(Clone, Debug)]
pub struct Claim {
    /// As it was given.
    pub command: String,
    tool: Tool,
}

/// What the command line is of.
#[derive(Clone, Debug)]
enum Tool {
    Writes(Box<Writes>),
    Collectives(Box<Collectives>),
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
    /// The memory that it would pin, as the client or for the ranks of a process; absent where it uses no RDMA.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pins_bytes: Option<u64>,
    /// The GPU whose memory it would use, and how the device came to that in a trial; absent where it uses none, or it did not
    /// come to a trial.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub gpu: Option<GpuUse>,
    /// Of a collective: what performs it, and the ranks of this process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ranks: Option<String>,
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
        let tool = match tool {
            "write-bw" => {
                let args: write_bw::args::Args = understood(parse(argv)?)?;
                let transport = Ends { device: &args.device, peer: &args.peer }.transport();
                let plan = args.transfer.plan(tool, transport)?;
                Tool::Writes(Box::new(Writes { device: args.device, transport, plan }))
            }
            "write-lat" => {
                let args: write_lat::args::Args = understood(parse(argv)?)?;
                let transport = Ends { device: &args.device, peer: &args.peer }.transport();
                let plan = args.latency.plan(transport)?;
                Tool::Writes(Box::new(Writes { device: args.device, transport, plan }))
            }
            "coll-perf" => {
                let args: coll_perf::args::Args = understood(parse(argv)?)?;
                Tool::Collectives(Box::new(Collectives::of(args)?))
            }
            _ => {
                return Err(Error::new(
                    ErrorKind::Usage,
                    format!("--for: {tool:?} is no tool whose runs are known here"),
                )
                .hint("write-bw, write-lat and coll-perf are: --for 'write-bw -d mlx5_0 -s 1M'"));
            }
        };
        Ok(Self { command: text.to_owned(), tool })
    }

    /// Whether it needs an RDMA device or a GPU of this node.
    fn uses_node(&self) -> bool {
        match &self.tool {
            Tool::Writes(writes) => writes.uses_node(),
            Tool::Collectives(collectives) => collectives.uses_node(),
        }
    }

    /// Whether it can't do without an RDMA device. NCCL has sockets besides.
    fn needs_port(&self) -> bool {
        match &self.tool {
            Tool::Writes(writes) => writes.uses_node(),
            Tool::Collectives(collectives) => collectives.needs_port(),
        }
    }

    /// What would come of it on `node`, which `files` are of.
    pub fn on(&self, node: &Node, files: &HostFiles) -> Run {
        let mut run = Run {
            command: self.command.clone(),
            device: None,
            port_num: None,
            gid_index: None,
            pins_bytes: None,
            gpu: None,
            ranks: None,
            failures: Vec::new(),
        };
        match &self.tool {
            Tool::Writes(writes) => writes.look(node, &mut run),
            Tool::Collectives(collectives) => collectives.look(node, files, &mut run),
        }
        run
    }

    /// Tries to take and register the GPU memory that it would use, on this machine; nothing of it stays.
    pub fn try_gpu_memory(&self, run: &mut Run, files: &HostFiles) {
        match &self.tool {
            Tool::Writes(writes) if run.failures.is_empty() => writes.try_gpu_memory(run, files),
            Tool::Writes(_) | Tool::Collectives(_) => {}
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
            let is_unfit = finding.severity == Severity::Unfit;
            if is_unfit && (run.failures.is_empty() || !self.needs_port()) {
                finding.as_bad_as(Severity::Warning)
            } else {
                finding
            }
        };
        findings.extend(found.map(for_this_run));
        findings
    }
}

impl Run {
    fn describe(&self) -> String {
        let gpu = self.gpu.as_ref().map_or(String::new(), |gpu| format!("; as tried, {}", gpu.describe()));
        let ranks = self.ranks.as_ref().map_or(String::new(), |ranks| format!("{ranks}: "));
        let Some(device) = &self.device else {
            return match &self.ranks {
                Some(ranks) => format!("it would use {ranks}"),
                None => format!("it needs no RDMA device of this node{gpu}"),
            };
        };
        let port = self.port_num.map_or(String::new(), |port| format!(" port {port}"));
        let gid = self.gid_index.map_or(String::new(), |index| format!(", GID {index}"));
        let pins = self.pins_bytes.map_or(String::new(), |bytes| format!(", and pin {}", ByteSize(bytes)));
        format!("{ranks}it would use {device}{port}{gid}{pins}{gpu}")
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

#[cfg(test)]
mod tests;
