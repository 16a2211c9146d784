//! One rank of many: a process that a launcher, or a person, has started on some machine.

use linkproof_common::error::Result;
use linkproof_common::finding::explain;
use linkproof_common::host::HostFiles;

use crate::backend::Backend;
use crate::backend::host::rdma;
use crate::backend::host::tcp::{self, Addresses};
use crate::group::Group;
use crate::group::tcp::TcpGroup;
use crate::launch::Launch;
use crate::plan::{Plan, Transport};
use crate::preflight::check_memory;
use crate::report::RankHost;
use crate::run::{Observer, Rank};
use crate::threads::{Hands, run_on_gpu};

/// Runs this process's part of `plan`; `observer` is told at rank 0 only.
///
/// # Errors
/// What any rank could not do; as [`TcpGroup::meet`] and [`Rank::run`].
pub fn run(launch: &Launch, plan: &Plan, hands: &Hands, observer: &mut dyn Observer) -> Result<()> {
    let explained = |error| explain(error, &HostFiles::this_machine());
    let mut group = TcpGroup::meet(launch, plan).map_err(explained)?;
    let result = match plan.transport {
        Transport::Gpu => {
            let alarm = group.alarm();
            number_on_machine(&mut group)
                .map(|counted| launch.local_rank.unwrap_or(counted))
                .and_then(|number| run_on_gpu(&mut group, alarm, number, plan, hands, observer))
                .and_then(|()| group.barrier())
        }
        _ => check_memory(plan, Some(launch), &HostFiles::this_machine())
            .and_then(|()| measure(&mut group, plan, hands, observer)),
    };
    // Before the others are told: what explains the failure is on this machine.
    let result = result.map_err(|error| explained(group.explain(error)));
    if let Err(error) = &result {
        group.abort(error);
    }
    result
}

/// This rank's number among those of its machine, for launchers that don't say. All ranks ask, so that all stay in step.
fn number_on_machine(group: &mut TcpGroup) -> Result<u32> {
    let rank = group.rank() as usize;
    let machine = machine(&RankHost::this_machine().name, &HostFiles::this_machine());
    Ok(number_among(&group.all_gather(&machine)?, rank))
}

/// Two machines may have one name, and containers of one machine have several: the kernel's own identity goes with it.
fn machine(name: &str, files: &HostFiles) -> Vec<u8> {
    let boot = files.text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{name} {boot}").into_bytes()
}

fn number_among(machines: &[Vec<u8>], rank: usize) -> u32 {
    machines.iter().take(rank).filter(|other| machines.get(rank) == Some(*other)).count() as u32
}

fn measure(group: &mut TcpGroup, plan: &Plan, hands: &Hands, observer: &mut dyn Observer) -> Result<()> {
    let alarm = group.alarm();
    if plan.transport == Transport::Rdma {
        let here = rdma::Here { ranks: 1, processors: hands.machine.cpus };
        let mut backend = rdma::backend(group, alarm, &hands.port, here, plan)?;
        return go_through(group, &mut backend, plan, hands, observer);
    }
    let addresses = Addresses { own: group.own_ip(), root: group.root_ip() };
    let mut backend = tcp::backend(group, alarm, addresses, plan)?;
    go_through(group, &mut backend, plan, hands, observer)
}

fn go_through(
    group: &mut TcpGroup,
    backend: &mut impl Backend,
    plan: &Plan,
    hands: &Hands,
    observer: &mut dyn Observer,
) -> Result<()> {
    // The others must have their data connections before one may leave, and have them until all are done.
    group.barrier()?;
    Rank::new(group, backend, plan, &hands.machine, hands.fault).run(observer)?;
    group.barrier()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_numbered_on_each_machine_also_where_two_have_one_name() {
        let machines = ["a 1", "b 1", "a 1", "a 2", "b 1", "a 2"].map(|words| words.as_bytes().to_vec());
        let numbers: Vec<u32> = (0..machines.len()).map(|rank| number_among(&machines, rank)).collect();
        assert_eq!(numbers, [0, 0, 1, 0, 1, 1]);
        let of_boot = |identity: &str| {
            let tree = tempfile::tempdir().unwrap();
            let folder = tree.path().join("proc/sys/kernel/random");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("boot_id"), identity).unwrap();
            machine("a", &HostFiles::below(tree.path()))
        };
        assert_eq!(of_boot("1\n"), of_boot("1\n"));
        assert_ne!(of_boot("1\n"), of_boot("2\n"));
    }
}
