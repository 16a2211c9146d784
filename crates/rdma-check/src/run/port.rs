//! Which device, port and GID entry a run would use, judged as its tool would.

use linkproof_common::device::{DeviceWish, Library};
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::gid::{self, LinkLayer};
use linkproof_common::node::{Node, NodeFile, RdmaDevice, RdmaPort};

use super::Run;

/// Whether what is asked for is a device of this node.
pub(super) fn is_of_node(wish: &DeviceWish) -> bool {
    wish.library != Library::Softnic
}

/// Notes in `run` the device, port and GID of `wish` on `node`, or why there are none; gives the device and its port.
pub(super) fn look<'a>(
    wish: DeviceWish,
    node: &'a Node,
    run: &mut Run,
) -> Option<(&'a RdmaDevice, &'a RdmaPort)> {
    let wanted = Wanted { name: wish.name, port_num: wish.port_num, gid_index: wish.gid_index };
    match wanted.device(node).and_then(|device| Ok((device, wanted.port(node, device)?))) {
        Err(error) => {
            run.failures.push(error);
            None
        }
        Ok((device, port)) => {
            run.device = Some(device.name.clone());
            run.port_num = Some(port.port_num);
            let gid = wanted.gid(device, port);
            run.gid_index = gid.as_ref().ok().copied().flatten();
            run.failures.extend(gid.err());
            Some((device, port))
        }
    }
}

/// What the command line asks for.
struct Wanted<'w> {
    name: Option<&'w str>,
    port_num: Option<u8>,
    gid_index: Option<u32>,
}

impl Wanted<'_> {
    /// The device that it would use.
    ///
    /// # Errors
    /// The tool's own: the library, device and port kinds of [`ErrorKind`].
    fn device<'a>(&self, node: &'a Node) -> Result<&'a RdmaDevice> {
        if let Some(missing) = &node.library_missing {
            return Err(Error::new(ErrorKind::LibraryMissing, missing.clone()));
        }
        let present =
            || node.devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ");
        let is_active = |device: &&RdmaDevice| device.ports.iter().any(|port| port.is_active() == Some(true));
        let device = match self.name {
            _ if node.devices.is_empty() => {
                return Err(Error::new(ErrorKind::NoDevice, "this machine has no RDMA device")
                    .hint("load the adapter's driver and ib_uverbs, or measure TCP on both ends with --transport tcp"));
            }
            Some(name) => node.devices.iter().find(|device| device.name == name).ok_or_else(|| {
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
        let port = match self.port_num {
            Some(number) => device.ports.iter().find(|port| port.port_num == number),
            None => device.ports.iter().find(is_active).or(device.ports.first()),
        };
        let Some(port) = port else {
            let number = self.port_num.map_or("at all".to_owned(), |number| number.to_string());
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
        match self.gid_index {
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
}
