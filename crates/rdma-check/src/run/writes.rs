//! A run of write-bw or write-lat, judged as the client would judge it before it speaks to anybody.

use linkproof_common::args::DeviceArgs;
use linkproof_common::error::Result;
use linkproof_common::gid::LinkLayer;
use linkproof_common::host::HostFiles;
use linkproof_common::node::{Node, RdmaDevice, RdmaPort, roce_mtu};
use linkproof_common::plan::{BufferLayout, Plan, Role, Transport};
use linkproof_common::session::{check_device_limits, check_path_mtu, try_gpu_memory};

use super::{Run, port};

/// Its device and plan.
#[derive(Clone, Debug)]
pub(super) struct Writes {
    pub(super) device: DeviceArgs,
    pub(super) transport: Transport,
    pub(super) plan: Plan,
}

impl Writes {
    /// Whether it needs an RDMA device of this node.
    pub(super) fn uses_node(&self) -> bool {
        self.transport == Transport::Rdma && port::is_of_node(&self.device.wish())
    }

    /// What would come of it on `node`.
    pub(super) fn look(&self, node: &Node, run: &mut Run) {
        if !self.uses_node() {
            return;
        }
        let layout = BufferLayout::new(&self.plan, Role::Client);
        // Memory of a GPU does not count against the limit of locked memory.
        let on_host = self.plan.gpu_of(Role::Client).is_none();
        run.pins_bytes = on_host.then(|| layout.total_len());
        let chosen = port::look(self.device.wish(), node, run);
        if let Some((device, port)) = chosen {
            run.failures.extend(self.limits(node, device, port).err());
        }
        let asked = || self.device.ib_dev.clone().unwrap_or("any device".to_owned());
        let name = chosen.map_or_else(asked, |(device, _)| device.name.clone());
        if let Some(memlock) = node.limits.memlock.as_ref().filter(|_| on_host) {
            run.failures.extend(memlock.check(layout.total_len(), &layout.describe(), &name).err());
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

    /// Tries to take and register the GPU memory that it would use, on this machine; nothing of it stays.
    pub(super) fn try_gpu_memory(&self, run: &mut Run, files: &HostFiles) {
        match try_gpu_memory(&self.plan, Role::Client, &self.device.wish(), files) {
            Ok(gpu) => run.gpu = gpu,
            Err(error) => run.failures.push(error),
        }
    }
}
