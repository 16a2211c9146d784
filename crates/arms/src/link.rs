//! Arms of the tools that measure a link: over RDMA, over TCP, or with other options, each time by a client of its own
//! that the same server serves.

use std::ffi::OsString;

use clap::Args;
use linkproof_common::args::{OutputArgs, PeerArgs};
use linkproof_common::conduct;
use linkproof_common::error::{Error, ErrorKind, ExitStatus, Result};
use linkproof_common::plan::Transport;
use linkproof_common::report::{JsonTarget, timestamp};
use serde_json::Value;

use crate::arm::{Arm, parse};
use crate::document::Report;
use crate::line::Line;
use crate::show::{Terminal, show};
use crate::step::Alone;
use crate::trial::{Tool, Tried, run as run_all, this_program};

/// The option that asks for arms.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Arms (client only)")]
pub struct ArmArgs {
    /// One way of measuring, to be compared with others: give two or more. They run in turn (A B B A …), each is proven to be
    /// what it is called, and judged against the first: default, rdma, tcp, and with GPU memory staged and gdr. Your own: "NAME:-q 8 -t 64". --rounds are runs of each arm [default: 6]
    #[arg(long, value_name = "ARM", conflicts_with_all = ["run_infinitely", "interval"])]
    pub arm: Vec<String>,
}

/// The option by which arms differ most.
const TRANSPORT: &str = "--transport";

/// Options that a run does not have from the command line: they are about the arms, or an arm may have its own.
const NOT_PASSED_ON: [&str; 3] = ["--arm", "--rounds", TRANSPORT];

/// What an arm over TCP has no use for, and would be told so.
const SOFT_DEVICE: &str = "--soft-device";

/// Runs the arms of the tool `T` and shows what came of them; `rounds` as given.
pub fn run<T: conduct::Tool>(
    arms: &ArmArgs,
    peer: &PeerArgs,
    output: &OutputArgs,
    rounds: Option<u32>,
) -> ExitStatus {
    let started = timestamp();
    let rounds = rounds.unwrap_or(crate::ROUNDS);
    let (arms, ended) = tried(T::NAME, arms, peer, rounds).unwrap_or_else(|error| (Vec::new(), Err(error)));
    let report = Report::of(T::NAME, T::VERSION, rounds, started, arms, ended);
    show(&report, JsonTarget::from_option(output.json.as_ref()).as_ref(), output.verbose)
}

fn tried(name: &str, args: &ArmArgs, peer: &PeerArgs, rounds: u32) -> Result<(Vec<Tried>, Result<()>)> {
    if peer.host.is_none() {
        return Err(Error::new(ErrorKind::Usage, "--arm is for the client, and no host is named")
            .hint(format!("start the server as ever; then {name} HOST --arm tcp --arm rdma")));
    }
    let argv: Vec<OsString> = std::env::args_os().collect();
    let (line, soft) = Line::without(&argv, &NOT_PASSED_ON).without_flag(SOFT_DEVICE);
    let transport = peer.transport.map(Transport::name);
    let with_options = |arm: Arm| on_its_device(arm.unless_its_own(TRANSPORT, transport), soft);
    let arms: Vec<Arm> = parse(&args.arm, &known())?.into_iter().map(with_options).collect();
    let program = this_program()?;
    let tool = Tool { program: &program, line, prove };
    Ok(run_all(&tool, &arms, rounds, &mut Alone, &mut Terminal::default()))
}

/// What `--arm` takes by name.
fn known() -> [Arm; 5] {
    let arm = |name: &str| Arm::setting(name, &[]).with(&[TRANSPORT, name]);
    let over_rdma =
        |name: &str, path: &str| Arm::setting(name, &[]).with(&[TRANSPORT, "rdma", "--cuda-path", path]);
    let (staged, gdr) = (over_rdma("staged", "staged"), over_rdma("gdr", "auto"));
    [Arm::setting("default", &[]), arm("rdma"), arm("tcp"), staged, gdr]
}

/// `arm` on the device in software, where the command line asks for it and the arm uses one.
fn on_its_device(arm: Arm, soft: bool) -> Arm {
    if soft && arm.value_of(TRANSPORT) != Some("tcp") { arm.with(&[SOFT_DEVICE]) } else { arm }
}

/// What carried the bytes of a run, from its document: each completed write is the adapter's word for it.
fn prove(run: &Value) -> Result<String> {
    let link = &run["link"];
    let of = |end: &str, what: &str| link[end][what].as_str().unwrap_or("?").to_owned();
    let memory = gpu_memory(&run["memory"]);
    match link["transport"].as_str() {
        Some("tcp") => {
            Ok(format!("TCP, {}{memory}", between(&of("client", "netdev"), &of("server", "netdev"))))
        }
        Some("rdma") => {
            let devices = between(&of("client", "device"), &of("server", "device"));
            let software = ["client", "server"].iter().any(|end| of(end, "device_kind") == "software");
            let kind = if software { ", a device in software: no link's speed" } else { "" };
            Ok(format!("RDMA, {devices}, {}{memory}{kind}", network(&link["client"])))
        }
        _ => Err(Error::new(ErrorKind::RequirementNotMet, "a run does not say what carried its bytes")),
    }
}

/// How the GPU memory of either end was reached, where there is any.
fn gpu_memory(memory: &Value) -> String {
    let path = |end: &str| memory[format!("{end}_gpu")]["path"].as_str().unwrap_or("host");
    match (path("client"), path("server")) {
        ("host", "host") => String::new(),
        (client, server) if client == server => format!(", GPU memory by {client}"),
        (client, server) => format!(", memory by {client} to {server}"),
    }
}

fn between(client: &str, server: &str) -> String {
    if client == server { client.to_owned() } else { format!("{client} to {server}") }
}

fn network(end: &Value) -> &str {
    match end["gid"]["type"].as_str() {
        Some("roce_v2") => "RoCE v2",
        Some("roce_v1") => "RoCE v1",
        _ => end["link_layer"].as_str().unwrap_or("?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_run_proves_what_carried_its_bytes() {
        let end = |device: &str, kind: &str| {
            json!({"device": device, "device_kind": kind, "link_layer": "Ethernet",
            "gid": {"type": "roce_v2"}})
        };
        let rdma = json!({"link": {"transport": "rdma", "client": end("mlx5_0", "hardware"),
            "server": end("mlx5_2", "hardware")}});
        assert_eq!(prove(&rdma).unwrap(), "RDMA, mlx5_0 to mlx5_2, RoCE v2");
        let gpu = json!({"link": {"transport": "tcp", "client": {"netdev": "lo"}, "server": {"netdev": "lo"}},
            "memory": {"client_gpu": {"path": "staged"}, "server_gpu": {"path": "staged"}}});
        assert_eq!(prove(&gpu).unwrap(), "TCP, lo, GPU memory by staged");
        let mixed = json!({"client_gpu": {"path": "dmabuf"}});
        assert_eq!(gpu_memory(&mixed), ", memory by dmabuf to host");
        let soft = json!({"link": {"transport": "rdma", "client": end("rxe0", "software"),
            "server": end("rxe0", "software")}});
        assert_eq!(prove(&soft).unwrap(), "RDMA, rxe0, RoCE v2, a device in software: no link's speed");
        let tcp =
            json!({"link": {"transport": "tcp", "client": {"netdev": "eth0"}, "server": {"netdev": "eth0"}}});
        assert_eq!(prove(&tcp).unwrap(), "TCP, eth0");
        assert_eq!(prove(&json!({})).unwrap_err().kind, ErrorKind::RequirementNotMet);
    }

    #[test]
    fn an_arm_has_the_command_lines_transport_unless_it_has_its_own() {
        let options = |arm: &Arm| arm.clone().unless_its_own(TRANSPORT, Some("tcp")).options.join(" ");
        assert_eq!(
            known().each_ref().map(options),
            [
                "--transport tcp",
                "--transport rdma",
                "--transport tcp",
                "--transport rdma --cuda-path staged",
                "--transport rdma --cuda-path auto"
            ]
        );
        assert_eq!(options(&Arm::setting("x", &[]).with(&["--transport=rdma"])), "--transport=rdma");
        let soft = |arm: Arm| on_its_device(arm, true).options.join(" ");
        let [default, rdma, tcp, ..] = known().map(soft);
        assert_eq!(
            [default, rdma, tcp],
            ["--soft-device", "--transport rdma --soft-device", "--transport tcp"]
        );
    }
}
