//! Which device and port to use: the one asked for, or the first that can carry traffic.

use std::sync::Arc;

use super::library::Library;
use super::list::{DeviceList, OpenResult};
use super::{Context, Port};
use crate::error::{Error, ErrorKind, Result};
use crate::host::HostFiles;

/// A device and the port to use on it.
pub struct ChosenPort {
    /// The open device.
    pub context: Arc<Context>,
    /// The port.
    pub port: Port,
}

/// Which device, port and GID a user asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceWish<'a> {
    /// Whose devices.
    pub library: Library,
    /// The device's name; `None`: the first with an ACTIVE port.
    pub name: Option<&'a str>,
    /// The port's number; `None`: the first that is ACTIVE.
    pub port_num: Option<u8>,
    /// The GID's index; `None`: chosen by what it is.
    pub gid_index: Option<u32>,
}

/// Chooses the device and its port.
///
/// # Errors
/// The library, device and port kinds of [`ErrorKind`]; each lists what there is instead.
pub fn choose(wish: &DeviceWish, files: &HostFiles) -> Result<ChosenPort> {
    let DeviceWish { name, port_num, .. } = *wish;
    let list = DeviceList::of(wish.library.load()?)?;
    if list.names().next().is_none() {
        return Err(no_device(name, wish.library, files));
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
            .ok_or_else(|| no_device(None, Library::default(), files))
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

/// The library lists none. Where the kernel has some all the same, the way from the kernel to the library is broken.
fn no_device(asked_for: Option<&str>, library: Library, files: &HostFiles) -> Error {
    let kernels = if library == Library::Ibverbs { files.names("/sys/class/infiniband") } else { Vec::new() };
    if !kernels.is_empty() {
        return unseen_by_the_library(&kernels, files);
    }
    let what = match asked_for {
        Some(name) => format!("no RDMA device is called {name}: this machine has none at all"),
        None => "this machine has no RDMA device".to_owned(),
    };
    Error::new(ErrorKind::NoDevice, what)
        .hint("load the adapter's driver and ib_uverbs, or measure TCP on both ends with --transport tcp")
}

fn unseen_by_the_library(kernels: &[String], files: &HostFiles) -> Error {
    let nodes: Vec<String> =
        files.names("/dev/infiniband").into_iter().filter(|name| name.starts_with("uverbs")).collect();
    let (shown, remedy) = if nodes.is_empty() {
        (
            "none".to_owned(),
            "load ib_uverbs on the host; in a container, pass the device nodes in (--device=/dev/infiniband)",
        )
    } else {
        (
            nodes.join(", "),
            "install the adapter's provider (ibverbs-providers) from where libibverbs is and not older than the kernel's \
             driver; in a container, in its image",
        )
    };
    Error::new(
        ErrorKind::NoDevice,
        format!("the RDMA library lists no device, and the kernel has {}", kernels.join(", ")),
    )
    .fact("nodes in /dev/infiniband", shown)
    .hint(format!("{remedy}; or measure TCP on both ends with --transport tcp"))
}

fn not_found(name: &str, list: &DeviceList, files: &HostFiles) -> Error {
    Error::new(ErrorKind::DeviceNotFound, format!("no RDMA device is called {name}"))
        .fact("present", list.describe(files))
        .hint("choose one with --ib-dev, or omit it to take the first with an ACTIVE port")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_the_kernel_has_and_the_library_does_not_list_are_named_with_what_is_missing() {
        let tree = tempfile::tempdir().unwrap();
        let files = HostFiles::below(tree.path());
        let error = |library| no_device(Some("mlx5_0"), library, &files);
        assert_eq!(
            error(Library::Ibverbs).what,
            "no RDMA device is called mlx5_0: this machine has none at all"
        );
        std::fs::create_dir_all(tree.path().join("sys/class/infiniband/mlx5_0")).unwrap();
        let without_node = error(Library::Ibverbs);
        assert_eq!(without_node.what, "the RDMA library lists no device, and the kernel has mlx5_0");
        assert!(without_node.hint.unwrap().contains("pass the device nodes in"));
        std::fs::create_dir_all(tree.path().join("dev/infiniband")).unwrap();
        std::fs::write(tree.path().join("dev/infiniband/uverbs0"), "").unwrap();
        let without_provider = error(Library::Ibverbs);
        assert_eq!((without_provider.kind, without_provider.exit_status() as i32), (ErrorKind::NoDevice, 3));
        assert_eq!(without_provider.facts[0].value, "uverbs0");
        assert!(without_provider.hint.unwrap().contains("(ibverbs-providers) from where libibverbs is"));
        assert!(
            error(Library::Softnic).what.contains("none at all"),
            "the kernel's are none of that library's"
        );
    }
}
