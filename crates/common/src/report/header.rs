//! The header above the table: what was measured, between whom, over what, and under which conditions.

use super::{DeviceKind, Document, Link, LinkEnd, MemoryUse, PerftestEnd, RdmaEnd, TcpEnd, conditions};
use crate::memory::{GpuPath, GpuUse, MemoryKind, Refusal};
use crate::plan::{Plan, Traffic, Transport};
use crate::qp::Qpn;
use crate::units::ByteSize;

/// The header of a run's report.
pub(super) fn header(document: &Document, plan: &Plan) -> String {
    let mut lines = vec![title(document, plan)];
    let mut add = |label: &str, value: String| lines.push(format!(" {label:<13}: {value}"));
    add("Hosts", hosts(document));
    if let Some(peer) = &document.peer {
        add("Peer", peer.describe());
        add("Must match", format!("on the other end, {}", peer.must_match.join("; ")));
    }
    for (label, value) in document.link.iter().flat_map(|link| link_lines(link, plan)) {
        add(label, value);
    }
    let (label, connections) = connections(plan);
    // How a perftest posts it does not tell.
    let posts_there = matches!(&document.link, Some(Link::Rdma { client, .. }) if client.known().is_none());
    let posts_here = plan.traffic != Traffic::Unidirectional;
    add(label, if posts_there && !posts_here { plan.qps.to_string() } else { connections });
    if let Some(attributes) = plan.queue_pair.describe() {
        add("QP options", attributes);
    }
    if let Some(limit) = &plan.rate_limit {
        let burst = limit.burst_messages;
        add(
            "Rate limit",
            format!("{} for each end that writes, at most {burst} messages at once", limit.rate),
        );
    }
    let of = if plan.is_until_stopped() { "," } else { " of" };
    add(
        "Rounds",
        format!("{}{of} {}, after {} of warm-up", plan.rounds, plan.describe_round(), plan.warmup_iterations),
    );
    if !document.conditions.is_empty() {
        add("Bound", conditions::describe_bindings(&document.conditions));
    }
    if let Some(clocks) = conditions::describe_clocks(&document.conditions) {
        add("Clock", clocks);
    }
    if let Some(memory) = &document.memory {
        add("Memory", describe_memory(memory, plan));
        for (label, gpu) in [("Client GPU", &memory.client_gpu), ("Server GPU", &memory.server_gpu)] {
            gpu.iter().for_each(|gpu| add(label, describe_gpu(gpu)));
        }
        if let Some(method) = gpu_method(memory, plan) {
            add("Method", method);
        }
    }
    lines.join("\n")
}

/// How the ends are connected: labels and values.
fn link_lines(link: &Link, plan: &Plan) -> Vec<(&'static str, String)> {
    match link {
        Link::Rdma { path_mtu_bytes, addressing, client, server } => {
            let mut lines = vec![("Client", link_end(client, plan)), ("Server", link_end(server, plan))];
            let mut known = [client, server].into_iter().filter_map(|end| end.known());
            if known.any(|end| end.device_kind == DeviceKind::Software) {
                lines.push(("Device kind", "software: no speed below is a link's".to_owned()));
            }
            lines.push(("GID choice", addressing.clone()));
            lines.push(("Path MTU", format!("{path_mtu_bytes} B")));
            lines
        }
        Link::Tcp { client, server } => vec![("Client", tcp_end(client)), ("Server", tcp_end(server))],
    }
}

fn tcp_end(end: &TcpEnd) -> String {
    let netdev = end.netdev.as_ref().map_or(String::new(), |netdev| format!(" on {netdev}"));
    format!("{}{netdev}", end.address)
}

fn title(document: &Document, plan: &Plan) -> String {
    let directions = match plan.traffic {
        Traffic::Unidirectional => "client to server",
        Traffic::Bidirectional => "both directions at once",
        Traffic::PingPong => "in turn",
    };
    let what = match (plan.traffic, plan.transport) {
        (Traffic::PingPong, Transport::Rdma) => "RDMA write latency over RC, half a round trip",
        (Traffic::PingPong, Transport::Tcp) => {
            "latency of the same message pattern over TCP, half a round trip"
        }
        (_, Transport::Rdma) => "RDMA write bandwidth over RC",
        (_, Transport::Tcp) => "bandwidth of the same message pattern over TCP",
    };
    if plan.traffic == Traffic::PingPong {
        return format!(" {} {}: {what}", document.tool, document.version);
    }
    format!(" {} {}: {what}, {directions}", document.tool, document.version)
}

fn hosts(document: &Document) -> String {
    let host = |host: &crate::environment::Host| format!("{} {}", host.role.name(), host.name);
    document.hosts.iter().map(host).collect::<Vec<_>>().join(", ")
}

fn describe_memory(memory: &MemoryUse, plan: &Plan) -> String {
    let registration = memory.registration.as_ref().map_or(String::new(), |how| format!(", {how}"));
    let regions = match memory.regions {
        Some(regions @ 2..) => format!(" in {regions} regions, one a queue pair"),
        _ => String::new(),
    };
    let (client, server) = (memory.client_kind, memory.server_kind);
    let kind = match (client, server) {
        (Some(client), Some(server)) if client != server => {
            format!("client {}, server {}", client.name(), server.name())
        }
        (Some(MemoryKind::Cuda), None) => "client GPU memory; the server does not tell".to_owned(),
        (None, Some(MemoryKind::Cuda)) => "server GPU memory; the client does not tell".to_owned(),
        _ => memory.kind.name().to_owned(),
    };
    let turns = plan.working_set_bytes.map_or(String::new(), |bytes| {
        format!(
            ", messages take turns in {}{}",
            ByteSize(bytes),
            if plan.qps > 1 { " for each queue pair" } else { "" }
        )
    });
    format!("{kind}{registration}{regions}{turns}")
}

/// A GPU, how its memory is reached, and what did not work before.
fn describe_gpu(gpu: &GpuUse) -> String {
    let refused = |refusal: &Refusal| format!("; not by {}: {}", refusal.path.name(), refusal.why);
    gpu.describe() + &gpu.refused.iter().map(refused).collect::<String>()
}

/// What a figure with GPU memory is of; `None` where it is of what it says.
fn gpu_method(memory: &MemoryUse, plan: &Plan) -> Option<String> {
    let mut gpus = [&memory.client_gpu, &memory.server_gpu].into_iter().flatten();
    let in_turn = plan.traffic == Traffic::PingPong;
    let any = gpus.clone().next().is_some();
    let staged = gpus.any(|gpu| gpu.path == GpuPath::Staged);
    let words = match (any, staged, in_turn) {
        (false, _, _) | (true, false, false) => return None,
        (true, true, true) => {
            "copy, wire, copy: a message is in host memory before it is sent, and in the GPU's when it counts as \
             arrived; nothing overlaps"
        }
        (true, true, false) => {
            "the GPU copies messages to and from host memory while others are sent; one is complete when the GPU has it"
        }
        (true, false, true) => {
            "a flag in host memory follows each message on its queue pair, and its arrival is what is seen: that the \
             adapter has written the message, not that a kernel would see it"
        }
    };
    Some(words.to_owned())
}

/// How many writes go to the adapter at once, where it is more than one.
fn lists(plan: &Plan) -> String {
    if plan.post_list > 1 { format!(", {} posted at once", plan.post_list) } else { String::new() }
}

fn connections(plan: &Plan) -> (&'static str, String) {
    let (label, messages) = match plan.transport {
        Transport::Rdma => ("Queue pairs", "writes"),
        Transport::Tcp => ("Sockets", "messages"),
    };
    let how = match (plan.traffic, plan.transport) {
        (Traffic::PingPong, _) => "one message in flight".to_owned(),
        (_, Transport::Rdma) => {
            format!(
                "{} outstanding {messages} each{}, a signal every {}",
                plan.tx_depth,
                lists(plan),
                signals(plan)
            )
        }
        (_, Transport::Tcp) => format!("{} outstanding {messages} each", plan.tx_depth),
    };
    let threads = if plan.threads > 1 { format!(" in {} threads", plan.threads) } else { String::new() };
    (label, format!("{}{threads}, {how}", plan.qps))
}

/// How often a write is signalled, which large messages are more often than small ones.
fn signals(plan: &Plan) -> String {
    let every = |size: Option<&u64>| plan.signal_every(size.copied().unwrap_or(0));
    let (small, large) = (every(plan.sizes_bytes.iter().min()), every(plan.sizes_bytes.iter().max()));
    if small == large { small.to_string() } else { format!("{small} (small messages) to {large} (large)") }
}

/// Queue pair numbers shown in the header at most; JSON has them all.
const QPNS_SHOWN: usize = 4;

fn link_end(end: &LinkEnd, plan: &Plan) -> String {
    match end {
        LinkEnd::Linkproof(end) => rdma_end(end, plan),
        LinkEnd::Perftest(end) => perftest_end(end),
    }
}

fn perftest_end(end: &PerftestEnd) -> String {
    let address = end.gid.map_or_else(|| format!("LID {}", end.lid), |gid| format!("GID {gid}"));
    format!("perftest {}, {address}, QP {}", end.perftest_version, qpns(&end.qpns))
}

fn qpns(all: &[Qpn]) -> String {
    let mut shown: Vec<String> = all.iter().take(QPNS_SHOWN).map(ToString::to_string).collect();
    if all.len() > QPNS_SHOWN {
        shown.push(format!("and {} more", all.len() - QPNS_SHOWN));
    }
    shown.join(" ")
}

fn rdma_end(end: &RdmaEnd, plan: &Plan) -> String {
    let emulated = end.software.as_ref().map_or(String::new(), |name| format!(" (software: {name})"));
    let rate = end.rate_gbit_per_sec.map_or(String::new(), |rate| format!(", {rate} Gb/s"));
    let address = match &end.gid {
        Some(gid) => format!("GID {}", gid.describe()),
        None => format!("LID {}", end.lid),
    };
    format!(
        "{}{emulated} port {}, {}{rate}, MTU {}, {address}, QP {}{}",
        end.device,
        end.port_num,
        end.link_layer.name(),
        end.active_mtu_bytes,
        qpns(&end.qpns),
        inline(end, plan)
    )
}

/// What the end's device has granted, where there was something to be granted.
fn inline(end: &RdmaEnd, plan: &Plan) -> String {
    match (plan.queue_pair.inline_bytes, end.inline_bytes) {
        (0, _) => String::new(),
        (_, 0) => ", nothing inline".to_owned(),
        (_, granted) => format!(", up to {granted} B inline"),
    }
}
