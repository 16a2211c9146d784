//! What this end can't do, found out before anything is allocated or anybody is bothered.

use super::negotiate::LocalEnd;
use crate::cuda::{Driver, GpuName, choose};
use crate::device::{ChosenPort, DeviceLimits};
use crate::error::{Error, ErrorKind, Result};
use crate::memlock::LockedMemory;
use crate::memory::LESS_MEMORY;
use crate::open_files;
use crate::plan::{BufferLayout, Plan, Role, Transport};
use crate::units::ByteSize;

/// Whether this end can play its part in `plan`: its memory, its locked-memory limit, its device's limits.
///
/// # Errors
/// [`ErrorKind::Memory`], [`ErrorKind::Memlock`], [`ErrorKind::OpenFiles`] or [`ErrorKind::DeviceLimit`].
pub fn check_local(plan: &Plan, local: &LocalEnd, role: Role) -> Result<()> {
    let layout = BufferLayout::new(plan, role);
    if let Some(gpu) = plan.gpu_of(role) {
        check_gpu(gpu, layout.total_len())?;
    }
    let on_host = plan.gpu_of(role).is_none();
    if let (Transport::Rdma, Some(port)) = (plan.transport, local.port()) {
        let limits = LockedMemory::of_this_process(local.files());
        if on_host {
            limits.check(layout.total_len(), &layout.describe(), port.context.name())?;
        }
        check_device(plan, port)?;
    }
    if plan.transport == Transport::Tcp {
        open_files::make_room(plan.sockets())?;
    }
    if on_host { plan.memory.check(layout.total_len(), &layout.describe(), local.files()) } else { Ok(()) }
}

/// Whether the GPU is there. What it has free is seen when the memory is taken: it may be another's by then.
fn check_gpu(gpu: &GpuName, need: u64) -> Result<()> {
    let gpu = choose(Driver::load()?, gpu)?;
    if need <= gpu.memory_bytes {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Memory,
        format!(
            "this run needs {} of GPU memory and {} has {}",
            ByteSize(need),
            gpu.describe(),
            ByteSize(gpu.memory_bytes)
        ),
    )
    .hint(format!("use {LESS_MEMORY}")))
}

fn check_device(plan: &Plan, chosen: &ChosenPort) -> Result<()> {
    let (device, port) = (chosen.context.name(), &chosen.port);
    check_device_limits(plan, device, &DeviceLimits::from(&chosen.context.limits()?))?;
    check_path_mtu(plan, device, port.port_num, port.active_mtu)?;
    if plan.largest() > port.max_msg_size {
        return Err(Error::new(
            ErrorKind::DeviceLimit,
            format!(
                "--size asks for messages of {} and port {} of {device} allows {}",
                ByteSize(plan.largest()),
                port.port_num,
                ByteSize(port.max_msg_size)
            ),
        ));
    }
    Ok(())
}

/// Whether `device` can hold what `plan` asks for.
///
/// # Errors
/// [`ErrorKind::DeviceLimit`], naming the option.
pub fn check_device_limits(plan: &Plan, device: &str, limits: &DeviceLimits) -> Result<()> {
    let at_most = |option: &str, asked: u32, limit: u32, what: &str| {
        if asked <= limit {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::DeviceLimit,
            format!("{option} asks for {asked} {what} and {device} allows {limit}"),
        ))
    };
    at_most("--qp", plan.qps, limits.max_qp, "queue pairs")?;
    at_most("--tx-depth", plan.queue_depth(), limits.max_qp_wr, "outstanding writes")?;
    at_most("--mr-per-qp", plan.memory_regions(), limits.max_mr, "memory regions")?;
    at_most("--threads", plan.threads, limits.max_cq, "completion queues")?;
    at_most("--qp", plan.completion_entries(), limits.max_cqe, "completion queue entries")
}

/// Whether a port whose active MTU is `active` can carry the path MTU that `plan` asks for.
///
/// # Errors
/// [`ErrorKind::DeviceLimit`], naming both.
pub fn check_path_mtu(plan: &Plan, device: &str, port_num: u8, active: u32) -> Result<()> {
    let Some(asked) = plan.path_mtu_bytes.filter(|&asked| asked > active) else { return Ok(()) };
    Err(Error::new(
        ErrorKind::DeviceLimit,
        format!("--mtu asks for a path MTU of {asked} and the active MTU of port {port_num} of {device} is {active}"),
    )
    .hint("omit --mtu, or raise the MTU of the port's network interface on both ends (4200 or more for 4096)"))
}
