//! The steps of a queue pair from RESET to RTS, and what a refusal of each means: the same errno has another cause at another step.
//!
//! Only INIT to RTR is about the peer: there the kernel looks up the way to a RoCE peer's address, as it would for an IP packet. The
//! other two are between this process, the kernel and the adapter, so that there a time-out is the adapter's.

use super::{Path, Qpn};
use crate::error::{Error, ErrorKind, show_errno};
use crate::gid::{Gid, GidEntry, GidFamily, GidType};

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// RESET to INIT: gets its port and what the peer may do.
    Init,
    /// INIT to RTR: gets the way to the peer.
    Rtr,
    /// RTR to RTS: gets its time-outs and counts of retries.
    Rts,
}

impl Step {
    fn states(self) -> (&'static str, &'static str) {
        match self {
            Self::Init => ("RESET", "INIT"),
            Self::Rtr => ("INIT", "RTR"),
            Self::Rts => ("RTR", "RTS"),
        }
    }

    /// Its refusal with `errno`, for a queue pair of `device`.
    pub(super) fn failed(self, qpn: Qpn, device: &str, errno: i32, path: Option<&Path>) -> Error {
        let (from, to) = self.states();
        // Without a path nothing of the peer is involved yet.
        let kind = if path.is_some() { ErrorKind::QpTransition } else { ErrorKind::Resource };
        let what = format!(
            "QP {qpn} on {device} stayed in {from}, wanted {to}: ibv_modify_qp: {}",
            show_errno(errno)
        );
        let error = Error::new(kind, what).fact_if("path", path.map(Path::describe));
        let of_path = path.filter(|_| self == Self::Rtr).and_then(|path| way_hint(errno, path));
        match of_path.or_else(|| self.own_hint(errno, device)) {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }

    /// What to look at where it is not the way to the peer.
    fn own_hint(self, errno: i32, device: &str) -> Option<String> {
        let hint = match (self, errno) {
            (Self::Init, libc::EINVAL) => {
                "the driver does not take the port, its first partition key or RDMA writes by the peer: see its words in dmesg"
            }
            (Self::Rtr, libc::EINVAL) => {
                "the driver does not take the way to the peer: see with rdma-check gids whether the GID is still there, and try a \
                 smaller path MTU (write-bw -m 1024)"
            }
            (Self::Rts, libc::EINVAL) => {
                "the driver does not take the time-out or the retries: leave --qp-timeout and --retry-count out if they are given, and see its words \
                 in dmesg"
            }
            (_, libc::ETIMEDOUT | libc::EIO) => {
                return Some(format!(
                    "{device} does not answer its driver: look for the driver's words in dmesg"
                ));
            }
            (_, libc::ENODEV | libc::ENXIO) => {
                return Some(format!(
                    "{device} is gone, or is being reset: see rdma link, and the driver's words in dmesg"
                ));
            }
            (_, libc::EAGAIN | libc::EBUSY | libc::EINTR) => {
                "the adapter or its driver was busy, or out of objects: run it again, and see rdma resource for what is in use"
            }
            (_, libc::ENOMEM) => {
                "no memory, locked memory or room on the adapter for it: see rdma-check limits and rdma resource, and use fewer queue pairs"
            }
            (_, libc::EPERM | libc::EACCES) => {
                "a security policy forbids it: SELinux's for partition keys (ausearch -m avc), or the container's; as root on the \
                 host it tells which"
            }
            (_, libc::EOPNOTSUPP | libc::ENOSYS) => {
                "the driver has no reliable connections on this device: choose another device"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// What to look at where the kernel found no way along `path`.
fn way_hint(errno: i32, path: &Path) -> Option<String> {
    // InfiniBand's addresses are not looked up by the kernel.
    let (sgid, dgid) = path.sgid.as_ref().zip(path.dgid).filter(|(sgid, _)| sgid.gid_type != GidType::Ib)?;
    let (ip, on) = (dgid.ip(), sgid.netdev.as_ref().map_or(String::new(), |netdev| format!(" dev {netdev}")));
    // Of RoCE v1 a link-local address has the Ethernet address in it: nobody is asked.
    let is_asked = (sgid.gid_type, dgid.family()) != (GidType::RoceV1, GidFamily::LinkLocal);
    match errno {
        libc::ETIMEDOUT if is_asked => Some(format!(
            "the peer's address does not answer on the way there: see ip neigh show {ip} and ip route get {ip}, which should leave \
             by the interface of this end's GID"
        )),
        libc::ENETUNREACH | libc::EHOSTUNREACH if is_asked => {
            Some(format!("see whether the kernel has a route to the peer's address: ip route get {ip}"))
        }
        libc::ENODEV | libc::ENXIO => Some(gone(sgid, &on)),
        // An entry that has become empty is ENODATA to newer kernels.
        libc::EINVAL | libc::ENODATA => Some(stale(sgid, dgid)),
        _ => None,
    }
}

fn gone(sgid: &GidEntry, on: &str) -> String {
    format!(
        "the network interface of this end's GID {} is gone or down: see ip -br address show{on}, and rdma-check gids",
        sgid.gid.ip()
    )
}

fn stale(sgid: &GidEntry, dgid: Gid) -> String {
    format!(
        "see with rdma-check gids whether GID {} of this end is still there, with ip route get {} whether its interface leads to the \
         peer, and try a smaller path MTU (write-bw -m 1024)",
        sgid.index,
        dgid.ip()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ExitStatus;

    const ERRNOS: &[i32] = &[
        libc::EINVAL,
        libc::ETIMEDOUT,
        libc::ENETUNREACH,
        libc::EHOSTUNREACH,
        libc::ENODEV,
        libc::EAGAIN,
        libc::EBUSY,
        libc::ENOMEM,
        libc::EPERM,
        libc::EACCES,
        libc::EIO,
        libc::EOPNOTSUPP,
        libc::ENODATA,
    ];

    fn entry(gid: &str, gid_type: GidType) -> GidEntry {
        GidEntry {
            index: 3,
            gid: Gid(gid.parse().unwrap()),
            gid_type,
            netdev: Some("eth1".into()),
            prefix_len: None,
        }
    }

    fn path(ours: &str, theirs: &str, gid_type: GidType) -> Path {
        let dgid = Some(entry(theirs, gid_type).gid);
        Path { port_num: 1, sgid: Some(entry(ours, gid_type)), dgid, dlid: 0, path_mtu: 1024 }
    }

    fn roce() -> Path {
        path("::ffff:10.0.0.1", "::ffff:10.0.0.2", GidType::RoceV2)
    }

    fn by_lid() -> Path {
        Path { port_num: 1, sgid: None, dgid: None, dlid: 7, path_mtu: 4096 }
    }

    fn hint(step: Step, errno: i32, path: Option<&Path>) -> String {
        step.failed(Qpn(17), "mlx5_2", errno, path).hint.unwrap_or_default()
    }

    #[test]
    fn a_failed_step_names_both_states_and_the_errno() {
        let error = Step::Rtr.failed(Qpn(17), "mlx5_2", libc::ETIMEDOUT, Some(&by_lid()));
        assert_eq!(
            error.what,
            "QP 0x000011 on mlx5_2 stayed in INIT, wanted RTR: ibv_modify_qp: ETIMEDOUT (110), Connection timed out"
        );
        assert_eq!(error.facts[0].value, "to LID 7, path MTU 4096");
        assert_eq!(error.exit_status(), ExitStatus::Peer);
        let own = Step::Init.failed(Qpn(17), "mlx5_2", libc::EINVAL, None);
        assert_eq!(own.exit_status(), ExitStatus::Machine);
    }

    #[test]
    fn the_network_is_named_where_the_kernel_looks_for_a_way_and_nowhere_else() {
        let of_network =
            |hint: &str| hint.contains("ip route") || hint.contains("ip neigh") || hint.contains("ip -br");
        let of_way = [
            libc::ETIMEDOUT,
            libc::ENETUNREACH,
            libc::EHOSTUNREACH,
            libc::ENODEV,
            libc::EINVAL,
            libc::ENODATA,
        ];
        for &errno in ERRNOS {
            let at = |step, path: Option<&Path>| of_network(&hint(step, errno, path));
            assert_eq!(at(Step::Rtr, Some(&roce())), of_way.contains(&errno), "{errno}");
            let infiniband = path("fe80::1", "fe80::2", GidType::Ib);
            assert!(!at(Step::Init, None) && !at(Step::Rts, Some(&roce())), "{errno}");
            assert!(!at(Step::Rtr, Some(&by_lid())) && !at(Step::Rtr, Some(&infiniband)), "{errno}");
        }
    }

    #[test]
    fn each_errno_has_the_hint_of_its_step() {
        let roce = roce();
        let table = [
            (Step::Init, libc::EINVAL, None, "the port, its first partition key"),
            (Step::Rtr, libc::EINVAL, Some(&roce), "whether GID 3 of this end is still there"),
            (Step::Rts, libc::EINVAL, Some(&roce), "leave --qp-timeout and --retry-count out"),
            (Step::Init, libc::ETIMEDOUT, None, "mlx5_2 does not answer its driver"),
            (Step::Rtr, libc::ETIMEDOUT, Some(&roce), "ip neigh show 10.0.0.2"),
            (Step::Rts, libc::ETIMEDOUT, Some(&roce), "mlx5_2 does not answer its driver"),
            (Step::Rtr, libc::ENETUNREACH, Some(&roce), "ip route get 10.0.0.2"),
            (Step::Rtr, libc::EHOSTUNREACH, Some(&roce), "ip route get 10.0.0.2"),
            (Step::Init, libc::ENODEV, None, "mlx5_2 is gone, or is being reset"),
            (
                Step::Rtr,
                libc::ENODEV,
                Some(&roce),
                "of this end's GID 10.0.0.1 is gone or down: see ip -br address show dev eth1",
            ),
            (Step::Rts, libc::ENODEV, Some(&roce), "mlx5_2 is gone, or is being reset"),
            (Step::Init, libc::EAGAIN, None, "was busy, or out of objects: run it again"),
            (Step::Rtr, libc::EAGAIN, Some(&roce), "was busy, or out of objects: run it again"),
            (Step::Rts, libc::EAGAIN, Some(&roce), "was busy, or out of objects: run it again"),
            (Step::Rtr, libc::ENOMEM, Some(&roce), "rdma-check limits"),
            (Step::Rts, libc::EPERM, Some(&roce), "a security policy forbids it"),
            (Step::Init, libc::EACCES, None, "SELinux's for partition keys"),
            (Step::Rts, libc::EIO, Some(&roce), "does not answer its driver"),
            (Step::Init, libc::EOPNOTSUPP, None, "choose another device"),
        ];
        for (step, errno, path, words) in table {
            let hint = hint(step, errno, path);
            assert!(hint.contains(words), "{step:?} {errno}: {hint}");
        }
    }

    #[test]
    fn what_no_step_is_known_to_answer_has_no_hint() {
        // No route is looked for there, so that these would be a driver's own.
        for step in [Step::Init, Step::Rts] {
            assert_eq!(hint(step, libc::ENETUNREACH, None), "");
        }
        assert_eq!(hint(Step::Rtr, libc::EHOSTUNREACH, Some(&by_lid())), "");
        let link_local =
            |gid_type| hint(Step::Rtr, libc::ETIMEDOUT, Some(&path("fe80::1", "fe80::2", gid_type)));
        assert!(link_local(GidType::RoceV1).contains("does not answer its driver"));
        assert!(link_local(GidType::RoceV2).contains("ip neigh show fe80::2"));
    }
}
