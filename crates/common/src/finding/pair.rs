//! Two nodes side by side: whether a port of the one can talk to a port of the other, and in what they differ.

use super::device::{is_usable, name_of};
use super::{Code, Finding};
use crate::gid::{self, GidFamily, LinkLayer, LinkOffer};
use crate::node::{Node, RdmaDevice, RdmaPort, roce_mtu};

/// One end: a node, the name by which it is spoken of, and the device that is asked for.
#[derive(Clone, Copy)]
pub struct End<'a> {
    /// What was seen of it.
    pub node: &'a Node,
    /// Its host's name.
    pub name: &'a str,
    /// The device to compare by; `None`: the first that can be used.
    pub device: Option<&'a str>,
}

impl<'a> End<'a> {
    fn port(&self) -> Option<(&'a RdmaDevice, &'a RdmaPort)> {
        let is_wanted = |device: &RdmaDevice| self.device.is_none_or(|name| name == device.name);
        self.node.ports().find(|(device, port)| is_wanted(device) && is_usable(self.node, device, port))
    }

    fn describe(&self, (device, port): (&RdmaDevice, &RdmaPort)) -> String {
        format!("{} {}", self.name, name_of(device, port))
    }

    /// By libibverbs, where it was asked; else by the rule.
    fn active_mtu(&self, port: &RdmaPort) -> Option<u32> {
        let by_rule = || {
            let netdev =
                self.node.netdev_of(port).filter(|_| port.link_layer == Some(LinkLayer::Ethernet))?;
            netdev.mtu_bytes.map(roce_mtu)
        };
        port.active_mtu_bytes.or_else(by_rule)
    }
}

/// What is to be said of a run between `ours` and `theirs`.
pub fn compare(ours: End, theirs: End) -> Vec<Finding> {
    let (Some(our_port), Some(their_port)) = (ours.port(), theirs.port()) else {
        let sick = if ours.port().is_none() { ours.name } else { theirs.name };
        return vec![Finding::new(Code::PeerUnfit, format!("no port of {sick} is known to be usable"))];
    };
    let mut found = addressing(our_port.1, their_port.1);
    found.extend(mtus(ours, our_port.1, theirs, their_port.1));
    found.extend(rates(our_port.1, their_port.1));
    found.extend(kernels(ours, theirs));
    let on = [ours.describe(our_port), theirs.describe(their_port)];
    found.into_iter().map(|finding| on.iter().fold(finding, |finding, on| finding.on(on))).collect()
}

fn offer(port: &RdmaPort) -> LinkOffer {
    LinkOffer {
        link_layer: port.link_layer.unwrap_or(LinkLayer::Unspecified),
        lid: 0,
        active_mtu_bytes: 0,
        gids: port.gids.clone(),
        gid_forced: false,
        grh_required: false,
    }
}

/// By the choice that a run would make.
fn addressing(ours: &RdmaPort, theirs: &RdmaPort) -> Vec<Finding> {
    let (our_offer, their_offer) = (offer(ours), offer(theirs));
    match gid::choose(&our_offer, &their_offer) {
        Err(error) => {
            let facts = error.facts.iter().map(|fact| format!("; {}: {}", fact.label, fact.value));
            vec![Finding::new(Code::PeerGids, format!("{}{}", error.what, facts.collect::<String>()))]
        }
        Ok(addressing) => {
            let pair = addressing.client.as_ref().zip(addressing.server.as_ref());
            let indexes = pair.map_or(String::new(), |(ours, theirs)| {
                format!("GID {} here and GID {} there: ", ours.index, theirs.index)
            });
            let seen = format!("{indexes}{}", addressing.reason);
            let is_routed = pair.is_some_and(|(ours, theirs)| {
                ours.gid.family() != GidFamily::LinkLocal && !ours.shares_subnet(theirs)
            });
            let code = if is_routed { Code::PeerRouted } else { Code::PeerFits };
            vec![Finding::new(code, seen)]
        }
    }
}

fn mtus(ours: End, our_port: &RdmaPort, theirs: End, their_port: &RdmaPort) -> Option<Finding> {
    let (here, there) = (ours.active_mtu(our_port)?, theirs.active_mtu(their_port)?);
    (here != there).then(|| {
        let seen = format!("the active MTU is {here} on {} and {there} on {}", ours.name, theirs.name);
        Finding::new(Code::PeerMtu, seen)
    })
}

fn rates(ours: &RdmaPort, theirs: &RdmaPort) -> Option<Finding> {
    let (here, there) = (ours.rate.as_ref()?, theirs.rate.as_ref()?);
    (ours.bandwidth()?.gbit_per_sec() != theirs.bandwidth()?.gbit_per_sec())
        .then(|| Finding::new(Code::PeerRate, format!("the port's rate is {here} here and {there} there")))
}

fn kernels(ours: End, theirs: End) -> Option<Finding> {
    let (here, there) = (ours.node.system.kernel.as_ref()?, theirs.node.system.kernel.as_ref()?);
    (here != there).then(|| Finding::new(Code::PeerKernel, format!("Linux {here} here and {there} there")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Severity, ranked};
    use crate::host::HostFiles;
    use crate::node::fixture::{self, Tree};

    fn node_of(tree: &Tree) -> Node {
        let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
        tree.write_to(folder.path()).unwrap();
        Node::read(&HostFiles::below(folder.path()))
    }

    fn found(ours: &Tree, theirs: &Tree) -> Vec<(Severity, &'static str)> {
        let (ours, theirs) = (node_of(ours), node_of(theirs));
        let end = |node, name| End { node, name, device: None };
        let found = ranked(compare(end(&ours, "a"), end(&theirs, "b")));
        found.iter().map(|finding| (finding.severity, finding.code.name())).collect()
    }

    const PORT: &str = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/infiniband/mlx5_0/ports/1";
    const NETDEV: &str = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/net/eth2";

    #[test]
    fn ends_alike_fit() {
        assert_eq!(found(&fixture::roce(), &fixture::roce()), [(Severity::Ok, "peer-fits")]);
        assert_eq!(found(&fixture::infiniband(), &fixture::infiniband()), [(Severity::Ok, "peer-fits")]);
    }

    #[test]
    fn what_differs_is_named() {
        let small = fixture::roce().with(&format!("{NETDEV}/mtu"), "1500");
        assert_eq!(found(&fixture::roce(), &small)[0], (Severity::Warning, "peer-mtu-differs"));
        let slow = fixture::roce().with(&format!("{PORT}/rate"), "200 Gb/sec (4X HDR)");
        assert_eq!(found(&fixture::roce(), &slow)[0], (Severity::Note, "peer-rate-differs"));
        let old = fixture::roce().with("/proc/sys/kernel/osrelease", "5.4.0");
        assert_eq!(found(&fixture::roce(), &old)[0], (Severity::Note, "peer-kernel-differs"));
    }

    #[test]
    fn ends_that_cannot_talk_are_unfit_for_each_other() {
        assert_eq!(
            found(&fixture::roce(), &fixture::infiniband())[0],
            (Severity::Unfit, "peer-no-common-gid")
        );
        assert_eq!(found(&fixture::roce(), &fixture::bare()), [(Severity::Unfit, "peer-without-port")]);
        assert_eq!(found(&fixture::link_down(), &fixture::roce()), [(Severity::Unfit, "peer-without-port")]);
    }

    #[test]
    fn ends_in_different_subnets_need_a_route() {
        let mut elsewhere = fixture::roce();
        elsewhere.file(format!("{PORT}/gids/3"), "0000:0000:0000:0000:0000:ffff:0a4d:0b01");
        elsewhere.routes(&[("eth2", "000B4D0A", "00FFFFFF")]);
        let elsewhere = ["gids/4", "gids/5", "gids/6", "gids/7"]
            .iter()
            .fold(elsewhere, |tree, entry| tree.without(&format!("{PORT}/{entry}")));
        let here = ["gids/4", "gids/5", "gids/6", "gids/7"]
            .iter()
            .fold(fixture::roce(), |tree, entry| tree.without(&format!("{PORT}/{entry}")));
        assert_eq!(found(&here, &elsewhere), [(Severity::Note, "peer-in-another-subnet")]);
    }
}
