//! What the ports of this machine have carried, by the kernel's and the adapters' own counters: a witness that has no part
//! in the measurement.

use serde::{Deserialize, Serialize};

use crate::host::HostFiles;

/// `port_xmit_data` and `port_rcv_data` count units of four octets (InfiniBand architecture, PortCounters).
const BYTES_OF_A_DATA_UNIT: u64 = 4;

/// What kind of port it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortKind {
    /// Of an RDMA adapter. What goes past the kernel is counted here, and with most adapters nowhere else.
    Rdma,
    /// An interface of the kernel's network.
    Net,
}

/// What one port has carried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortTraffic {
    /// `mlx5_0 port 1` or `eth0`.
    pub port: String,
    /// What kind of port it is.
    pub kind: PortKind,
    /// Bytes that it has sent.
    pub sent_bytes: u64,
    /// Bytes that it has received.
    pub received_bytes: u64,
}

impl PortTraffic {
    /// Every port that counts, since the machine started.
    pub fn read(files: &HostFiles) -> Vec<Self> {
        let mut ports = rdma(files);
        ports.extend(net(files));
        ports
    }
}

/// What the ports of `now` have carried since `before`, those that have carried nothing left out.
pub fn since(before: &[PortTraffic], now: Vec<PortTraffic>) -> Vec<PortTraffic> {
    let moved = |now: PortTraffic| {
        let then = before.iter().find(|then| then.port == now.port)?;
        let (sent, received) = (
            now.sent_bytes.checked_sub(then.sent_bytes)?,
            now.received_bytes.checked_sub(then.received_bytes)?,
        );
        (sent + received > 0).then_some(PortTraffic { sent_bytes: sent, received_bytes: received, ..now })
    };
    now.into_iter().filter_map(moved).collect()
}

fn rdma(files: &HostFiles) -> Vec<PortTraffic> {
    let mut found = Vec::new();
    for device in files.names("/sys/class/infiniband") {
        for port in files.names(&format!("/sys/class/infiniband/{device}/ports")) {
            let counter = |name: &str| {
                let path = format!("/sys/class/infiniband/{device}/ports/{port}/counters/{name}");
                files.number(&path).map(|units| units.saturating_mul(BYTES_OF_A_DATA_UNIT))
            };
            if let (Some(sent), Some(received)) = (counter("port_xmit_data"), counter("port_rcv_data")) {
                found.push(PortTraffic {
                    port: format!("{device} port {port}"),
                    kind: PortKind::Rdma,
                    sent_bytes: sent,
                    received_bytes: received,
                });
            }
        }
    }
    found
}

fn net(files: &HostFiles) -> Vec<PortTraffic> {
    let interface = |name: String| {
        let counter = |what: &str| files.number(&format!("/sys/class/net/{name}/statistics/{what}"));
        let (sent_bytes, received_bytes) = (counter("tx_bytes")?, counter("rx_bytes")?);
        Some(PortTraffic { port: name, kind: PortKind::Net, sent_bytes, received_bytes })
    };
    files.names("/sys/class/net").into_iter().filter_map(interface).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn write(root: &Path, file: &str, value: &str) {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, value).unwrap();
    }

    #[test]
    fn what_has_moved_is_told_in_bytes_and_what_cannot_be_read_is_left_out() {
        let tree = tempfile::tempdir().unwrap();
        let (root, files) = (tree.path(), HostFiles::below(tree.path()));
        let ib = "sys/class/infiniband/mlx5_0/ports/1/counters";
        write(root, &format!("{ib}/port_xmit_data"), "100\n");
        write(root, &format!("{ib}/port_rcv_data"), "7\n");
        write(root, "sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts", "3\n");
        for name in ["eth0", "eth1"] {
            write(root, &format!("sys/class/net/{name}/statistics/tx_bytes"), "5\n");
            write(root, &format!("sys/class/net/{name}/statistics/rx_bytes"), "5\n");
        }
        write(root, "sys/class/net/odd/statistics/tx_bytes", "many\n");
        let before = PortTraffic::read(&files);
        assert_eq!(
            before.iter().map(|it| it.port.as_str()).collect::<Vec<_>>(),
            ["mlx5_0 port 1", "eth0", "eth1"]
        );
        write(root, &format!("{ib}/port_xmit_data"), "350\n");
        write(root, "sys/class/net/eth1/statistics/rx_bytes", "6\n");
        let moved = since(&before, PortTraffic::read(&files));
        let of = |port: &str, kind, sent_bytes, received_bytes| PortTraffic {
            port: port.to_owned(),
            kind,
            sent_bytes,
            received_bytes,
        };
        assert_eq!(moved, [of("mlx5_0 port 1", PortKind::Rdma, 1000, 0), of("eth1", PortKind::Net, 0, 1)]);
    }

    #[test]
    fn a_counter_that_began_anew_tells_nothing() {
        let port = |sent_bytes| PortTraffic {
            port: "eth0".to_owned(),
            kind: PortKind::Net,
            sent_bytes,
            received_bytes: 9,
        };
        assert_eq!(since(&[port(8)], vec![port(3)]), []);
    }
}
