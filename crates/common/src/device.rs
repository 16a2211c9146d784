//! RDMA devices and ports: which there are, which one to use, and what the chosen port is.
//!
//! Opening a device gives a [`Context`]; everything made on it holds it, so that it closes last.
#![allow(unsafe_code, reason = "devices are libibverbs' objects")]

use std::ffi::CStr;
use std::net::IpAddr;
use std::sync::Arc;

use rdma_sys as sys;
use rdma_sys::Verbs;

use crate::error::{Error, ErrorKind, Result, show_errno, show_io_error};
use crate::gid::{Gid, GidEntry, GidType, LinkLayer, LinkOffer};
use crate::host::HostFiles;
use crate::units::Bandwidth;

/// What a port's logical link can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortState(pub sys::ibv_port_state);

impl PortState {
    /// Whether traffic can pass.
    pub fn is_active(self) -> bool {
        self.0 == sys::IBV_PORT_ACTIVE
    }

    /// The specification's name for it.
    pub fn name(self) -> &'static str {
        match self.0 {
            sys::IBV_PORT_NOP => "NOP",
            sys::IBV_PORT_DOWN => "DOWN",
            sys::IBV_PORT_INIT => "INIT",
            sys::IBV_PORT_ARMED => "ARMED",
            sys::IBV_PORT_ACTIVE => "ACTIVE",
            sys::IBV_PORT_ACTIVE_DEFER => "ACTIVE_DEFER",
            _ => "unknown",
        }
    }
}

/// A port, as its device describes it.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its number, from 1.
    pub port_num: u8,
    /// Its state.
    pub state: PortState,
    /// Its frames.
    pub link_layer: LinkLayer,
    /// Its local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The MTU in force, in bytes.
    pub active_mtu: u32,
    /// Entries of its GID table.
    pub gid_table_len: u32,
    /// The largest message, in bytes.
    pub max_msg_size: u64,
    /// Whether packets need a global route header always.
    pub grh_required: bool,
    /// Its signalling rate, as the kernel states it; `None` where it does not.
    pub rate: Option<Bandwidth>,
    /// The rate in the kernel's words, for instance `100 Gb/sec (4X EDR)`.
    pub rate_words: Option<String>,
}

impl Port {
    /// For lists: `port 1 ACTIVE, Ethernet, 100 Gb/sec (4X EDR)`.
    pub fn describe(&self) -> String {
        let rate = self.rate_words.as_ref().map_or(String::new(), |rate| format!(", {rate}"));
        format!("port {} {}, {}{rate}", self.port_num, self.state.name(), self.link_layer.name())
    }
}

/// An open device.
pub struct Context {
    verbs: &'static Verbs,
    raw: *mut sys::ibv_context,
    name: String,
}

// SAFETY: libibverbs contexts may be used from any thread; the pointer is never changed after opening and freed
// once, in Drop.
unsafe impl Send for Context {}
// SAFETY: as above; every verb called through a shared reference is thread-safe by libibverbs' contract.
unsafe impl Sync for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: everything made on the context holds an Arc of it, so nothing of it is left. A failure to close
        // leaves a file descriptor to the end of the process; there is nobody to tell.
        unsafe { (self.verbs.ibv_close_device)(self.raw) };
    }
}

impl Context {
    /// The library.
    pub fn verbs(&self) -> &'static Verbs {
        self.verbs
    }

    /// The raw context, for verbs.
    pub fn raw(&self) -> *mut sys::ibv_context {
        self.raw
    }

    /// The kernel's name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the device is an emulation: it has no parent on any bus. The name of the emulation if so.
    pub fn software(&self, files: &HostFiles) -> Option<String> {
        let folder = format!("/sys/class/infiniband/{}", self.name);
        if files.exists(&format!("{folder}/device")) {
            return None;
        }
        Some(
            files
                .text(&format!("{folder}/node_desc"))
                .filter(|text| !text.is_empty())
                .unwrap_or("software".into()),
        )
    }

    /// The device's limits.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnusable`] with the errno.
    pub fn limits(&self) -> Result<sys::ibv_device_attr> {
        let mut attr = sys::ibv_device_attr::default();
        // SAFETY: the context is open and `attr` is ours.
        match unsafe { (self.verbs.ibv_query_device)(self.raw, &mut attr) } {
            0 => Ok(attr),
            errno => Err(unusable(&self.name, "ibv_query_device", errno)),
        }
    }

    /// Every port of the device.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnusable`] with the errno.
    pub fn ports(&self, files: &HostFiles) -> Result<Vec<Port>> {
        (1..=self.limits()?.phys_port_cnt).map(|port_num| self.port(port_num, files)).collect()
    }

    fn port(&self, port_num: u8, files: &HostFiles) -> Result<Port> {
        let mut attr = sys::ibv_port_attr::default();
        // SAFETY: the context is open and `attr` is ours.
        let errno = unsafe { sys::ibv_query_port(self.verbs, self.raw, port_num, &mut attr) };
        if errno != 0 {
            return Err(unusable(&self.name, &format!("ibv_query_port {port_num}"), errno));
        }
        let rate_words = files.text(&format!("/sys/class/infiniband/{}/ports/{port_num}/rate", self.name));
        Ok(Port {
            port_num,
            state: PortState(attr.state),
            link_layer: match u32::from(attr.link_layer) {
                sys::IBV_LINK_LAYER_INFINIBAND => LinkLayer::InfiniBand,
                sys::IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
                _ => LinkLayer::Unspecified,
            },
            lid: attr.lid,
            active_mtu: mtu_bytes(attr.active_mtu),
            gid_table_len: u32::try_from(attr.gid_tbl_len).unwrap_or(0),
            max_msg_size: attr.max_msg_sz.into(),
            grh_required: u32::from(attr.flags) & sys::IBV_QPF_GRH_REQUIRED != 0,
            rate: rate_words.as_deref().and_then(parse_rate),
            rate_words,
        })
    }

    /// The used entries of a port's GID table.
    pub fn gids(&self, port: &Port, files: &HostFiles) -> Vec<GidEntry> {
        let prefixes = interface_prefixes();
        // An address handle has eight bits for the index, so entries beyond can't be used.
        (0..port.gid_table_len.min(256)).filter_map(|index| self.gid(port, index, files, &prefixes)).collect()
    }

    fn gid(&self, port: &Port, index: u32, files: &HostFiles, prefixes: &[(IpAddr, u8)]) -> Option<GidEntry> {
        let mut gid = sys::ibv_gid::default();
        // SAFETY: the context is open and `gid` is ours.
        let errno = unsafe { (self.verbs.ibv_query_gid)(self.raw, port.port_num, index as i32, &mut gid) };
        // SAFETY: both members of the union are sixteen plain bytes.
        let gid = Gid(unsafe { gid.raw }.into());
        if errno != 0 || gid.is_empty() {
            return None;
        }
        let attributes = format!("/sys/class/infiniband/{}/ports/{}/gid_attrs", self.name, port.port_num);
        // sysfs has told type and interface since Linux 4.5; the verb that tells both needs rdma-core 35.
        let gid_type = match files.text(&format!("{attributes}/types/{index}")).as_deref() {
            Some("RoCE v2") => GidType::RoceV2,
            Some("IB/RoCE v1") if port.link_layer == LinkLayer::Ethernet => GidType::RoceV1,
            _ if port.link_layer == LinkLayer::Ethernet => GidType::RoceV1,
            _ => GidType::Ib,
        };
        Some(GidEntry {
            index,
            gid,
            gid_type,
            netdev: files.text(&format!("{attributes}/ndevs/{index}")).filter(|name| !name.is_empty()),
            prefix_len: prefixes.iter().find(|(ip, _)| *ip == gid.ip()).map(|&(_, len)| len),
        })
    }

    /// What this port can offer for a connection; `forced` is the index that the user named.
    ///
    /// # Errors
    /// [`ErrorKind::GidIndex`] where `forced` names no used entry, [`ErrorKind::NoGid`] where Ethernet has none.
    pub fn link_offer(&self, port: &Port, forced: Option<u32>, files: &HostFiles) -> Result<LinkOffer> {
        let mut gids = self.gids(port, files);
        if let Some(index) = forced {
            let chosen = gids.iter().find(|entry| entry.index == index).cloned();
            gids = vec![chosen.ok_or_else(|| self.no_such_gid(port, index, &gids))?];
        }
        if gids.is_empty() && port.link_layer == LinkLayer::Ethernet {
            return Err(self.no_gid(port));
        }
        Ok(LinkOffer {
            link_layer: port.link_layer,
            lid: port.lid,
            active_mtu_bytes: port.active_mtu,
            gids,
            gid_forced: forced.is_some(),
            grh_required: port.grh_required,
        })
    }

    fn no_such_gid(&self, port: &Port, index: u32, gids: &[GidEntry]) -> Error {
        let object = format!("{} port {}", self.name, port.port_num);
        let what = if index < port.gid_table_len {
            format!("GID index {index} of {object} is an unused entry")
        } else {
            format!(
                "GID index {index} is outside the table of {object}, which has {} entries",
                port.gid_table_len
            )
        };
        Error::new(ErrorKind::GidIndex, what)
            .fact("in use", crate::gid::describe_all(gids))
            .hint("omit --gid-index to have one chosen to match the other end")
    }

    fn no_gid(&self, port: &Port) -> Error {
        Error::new(
            ErrorKind::NoGid,
            format!("the GID table of {} port {} is empty", self.name, port.port_num),
        )
        .fact("port", port.describe())
        .hint("give the port's network interface an IP address, and see that it is in this network namespace")
    }
}

/// The MTU in bytes that one of the `IBV_MTU_*` values stands for; 0 for a value that is none.
pub fn mtu_bytes(mtu: sys::ibv_mtu) -> u32 {
    if (sys::IBV_MTU_256..=sys::IBV_MTU_4096).contains(&mtu) { 128 << mtu } else { 0 }
}

/// The `IBV_MTU_*` value of an MTU in bytes; the largest that fits where it is none of the five.
pub fn mtu_value(bytes: u32) -> sys::ibv_mtu {
    (sys::IBV_MTU_256..=sys::IBV_MTU_4096)
        .rev()
        .find(|&mtu| mtu_bytes(mtu) <= bytes)
        .unwrap_or(sys::IBV_MTU_256)
}

/// `100 Gb/sec (4X EDR)` as a bandwidth.
fn parse_rate(words: &str) -> Option<Bandwidth> {
    let (number, unit) = words.split_once(' ')?;
    unit.starts_with("Gb/sec").then_some(())?;
    number.parse().ok().filter(|&rate: &f64| rate > 0.0).map(Bandwidth::from_gbit_per_sec)
}

/// The subnet prefix length of every address of this host; empty where the kernel doesn't say.
fn interface_prefixes() -> Vec<(IpAddr, u8)> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let to_ip = |address: nix::sys::socket::SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    let ones = |mask: IpAddr| match mask {
        IpAddr::V4(mask) => mask.to_bits().count_ones() as u8,
        IpAddr::V6(mask) => mask.to_bits().count_ones() as u8,
    };
    interfaces
        .filter_map(|interface| Some((to_ip(interface.address?)?, ones(to_ip(interface.netmask?)?))))
        .collect()
}

/// A device and the port to use on it.
pub struct ChosenPort {
    /// The open device.
    pub context: Arc<Context>,
    /// The port.
    pub port: Port,
}

/// Loads the library.
///
/// # Errors
/// [`ErrorKind::LibraryMissing`], naming the library.
pub fn load_library() -> Result<&'static Verbs> {
    Verbs::load().map_err(|error| {
        Error::new(ErrorKind::LibraryMissing, format!("the RDMA library can't be used: {error}"))
            .fact("opened", error.path().display())
            .hint(format!(
                "install it (libibverbs1 and ibverbs-providers on Debian and Ubuntu, libibverbs on RHEL and SUSE), name another \
                 with {}, or measure TCP on both ends with --transport tcp",
                sys::LIBRARY_VARIABLE
            ))
    })
}

/// Chooses the device called `name` (else the first with an ACTIVE port) and its port `port_num` (else its first
/// ACTIVE one).
///
/// # Errors
/// The library, device and port kinds of [`ErrorKind`]; each lists what there is instead.
pub fn choose(name: Option<&str>, port_num: Option<u8>, files: &HostFiles) -> Result<ChosenPort> {
    let verbs = load_library()?;
    let list = DeviceList::of(verbs)?;
    if list.names().next().is_none() {
        return Err(no_device(name));
    }
    match name {
        Some(name) => {
            let device = list.find(name, files).ok_or_else(|| not_found(name, &list, files))?;
            choose_port(device, port_num, files)
        }
        None => first_active(&list, port_num, files),
    }
}

fn first_active(list: &DeviceList, port_num: Option<u8>, files: &HostFiles) -> Result<ChosenPort> {
    let mut first_error = None;
    for name in list.names() {
        match list
            .find(name, files)
            .ok_or_else(|| no_device(None))
            .and_then(|device| choose_port(device, port_num, files))
        {
            Ok(chosen) => return Ok(chosen),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    let present = list.describe(files);
    Err(match first_error {
        Some(error) if list.names().count() == 1 => error,
        _ => Error::new(ErrorKind::PortNotActive, "no RDMA device has an ACTIVE port")
            .fact("present", present)
            .hint("see that the cable and the peer are up and the network interface is set up: rdma link"),
    })
}

fn choose_port(device: OpenResult, port_num: Option<u8>, files: &HostFiles) -> Result<ChosenPort> {
    let context = device?;
    let ports = context.ports(files)?;
    let described = || ports.iter().map(Port::describe).collect::<Vec<_>>().join("; ");
    let chosen = match port_num {
        Some(number) => ports.iter().find(|port| port.port_num == number).ok_or_else(|| {
            Error::new(ErrorKind::PortNotFound, format!("{} has no port {number}", context.name()))
                .fact("present", described())
                .hint("omit --ib-port to take the first ACTIVE one")
        })?,
        None => ports.iter().find(|port| port.state.is_active()).or(ports.first()).ok_or_else(|| {
            Error::new(ErrorKind::PortNotFound, format!("{} has no port at all", context.name()))
        })?,
    };
    if !chosen.state.is_active() {
        return Err(Error::new(
            ErrorKind::PortNotActive,
            format!("port {} of {} is {}, not ACTIVE", chosen.port_num, context.name(), chosen.state.name()),
        )
        .fact("ports", described())
        .hint(
            "see that the cable and the peer are up and the network interface is set up: rdma link, ip link",
        ));
    }
    let port = chosen.clone();
    Ok(ChosenPort { context, port })
}

type OpenResult = Result<Arc<Context>>;

/// The devices of this host, held by libibverbs until dropped.
struct DeviceList {
    verbs: &'static Verbs,
    raw: *mut *mut sys::ibv_device,
    names: Vec<String>,
}

impl DeviceList {
    fn of(verbs: &'static Verbs) -> Result<Self> {
        let mut count = 0;
        // SAFETY: `count` is ours; the list is freed in Drop.
        let raw = unsafe { (verbs.ibv_get_device_list)(&mut count) };
        if raw.is_null() {
            // Without the kernel's uverbs module there is no list at all (ENOSYS): the same as no device.
            return Ok(Self { verbs, raw, names: Vec::new() });
        }
        let names = (0..count.max(0) as usize)
            // SAFETY: the list has `count` devices, whose names live as long as it does.
            .map(|index| unsafe { CStr::from_ptr((verbs.ibv_get_device_name)(*raw.add(index))) })
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        Ok(Self { verbs, raw, names })
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Opens the device called `name`; `None` where there is none.
    fn find(&self, name: &str, files: &HostFiles) -> Option<OpenResult> {
        let index = self.names.iter().position(|present| present == name)?;
        // SAFETY: the list is alive and has more than `index` devices.
        let raw = unsafe { (self.verbs.ibv_open_device)(*self.raw.add(index)) };
        if raw.is_null() {
            return Some(Err(cannot_open(name, &std::io::Error::last_os_error(), files)));
        }
        Some(Ok(Arc::new(Context { verbs: self.verbs, raw, name: name.to_owned() })))
    }

    fn describe(&self, files: &HostFiles) -> String {
        let describe = |name: &str| {
            let ports =
                self.find(name, files).and_then(Result::ok).and_then(|context| context.ports(files).ok());
            match ports {
                Some(ports) => {
                    format!("{name} ({})", ports.iter().map(Port::describe).collect::<Vec<_>>().join("; "))
                }
                None => format!("{name} (cannot be opened)"),
            }
        };
        self.names().map(describe).collect::<Vec<_>>().join(", ")
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the list came from ibv_get_device_list and is freed once; open devices outlive it.
            unsafe { (self.verbs.ibv_free_device_list)(self.raw) };
        }
    }
}

fn no_device(asked_for: Option<&str>) -> Error {
    let what = match asked_for {
        Some(name) => format!("no RDMA device is called {name}: this machine has none at all"),
        None => "this machine has no RDMA device".to_owned(),
    };
    Error::new(ErrorKind::NoDevice, what)
        .hint("load the adapter's driver and ib_uverbs, or measure TCP on both ends with --transport tcp")
}

fn not_found(name: &str, list: &DeviceList, files: &HostFiles) -> Error {
    Error::new(ErrorKind::DeviceNotFound, format!("no RDMA device is called {name}"))
        .fact("present", list.describe(files))
        .hint("choose one with --ib-dev, or omit it to take the first with an ACTIVE port")
}

/// libibverbs answers ENOENT whether the device's node is missing or closed to this user, so the node itself is asked.
fn cannot_open(name: &str, error: &std::io::Error, files: &HostFiles) -> Error {
    let failure = Error::new(
        ErrorKind::DeviceUnusable,
        format!("cannot open {name}: ibv_open_device: {}", show_io_error(error)),
    );
    let Some(node) = device_node(name, files) else {
        return failure.hint("load ib_uverbs; in a container, see that /sys of the host is visible");
    };
    let opened = std::fs::File::options().read(true).write(true).open(files.path(&node));
    match opened.map_err(|error| (error.kind(), show_io_error(&error))) {
        Ok(_) => failure.fact("device node", format!("{node} can be opened")),
        Err((std::io::ErrorKind::PermissionDenied, words)) => {
            failure.fact("device node", format!("{node}: {words}")).hint(format!(
                "this user needs read and write access to {node}: udev's rules give it, rdma-core brings them"
            ))
        }
        Err((_, words)) => failure
            .fact("device node", format!("{node}: {words}"))
            .hint(format!("in a container, pass {node} in")),
    }
}

/// The character device through which programs reach `name`.
fn device_node(name: &str, files: &HostFiles) -> Option<String> {
    let folder = "/sys/class/infiniband_verbs";
    let is_its = |uverbs: &String| files.text(&format!("{folder}/{uverbs}/ibdev")).as_deref() == Some(name);
    files.names(folder).into_iter().find(is_its).map(|uverbs| format!("/dev/infiniband/{uverbs}"))
}

fn unusable(name: &str, call: &str, errno: i32) -> Error {
    Error::new(ErrorKind::DeviceUnusable, format!("cannot query {name}: {call}: {}", show_errno(errno)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_values_and_bytes_are_inverse() {
        for bytes in crate::plan::PATH_MTUS {
            assert_eq!(mtu_bytes(mtu_value(bytes)), bytes);
        }
        assert_eq!(mtu_bytes(0), 0);
        assert_eq!(mtu_bytes(mtu_value(1500)), 1024);
    }

    #[test]
    fn a_node_that_is_closed_or_missing_is_told_apart() {
        let tree = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let files = HostFiles::below(tree.path());
        let no_entry = std::io::Error::from_raw_os_error(libc::ENOENT);
        let hint = |files: &HostFiles| cannot_open("rxe0", &no_entry, files).hint;
        assert!(hint(&files).unwrap().contains("load ib_uverbs"));
        write("sys/class/infiniband_verbs/uverbs3/ibdev", "rxe0\n");
        assert_eq!(hint(&files).unwrap(), "in a container, pass /dev/infiniband/uverbs3 in");
        write("dev/infiniband/uverbs3", "");
        let error = cannot_open("rxe0", &no_entry, &files);
        assert_eq!(error.facts[0].value, "/dev/infiniband/uverbs3 can be opened");
    }

    #[test]
    fn rates_are_read_from_the_kernels_words() {
        assert_eq!(parse_rate("100 Gb/sec (4X EDR)").unwrap().gbit_per_sec(), 100.0);
        assert_eq!(parse_rate("2.5 Gb/sec (1X SDR)").unwrap().gbit_per_sec(), 2.5);
        assert_eq!(parse_rate("0 Gb/sec"), None);
        assert_eq!(parse_rate("nonsense"), None);
    }
}
