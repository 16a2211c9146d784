//! How much inline data a queue pair gets. No verb tells a device's limit, so it is found by trying.

use rdma_sys as sys;

use super::{Calls, Created};
use crate::cq::CompletionQueue;
use crate::error::{Error, ErrorKind, Result};
use crate::mr::{ProtectionDomain, resource_error};

/// A queue pair with the inline data of `cap`, and how much it has: less where the device takes less and it is not
/// `fixed`.
///
/// # Errors
/// [`ErrorKind::DeviceLimit`] where it is fixed and too much; [`ErrorKind::Resource`] where it is not the inline data
/// that the device refuses.
pub(super) fn create(
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    cap: sys::ibv_qp_cap,
    fixed: bool,
    calls: Calls,
) -> Result<(Created, u32)> {
    let asked = cap.max_inline_data;
    if let Some(created) = Created::new(pd, cq, cap, calls) {
        return Ok((created, asked));
    }
    let refused = resource_error(
        &format!("a queue pair for {} outstanding writes", cap.max_send_wr),
        pd.context(),
        "ibv_create_qp",
    );
    let with = |inline: u32| Created::new(pd, cq, sys::ibv_qp_cap { max_inline_data: inline, ..cap }, calls);
    let takes = |inline: u32| with(inline).map(|created| created.destroy(pd)).is_some();
    let Some(most) = largest(asked, takes) else { return Err(refused) };
    if fixed {
        return Err(too_much(pd, cap, most));
    }
    with(most).map(|created| (created, most)).ok_or(refused)
}

fn too_much(pd: &ProtectionDomain, cap: sys::ibv_qp_cap, most: u32) -> Error {
    let (asked, device) = (cap.max_inline_data, pd.context().name());
    Error::new(
        ErrorKind::DeviceLimit,
        format!("--inline-size asks for {asked} bytes of inline data and {device} allows {most}"),
    )
    .fact("with", format!("{} outstanding writes", cap.max_send_wr))
    .hint(format!("use --inline-size {most} or less"))
}

/// The largest number below `refused` that `takes`; `None` where it is not the number that is refused.
fn largest(refused: u32, mut takes: impl FnMut(u32) -> bool) -> Option<u32> {
    if refused == 0 || !takes(0) {
        return None;
    }
    let (mut good, mut bad) = (0, refused);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if takes(middle) { good = middle } else { bad = middle }
    }
    Some(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_devices_limit_is_found_by_trying() {
        for limit in [0, 1, 63, 64, 412, 511] {
            assert_eq!(largest(512, |inline| inline <= limit), Some(limit));
        }
    }

    #[test]
    fn what_is_refused_without_inline_data_too_is_not_about_it() {
        assert_eq!(largest(220, |_| false), None);
        assert_eq!(largest(0, |_| true), None);
    }
}
