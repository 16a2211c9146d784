//! `--arm`: the arms that are known here, what proves that a run was what its arm says, and how the processes of a
//! launcher go through them together.

use std::collections::BTreeSet;
use std::ffi::OsString;

use linkproof_arms::{Alone, Arm, Line, Lockstep, Report, Terminal, Tool, Tried, show};
use linkproof_common::error::{Error, ErrorKind, ExitStatus, Result};
use linkproof_common::report::{JsonTarget, timestamp};
use serde_json::Value;

use crate::args::Args;
use crate::backend::nccl::{Edge, Requirement};
use crate::group::Group;
use crate::group::tcp::TcpGroup;
use crate::launch::Launch;
use crate::plan::{Plan, Transport};
use crate::report::{Document, Output, RankPort, TOOL};

/// Options that a run does not have from the command line: they are about the arms, or an arm may have its own.
const NOT_PASSED_ON: [&str; 8] = [
    "--arm",
    "--rounds",
    "--require-transport",
    "--transport",
    "--ib-dev",
    "--device",
    "--ib-port",
    "--gid-index",
];

/// Runs the arms that `args` name and shows what came of it; `argv` is the command line, the program first.
pub fn run(args: &Args, argv: &[OsString]) -> ExitStatus {
    let started = timestamp();
    let rounds = args.rounds.unwrap_or(linkproof_arms::ROUNDS);
    let launch = args.launch();
    let follows = matches!(&launch, Ok(Some(launch)) if launch.rank > 0);
    let came = launch.and_then(|launch| tried(args, argv, launch.as_ref(), rounds));
    if follows {
        return follow(came.and_then(|(_, ended)| ended));
    }
    let (arms, ended) = came.unwrap_or_else(|error| (Vec::new(), Err(error)));
    let report = Report::of(TOOL, env!("CARGO_PKG_VERSION"), rounds, started, arms, ended);
    show(&report, JsonTarget::from_option(args.json.as_ref()).as_ref(), args.verbose)
}

/// That an arm failed is rank 0's to say: a launcher ends all ranks when one of them ends badly, and might end rank 0
/// before it has said so.
fn follow(ended: Result<()>) -> ExitStatus {
    match ended {
        Ok(()) => ExitStatus::Good,
        Err(error) => {
            Output::new(None, false).say_failure(&error);
            error.exit_status()
        }
    }
}

fn tried(
    args: &Args,
    argv: &[OsString],
    launch: Option<&Launch>,
    rounds: u32,
) -> Result<(Vec<Tried>, Result<()>)> {
    let plan = args.plan_for(launch)?;
    let known = known(plan.transport == Transport::Gpu, launch.is_some());
    let arms: Vec<Arm> =
        linkproof_arms::parse(&args.arm, &known)?.into_iter().map(|arm| with_options_of(args, arm)).collect();
    let program = linkproof_arms::this_program()?;
    let (line, _) = Line::without(argv, &NOT_PASSED_ON).without_flag(SOFT_DEVICE);
    let tool = Tool { program: &program, line, prove };
    let mut together = launch.map(|launch| Together::meet(launch, &plan, &arms)).transpose()?;
    let step: &mut dyn Lockstep = match &mut together {
        Some(together) => together,
        None => &mut Alone,
    };
    Ok(linkproof_arms::run(&tool, &arms, rounds, step, &mut Terminal::default()))
}

/// What `--arm` takes by name.
fn known(gpu: bool, launched: bool) -> Vec<Arm> {
    let default = Arm::setting("default", &[]);
    if !gpu {
        let over = |name: &str| Arm::setting(name, &[]).with(&["--transport", name]);
        // Ranks that are processes have no memory in common.
        let between = vec![over("tcp"), over("rdma")];
        let within = if launched { vec![default] } else { vec![default, over("shm")] };
        return [within, between].concat();
    }
    let arm = |name: &str, requirement: Requirement, environment: &[(&str, &str)]| {
        Arm::setting(name, environment).with(&["--require-transport", requirement.name()])
    };
    let (net, no_ib) = (("NCCL_NET", "Socket"), ("NCCL_IB_DISABLE", "1"));
    let (no_p2p, no_shm) = (("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1"));
    // Reductions in NVLink's switches are no P2P to NCCL, and would go on without it.
    let no_nvls = ("NCCL_NVLS_ENABLE", "0");
    let no_gdr = [("NCCL_NET_GDR_LEVEL", "LOC"), ("NCCL_NET_GDR_READ", "0")];
    vec![
        default,
        arm("rdma", Requirement::Ib, &[]),
        arm("gdr", Requirement::IbGdr, &[]),
        arm("no-gdr", Requirement::IbHost, &no_gdr),
        arm("tcp", Requirement::Socket, &[net, no_ib]),
        arm("tcp-only", Requirement::SocketOnly, &[net, no_ib, no_p2p, no_shm, no_nvls]),
        arm("p2p", Requirement::P2p, &[]),
        arm("nvlink", Requirement::Nvlink, &[]),
        arm("p2p-off", Requirement::NoP2p, &[no_p2p, no_nvls]),
    ]
}

/// The option without a value among those of an RDMA port.
const SOFT_DEVICE: &str = "--soft-device";

/// `arm`, and what the command line says of all arms that don't say otherwise; of an RDMA port only to those that have one.
fn with_options_of(args: &Args, arm: Arm) -> Arm {
    let transport = args.transport.and_then(|it| clap::ValueEnum::to_possible_value(&it));
    let arm = arm
        .unless_its_own("--require-transport", args.require_transport.map(Requirement::name))
        .unless_its_own("--transport", transport.as_ref().map(|it| it.get_name()));
    if arm.value_of("--transport") != Some("rdma") {
        return arm;
    }
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let arm = arm
        .unless_its_own("--ib-dev", args.port.ib_dev.as_deref())
        .unless_its_own("--ib-port", number(args.port.ib_port.map(u32::from)).as_deref())
        .unless_its_own("--gid-index", number(args.port.gid_index).as_deref());
    if args.port.soft_device { arm.with(&[SOFT_DEVICE]) } else { arm }
}

/// What carried the bytes of a run, from its document.
fn prove(run: &Value) -> Result<String> {
    let document: Document = serde_json::from_value(run.clone()).map_err(|error| {
        Error::new(ErrorKind::RunLost, format!("the result of a run can't be read: {error}"))
    })?;
    let n_ranks = document.plan.as_ref().map_or(0, |plan| plan.n_ranks);
    let Some(carrier) = document.backend.as_ref().filter(|carrier| carrier.backend == "nccl") else {
        let over = document.backend.map_or_else(|| "nothing".to_owned(), |carrier| carrier.transport);
        let ports: BTreeSet<String> =
            document.hosts.iter().filter_map(|host| host.port.as_ref()).map(through).collect();
        return Ok(ports.into_iter().fold(over, |words, port| format!("{words}, {port}")));
    };
    if n_ranks == 1 {
        return Ok("one rank's own memory".to_owned());
    }
    let edges = document.evidence.iter().flat_map(|witness| &witness.edges);
    let mut words: Vec<String> = edges.flat_map(carried_by).collect();
    words.sort();
    words.dedup();
    if words.is_empty() {
        let what = format!(
            "what carried the bytes of a run is not proven: {} has named no connection",
            carrier.note
        );
        return Err(Error::new(ErrorKind::RequirementNotMet, what)
            .hint("unset NCCL_DEBUG_FILE and NCCL_DEBUG_SUBSYS, so that the log can be read"));
    }
    Ok(words.join(" and "))
}

/// A port as a proof names it: without what may differ from rank to rank.
fn through(port: &RankPort) -> String {
    let software = if port.software.is_some() { ", a device in software: no link's speed" } else { "" };
    format!("{}{software}", port.device)
}

/// What carries the bytes of an edge, without what may differ from run to run.
fn carried_by(edge: &Edge) -> impl Iterator<Item = String> {
    let over = edge.link.map_or(String::new(), |link| format!(" over {}", link.name()));
    edge.transports.iter().map(move |words| format!("{}{over}", without_device(words)))
}

/// `NET/IB, GDRDMA` for `NET/IB device 3, GDRDMA`: which of several adapters is the edges' to tell.
fn without_device(words: &str) -> String {
    let Some((network, device)) = words.split_once(" device ") else { return words.to_owned() };
    let how = device.find(',').map_or("", |comma| &device[comma..]);
    format!("{network}{how}")
}

/// Processes of a launcher, each of which starts one rank of every run.
struct Together(TcpGroup);

impl Together {
    /// Meets the others where the runs will meet, too: nobody listens there between.
    fn meet(launch: &Launch, plan: &Plan, arms: &[Arm]) -> Result<Self> {
        let mut group = TcpGroup::meet(launch, plan)?;
        let own = serde_json::to_vec(arms).unwrap_or_default();
        let all = group.all_gather(&own)?;
        match all.iter().position(|theirs| *theirs != all[0]) {
            None => Ok(Self(group)),
            Some(rank) => {
                let what = format!("rank {rank} was started with other arms than rank 0");
                Err(Error::new(ErrorKind::Usage, what).hint("give all ranks the same command line"))
            }
        }
    }
}

impl Lockstep for Together {
    fn leads(&self) -> bool {
        self.0.rank() == 0
    }

    /// That of the lowest rank: rank 0's run has been told what became of the others'.
    fn any(&mut self, own: Option<Error>) -> Result<Option<Error>> {
        let all = self.0.all_gather(&serde_json::to_vec(&own).unwrap_or_default())?;
        let told = |blob: &Vec<u8>| serde_json::from_slice::<Option<Error>>(blob).ok().flatten();
        Ok(all.iter().find_map(told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Carrier;
    use crate::backend::nccl::{LogFacts, Witness};
    use crate::plan::tests::plan;

    fn run_over(connections: &[&str]) -> Value {
        let log: String =
            connections.iter().map(|line| format!("h:1:2 [0] NCCL INFO Channel {line}\n")).collect();
        let mut document = Document::begin();
        let [backend, transport, note] = ["nccl", "gpu", "NCCL 2.28"].map(String::from);
        document.backend = Some(Carrier { backend, transport, note });
        document.plan = Some(plan(&["all_reduce"]));
        document.evidence = vec![Witness::of([LogFacts::parse(&log)])];
        serde_json::to_value(document).unwrap()
    }

    #[test]
    fn a_run_proves_what_carried_its_bytes() {
        let ib = [
            "0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA",
            "1 : 0[0] -> 1[1] [send] via NET/IB/1/GDRDMA",
            "0 : 1[1] -> 0[0] via P2P/CUMEM",
        ];
        assert_eq!(prove(&run_over(&ib)).unwrap(), "NET/IB, GDRDMA and P2P (CUMEM)");
        let unknown = prove(&run_over(&[])).unwrap_err();
        assert_eq!(unknown.kind, ErrorKind::RequirementNotMet);
        assert!(unknown.what.contains("not proven"), "{unknown:?}");
    }

    #[test]
    fn every_known_arm_but_the_default_asks_for_its_proof() {
        for arm in known(true, false).iter().skip(1) {
            assert_eq!(arm.options[0], "--require-transport", "{arm:?}");
        }
        let names = |launched| known(false, launched).iter().map(|it| it.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(false), ["default", "shm", "tcp", "rdma"]);
        assert_eq!(names(true), ["default", "tcp", "rdma"]);
    }

    #[test]
    fn an_arm_has_the_command_lines_wishes_unless_it_has_its_own() {
        let words = "coll-perf --arm default --arm tcp --require-transport p2p --transport tcp";
        let args = <Args as clap::Parser>::parse_from(words.split(' '));
        let options = |name: &str| {
            let arm = known(true, false).into_iter().find(|arm| arm.name == name).unwrap();
            with_options_of(&args, arm).options.join(" ")
        };
        assert_eq!(options("default"), "--require-transport p2p --transport tcp");
        assert_eq!(options("tcp"), "--require-transport socket --transport tcp");
    }

    #[test]
    fn only_an_arm_over_rdma_has_a_port() {
        let words = "coll-perf --arm tcp --arm rdma --device mlx5_1 --gid-index 3 --soft-device";
        let args = <Args as clap::Parser>::parse_from(words.split(' '));
        let options = |name: &str| {
            let arm = known(false, true).into_iter().find(|arm| arm.name == name).unwrap();
            with_options_of(&args, arm).options.join(" ")
        };
        assert_eq!(options("tcp"), "--transport tcp");
        assert_eq!(options("rdma"), "--transport rdma --ib-dev mlx5_1 --gid-index 3 --soft-device");
    }
}
