//! One rank of many: a process that a launcher, or a person, has started on some machine.

use linkproof_common::error::Result;
use linkproof_common::host::HostFiles;
use linkproof_common::memory::check_available;

use crate::backend::host::shm::Shm;
use crate::backend::host::tcp::{self, Addresses};
use crate::group::Group;
use crate::group::tcp::TcpGroup;
use crate::launch::Launch;
use crate::plan::{Plan, Transport, largest_buffers};
use crate::run::{Observer, Rank};
use crate::threads::{Hands, run_on_gpu};

/// Runs this process's part of `plan`; `observer` is told at rank 0 only.
///
/// # Errors
/// What any rank could not do; as [`TcpGroup::meet`] and [`Rank::run`].
pub fn run(launch: &Launch, plan: &Plan, hands: &Hands, observer: &mut dyn Observer) -> Result<()> {
    let mut group = TcpGroup::meet(launch, plan)?;
    let result = match plan.transport {
        Transport::Gpu => {
            let (alarm, local_rank) = (group.alarm(), launch.local_rank.unwrap_or(launch.rank));
            run_on_gpu(&mut group, alarm, local_rank, plan, hands, observer).and_then(|()| group.barrier())
        }
        _ => measure(&mut group, plan, hands, observer),
    };
    let result = result.map_err(|error| group.explain(error));
    if let Err(error) = &result {
        group.abort(error);
    }
    result
}

fn measure(group: &mut TcpGroup, plan: &Plan, hands: &Hands, observer: &mut dyn Observer) -> Result<()> {
    check_memory(plan, group.rank())?;
    let addresses = Addresses { own: group.own_ip(), root: group.root_ip() };
    let alarm = group.alarm();
    let mut backend = tcp::backend(group, alarm, addresses, plan)?;
    // The others must have their data connections before one may leave.
    group.barrier()?;
    Rank::new(group, &mut backend, plan, &hands.machine, hands.fault).run(observer)?;
    group.barrier()
}

/// This rank's buffers; how many ranks share the machine is not known.
fn check_memory(plan: &Plan, rank: u32) -> Result<()> {
    let (send, recv) = largest_buffers(&plan.points()?, rank);
    let need = Shm::needs(send, recv);
    check_available(need, "the buffers of this rank", &HostFiles::this_machine())
        .map_err(|error| error.hint("use a smaller -e"))
}
