//! The devices of this host, and opening one of them.

use std::ffi::CStr;
use std::sync::Arc;

use rdma_sys as sys;
use rdma_sys::Verbs;

use super::{Context, Port};
use crate::error::{Error, ErrorKind, Result, show_io_error};
use crate::host::HostFiles;

pub(super) type OpenResult = Result<Arc<Context>>;

/// The devices of this host, held by libibverbs until dropped.
pub(super) struct DeviceList {
    verbs: &'static Verbs,
    raw: *mut *mut sys::ibv_device,
    names: Vec<String>,
}

impl DeviceList {
    pub(super) fn of(verbs: &'static Verbs) -> Result<Self> {
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

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Opens the device called `name`; `None` where there is none.
    pub(super) fn find(&self, name: &str, files: &HostFiles) -> Option<OpenResult> {
        let index = self.names.iter().position(|present| present == name)?;
        // SAFETY: the list is alive and has more than `index` devices.
        let raw = unsafe { (self.verbs.ibv_open_device)(*self.raw.add(index)) };
        if raw.is_null() {
            return Some(Err(cannot_open(name, &std::io::Error::last_os_error(), files)));
        }
        Some(Ok(Arc::new(Context { verbs: self.verbs, raw, name: name.to_owned() })))
    }

    pub(super) fn describe(&self, files: &HostFiles) -> String {
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
pub(crate) fn device_node(name: &str, files: &HostFiles) -> Option<String> {
    let folder = "/sys/class/infiniband_verbs";
    let is_its = |uverbs: &String| files.text(&format!("{folder}/{uverbs}/ibdev")).as_deref() == Some(name);
    files.names(folder).into_iter().find(is_its).map(|uverbs| format!("/dev/infiniband/{uverbs}"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
