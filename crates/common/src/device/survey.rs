//! Every device that the library lists, opened and asked: what a look at the whole node needs.

use std::sync::Arc;

use rdma_sys as sys;
use serde::{Deserialize, Serialize};

use super::list::DeviceList;
use super::{Context, Library, Port};
use crate::error::Result;
use crate::gid::GidEntry;
use crate::host::HostFiles;

/// What a device can hold at once, by its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLimits {
    /// Queue pairs.
    pub max_qp: u32,
    /// Outstanding work requests of a queue.
    pub max_qp_wr: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// The largest memory region, in bytes.
    pub max_mr_bytes: u64,
}

impl From<&sys::ibv_device_attr> for DeviceLimits {
    fn from(attr: &sys::ibv_device_attr) -> Self {
        let count = |value: i32| u32::try_from(value).unwrap_or(0);
        Self {
            max_qp: count(attr.max_qp),
            max_qp_wr: count(attr.max_qp_wr),
            max_cq: count(attr.max_cq),
            max_cqe: count(attr.max_cqe),
            max_mr: count(attr.max_mr),
            max_mr_bytes: attr.max_mr_size,
        }
    }
}

/// What one device said.
pub struct Surveyed {
    /// Its name.
    pub name: String,
    /// Its answer, or why there is none.
    pub answer: Result<Answer>,
}

/// What an open device tells.
pub struct Answer {
    /// Its limits.
    pub limits: DeviceLimits,
    /// The name of the emulation, where it is one.
    pub software: Option<String>,
    /// Its ports, each with the used entries of its GID table.
    pub ports: Vec<(Port, Vec<GidEntry>)>,
}

/// Asks every device of `library`.
///
/// # Errors
/// [`crate::error::ErrorKind::LibraryMissing`].
pub fn survey(library: Library, files: &HostFiles) -> Result<Vec<Surveyed>> {
    let list = DeviceList::of(library.load()?)?;
    let ask = |name: &str| {
        let answer = list.find(name, files)?.and_then(|context| answer(&context, files));
        Some(Surveyed { name: name.to_owned(), answer })
    };
    Ok(list.names().filter_map(ask).collect())
}

fn answer(context: &Arc<Context>, files: &HostFiles) -> Result<Answer> {
    let limits = DeviceLimits::from(&context.limits()?);
    let ports = context.ports(files)?.into_iter();
    Ok(Answer {
        limits,
        software: context.software(files),
        ports: ports.map(|port| (port.clone(), context.gids(&port, files))).collect(),
    })
}
