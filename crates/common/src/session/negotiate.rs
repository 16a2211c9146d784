//! How both ends come to hold the same plan.

use super::STEP_LIMIT;
use super::preflight::check_local;
use crate::affinity::{Bound, Wish};
use crate::device::{self, ChosenPort, DeviceWish};
use crate::environment::Host;
use crate::error::{Error, ErrorKind, Result};
use crate::exchange::{Channel, Message, out_of_order};
use crate::gid::{self, Addressing, LinkOffer};
use crate::host::HostFiles;
use crate::plan::{Plan, Role, Transport};

/// What this end brings: its port, if it has one, what the port can offer, and the calling thread, bound to where it
/// measures.
pub struct LocalEnd {
    port: Option<(ChosenPort, LinkOffer)>,
    bound: Bound,
    files: HostFiles,
}

impl LocalEnd {
    /// An end with an RDMA port, the one that is asked for; bound as `wish` says, else near the device.
    ///
    /// # Errors
    /// The library, device, port and GID kinds of [`ErrorKind`]; [`ErrorKind::Affinity`].
    pub fn rdma(device: &DeviceWish, wish: &Wish, files: HostFiles) -> Result<Self> {
        let chosen = device::choose(device, &files)?;
        let offer = chosen.context.link_offer(&chosen.port, device.gid_index, &files)?;
        let bound = Bound::here(wish, Some(chosen.context.name()), &files)?;
        Ok(Self { port: Some((chosen, offer)), bound, files })
    }

    /// An end that has sockets only, bound as `wish` says.
    ///
    /// # Errors
    /// [`ErrorKind::Affinity`].
    pub fn tcp(wish: &Wish, files: HostFiles) -> Result<Self> {
        Ok(Self { port: None, bound: Bound::here(wish, None, &files)?, files })
    }

    /// Where the calling thread is bound.
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// The port.
    pub fn port(&self) -> Option<&ChosenPort> {
        self.port.as_ref().map(|(port, _)| port)
    }

    /// The port, and what it can offer.
    pub(super) fn port_and_offer(&self) -> Option<(&ChosenPort, &LinkOffer)> {
        self.port.as_ref().map(|(port, offer)| (port, offer))
    }

    /// The kernel's files.
    pub fn files(&self) -> &HostFiles {
        &self.files
    }

    /// The end in words: `mlx5_0 port 1` or `TCP only`.
    pub fn describe(&self) -> String {
        match self.port() {
            Some(chosen) => format!("{} port {}", chosen.context.name(), chosen.port.port_num),
            None => "TCP only".to_owned(),
        }
    }

    fn offer(&self, transport: Transport) -> Option<LinkOffer> {
        match transport {
            Transport::Rdma => self.port.as_ref().map(|(_, offer)| offer.clone()),
            Transport::Tcp => None,
        }
    }
}

/// A plan that both ends hold, and how they will address each other. Only a negotiation makes one.
#[derive(Debug)]
pub struct AgreedPlan {
    plan: Plan,
    addressing: Option<Addressing>,
    path_mtu: u32,
    peer_lid: u16,
    hosts: Vec<Host>,
}

impl AgreedPlan {
    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The addressing; `None` over TCP.
    pub fn addressing(&self) -> Option<&Addressing> {
        self.addressing.as_ref()
    }

    /// Bytes of payload in a packet; 0 over TCP.
    pub fn path_mtu(&self) -> u32 {
        self.path_mtu
    }

    /// The peer port's local identifier; 0 on Ethernet and over TCP.
    pub fn peer_lid(&self) -> u16 {
        self.peer_lid
    }

    /// Both machines, the client's first.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Both ends come to this from the same plan and the same two offers.
    fn new(
        plan: Plan,
        role: Role,
        client: Option<LinkOffer>,
        server: Option<LinkOffer>,
        hosts: Vec<Host>,
    ) -> Result<Self> {
        let (Some(client), Some(server)) = (client, server) else {
            return Ok(Self { plan, addressing: None, path_mtu: 0, peer_lid: 0, hosts });
        };
        let addressing = gid::choose(&client, &server)?;
        let path_mtu = path_mtu(&plan, &client, &server)?;
        let peer_lid = match role {
            Role::Client => server.lid,
            Role::Server => client.lid,
        };
        Ok(Self { plan, addressing: Some(addressing), path_mtu, peer_lid, hosts })
    }
}

fn path_mtu(plan: &Plan, client: &LinkOffer, server: &LinkOffer) -> Result<u32> {
    let most = client.active_mtu_bytes.min(server.active_mtu_bytes);
    match plan.path_mtu_bytes {
        Some(asked) if asked > most => Err(Error::new(
            ErrorKind::DeviceLimit,
            format!("--mtu is {asked} and the ports allow a path MTU of {most}"),
        )
        .fact("active MTU", format!("client {}, server {}", client.active_mtu_bytes, server.active_mtu_bytes))
        .hint("omit --mtu, or raise the MTU of both ports' network interfaces (4200 or more for 4096)")),
        Some(asked) => Ok(asked),
        None => Ok(most),
    }
}

/// The client's half: says who it is and what it wants, and hears whether the server agrees.
///
/// # Errors
/// The server's refusal, marked as the server's; [`ErrorKind::GidFamily`]; the peer kinds.
pub fn propose(channel: &mut dyn Channel, local: &LocalEnd, plan: Plan, host: Host) -> Result<AgreedPlan> {
    let tool = plan.tool.clone();
    channel.send(&Message::Hello { tool: tool.clone(), host: host.clone() })?;
    let server_host = expect_hello(channel, &tool)?;
    let ours = local.offer(plan.transport);
    channel.send(&Message::Propose { plan: plan.clone(), link: ours.clone() })?;
    match channel.expect_any(STEP_LIMIT)? {
        Message::Agree { link } => AgreedPlan::new(plan, Role::Client, ours, link, vec![host, server_host]),
        other => Err(out_of_order("agree", &other)),
    }
}

/// The server's half, once the two have said who they are ([`known_peer`]): hears what the client wants, and
/// agrees if this end can do it. `hosts` are both machines, the client's first.
///
/// # Errors
/// The reason for a refusal; the caller tells it to the client.
pub fn agree(channel: &mut dyn Channel, local: &LocalEnd, hosts: Vec<Host>) -> Result<AgreedPlan> {
    let (plan, theirs) = match channel.expect_any(STEP_LIMIT)? {
        Message::Propose { plan, link } => (plan, link),
        other => return Err(out_of_order("propose", &other)),
    };
    plan.check()?;
    let ours = local.offer(plan.transport);
    if plan.transport == Transport::Rdma && ours.is_none() {
        return Err(Error::new(
            ErrorKind::Transport,
            "this server was started with --transport tcp and has no RDMA port to offer",
        )
        .hint("restart the server without --transport tcp, or run the client with it"));
    }
    check_local(&plan, local, Role::Server)?;
    let agreed = AgreedPlan::new(plan, Role::Server, theirs, ours.clone(), hosts)?;
    channel.send(&Message::Agree { link: ours })?;
    Ok(agreed)
}

fn expect_hello(channel: &mut dyn Channel, tool: &str) -> Result<Host> {
    let hello = channel.expect_any(STEP_LIMIT)?;
    known_peer(hello, tool, &channel.peer())
}

/// The machine of whoever says `hello`.
///
/// # Errors
/// [`ErrorKind::PeerVersion`] where it is another tool, [`ErrorKind::Protocol`] where it is no hello.
pub fn known_peer(hello: Message, tool: &str, peer: &str) -> Result<Host> {
    match hello {
        Message::Hello { tool: theirs, host } if theirs == tool => Ok(host),
        Message::Hello { tool: theirs, .. } => {
            Err(Error::new(ErrorKind::PeerVersion, format!("{peer} is {theirs}, this end is {tool}"))
                .hint("start the same tool on both ends, each pair on a --port of its own"))
        }
        other => Err(out_of_order("hello", &other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::pair;
    use crate::plan::tests::plan;

    fn host(role: Role) -> Host {
        Host::this_machine(role, "0.1.0", &HostFiles::this_machine())
    }

    fn local() -> LocalEnd {
        LocalEnd::tcp(&Wish::default(), HostFiles::this_machine()).unwrap()
    }

    fn negotiated(plan: Plan, tool: &str) -> (Result<AgreedPlan>, Result<AgreedPlan>) {
        let (mut client, mut server) = pair();
        std::thread::scope(|scope| {
            let server = scope.spawn(move || {
                let result = expect_hello(&mut server, tool).and_then(|client| {
                    let ours = host(Role::Server);
                    server.send(&Message::Hello { tool: tool.to_owned(), host: ours.clone() })?;
                    agree(&mut server, &local(), vec![client, ours])
                });
                if let Err(error) = &result {
                    server.send(&Message::Abort { error: error.clone() }).unwrap();
                }
                result
            });
            let client = propose(&mut client, &local(), plan, host(Role::Client));
            (client, server.join().unwrap())
        })
    }

    fn tcp_plan() -> Plan {
        Plan { transport: Transport::Tcp, ..plan() }
    }

    #[test]
    fn both_ends_hold_the_same_plan() {
        let (client, server) = negotiated(tcp_plan(), "write-bw");
        let (client, server) = (client.unwrap(), server.unwrap());
        assert_eq!(client.plan(), server.plan());
        assert_eq!(client.hosts(), server.hosts());
        assert_eq!(client.hosts()[1].role, Role::Server);
    }

    #[test]
    fn another_tool_is_refused_by_name() {
        let (client, server) = negotiated(tcp_plan(), "write-lat");
        assert!(server.unwrap_err().what.ends_with("is write-bw, this end is write-lat"));
        assert_eq!(client.unwrap_err().kind, ErrorKind::PeerVersion);
    }

    #[test]
    fn a_server_without_rdma_says_so() {
        let (client, server) = negotiated(plan(), "write-bw");
        assert_eq!(server.unwrap_err().kind, ErrorKind::Transport);
        assert!(client.unwrap_err().what.contains("--transport tcp"));
    }

    #[test]
    fn a_plan_that_the_server_cannot_hold_is_refused_there() {
        let huge = Plan { sizes_bytes: vec![1 << 31], qps: 16384, ..tcp_plan() };
        let (client, server) = negotiated(huge, "write-bw");
        assert_eq!(server.unwrap_err().kind, ErrorKind::Memory);
        let error = client.unwrap_err();
        assert_eq!((error.kind, error.origin), (ErrorKind::Memory, crate::error::Origin::Peer));
    }

    #[test]
    fn a_plan_with_nonsense_in_it_is_refused() {
        let (_, server) = negotiated(Plan { qps: 0, ..tcp_plan() }, "write-bw");
        assert_eq!(server.unwrap_err().kind, ErrorKind::Usage);
    }

    fn offer(active_mtu_bytes: u32) -> LinkOffer {
        LinkOffer {
            link_layer: gid::LinkLayer::InfiniBand,
            lid: 1,
            active_mtu_bytes,
            gids: Vec::new(),
            gid_forced: false,
            grh_required: false,
        }
    }

    #[test]
    fn the_path_mtu_is_the_smaller_active_one_and_never_more() {
        assert_eq!(path_mtu(&plan(), &offer(4096), &offer(1024)).unwrap(), 1024);
        let asked = Plan { path_mtu_bytes: Some(512), ..plan() };
        assert_eq!(path_mtu(&asked, &offer(4096), &offer(1024)).unwrap(), 512);
        let error =
            path_mtu(&Plan { path_mtu_bytes: Some(2048), ..plan() }, &offer(4096), &offer(1024)).unwrap_err();
        assert_eq!(error.facts[0].value, "client 4096, server 1024");
    }
}
