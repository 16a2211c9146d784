//! Which GIDs the two ends use, and why.
//!
//! Both ends exchange what they could use (a [`LinkOffer`]), and both apply [`choose`] to the same two offers, so
//! they agree without a further word. Entries are judged by what they are, never by where they stand in the
//! table: hosts fill their tables in different orders.

use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::plan::Role;

/// A 128-bit global identifier; on RoCE it is an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Gid(pub Ipv6Addr);

/// What kind of address a GID is. Two ends must use the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GidFamily {
    /// `fe80::/10`: reaches only the same layer-2 segment.
    LinkLocal,
    /// Any other IPv6 address; on InfiniBand, a routable subnet prefix.
    Ipv6,
    /// `::ffff:a.b.c.d`.
    Ipv4,
}

/// How a packet with this GID looks on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GidType {
    /// An InfiniBand GID.
    Ib,
    /// RoCE v1: Ethernet only, not routable.
    RoceV1,
    /// RoCE v2: UDP port 4791.
    RoceV2,
}

/// What a port's frames are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkLayer {
    /// InfiniBand: addressed by LID.
    InfiniBand,
    /// Ethernet: RoCE (or iWARP), addressed by GID.
    Ethernet,
    /// The device does not say.
    Unspecified,
}

/// One entry of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GidEntry {
    /// Its place in the table.
    pub index: u32,
    /// The address.
    pub gid: Gid,
    /// The packet format.
    #[serde(rename = "type")]
    pub gid_type: GidType,
    /// The network interface that the address belongs to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub netdev: Option<String>,
    /// The length of the address's subnet prefix on that interface.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prefix_len: Option<u8>,
}

/// What one end could use for a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkOffer {
    /// The port's link layer.
    pub link_layer: LinkLayer,
    /// The port's local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The port's active MTU in bytes.
    pub active_mtu_bytes: u32,
    /// The entries that may be used: all, or the one that `--gid-index` names.
    pub gids: Vec<GidEntry>,
    /// Whether the user named the entry.
    pub gid_forced: bool,
    /// Whether the port needs a global route header always.
    pub grh_required: bool,
}

/// How the two ends address each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addressing {
    /// The client's entry; `None`: by LID alone.
    pub client: Option<GidEntry>,
    /// The server's entry; `None`: by LID alone.
    pub server: Option<GidEntry>,
    /// Why these.
    pub reason: String,
    /// Entries of another address family that would do as well, where there are some.
    pub other: Option<OtherPair>,
}

/// Entries that two ends could use instead of those that they use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherPair {
    /// The client's.
    pub client: GidEntry,
    /// The server's.
    pub server: GidEntry,
}

impl OtherPair {
    /// How a user comes to use it: the server takes what fits the client's.
    pub fn how(&self) -> String {
        format!(
            "-x {} on the client makes it {} ({} to {})",
            self.client.index,
            self.client.gid.family().name(),
            self.client.gid.ip(),
            self.server.gid.ip()
        )
    }
}

impl Addressing {
    /// The entry of `role`.
    pub fn of(&self, role: Role) -> Option<&GidEntry> {
        match role {
            Role::Client => self.client.as_ref(),
            Role::Server => self.server.as_ref(),
        }
    }
}

impl Gid {
    /// What kind of address it is.
    pub fn family(self) -> GidFamily {
        match self.ip() {
            IpAddr::V4(_) => GidFamily::Ipv4,
            IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfe80 => GidFamily::LinkLocal,
            IpAddr::V6(_) => GidFamily::Ipv6,
        }
    }

    /// The IP address that it stands for.
    pub fn ip(self) -> IpAddr {
        self.0.to_ipv4_mapped().map_or(IpAddr::V6(self.0), IpAddr::V4)
    }

    /// Whether an entry with this GID is unused.
    pub fn is_empty(self) -> bool {
        self.0.is_unspecified()
    }

    fn bits(self) -> u128 {
        u128::from(self.0)
    }
}

impl std::fmt::Display for Gid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl GidFamily {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::LinkLocal => "link-local IPv6",
            Self::Ipv6 => "IPv6",
            Self::Ipv4 => "IPv4-mapped",
        }
    }
}

impl GidType {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ib => "InfiniBand",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
        }
    }
}

impl LinkLayer {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "Ethernet",
            Self::Unspecified => "unspecified link layer",
        }
    }
}

impl GidEntry {
    /// The entry in one line: `1 ::ffff:10.0.0.1 (RoCE v2, eth2)`.
    pub fn describe(&self) -> String {
        let netdev = self.netdev.as_ref().map_or(String::new(), |netdev| format!(", {netdev}"));
        format!("{} {} ({}{netdev})", self.index, self.gid, self.gid_type.name())
    }

    /// Whether both addresses lie in one subnet, as far as either end knows its prefix.
    pub(crate) fn shares_subnet(&self, other: &Self) -> bool {
        let Some(prefix) = self.prefix_len.or(other.prefix_len) else { return false };
        // The prefix of an IPv4 address counts from the 96 bits that map it into IPv6.
        let bits = u32::from(prefix) + if self.gid.family() == GidFamily::Ipv4 { 96 } else { 0 };
        let mask = if bits == 0 { 0 } else { u128::MAX << (128 - bits.min(128)) };
        self.gid.bits() & mask == other.gid.bits() & mask
    }

    fn fits(&self, other: &Self) -> bool {
        self.gid.family() == other.gid.family() && self.gid_type == other.gid_type
    }
}

/// How good a pair is; compared field by field, the first that differs decides.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// RoCE v2 crosses routers and is what switches are configured for.
    gid_type: GidType,
    /// A link-local GID reaches one segment only.
    routable: bool,
    /// No route has to exist.
    same_subnet: bool,
    /// IPv4 before IPv6: most fabrics are numbered in it.
    family: GidFamily,
    /// Of equals the one that stands first.
    earlier: std::cmp::Reverse<(u32, u32)>,
}

impl Rank {
    fn of(client: &GidEntry, server: &GidEntry) -> Self {
        Self {
            gid_type: client.gid_type,
            routable: client.gid.family() != GidFamily::LinkLocal,
            same_subnet: client.shares_subnet(server),
            family: client.gid.family(),
            earlier: std::cmp::Reverse((client.index, server.index)),
        }
    }

    fn reason(&self, client: &GidEntry) -> String {
        let subnet = match (self.routable, self.same_subnet) {
            (true, true) => "the ends share its subnet",
            (true, false) => "no pair of entries shares a subnet, so the fabric must route between these",
            (false, _) => "the ends have no routable address family in common",
        };
        format!("{}, {}: {subnet}", client.gid_type.name(), client.gid.family().name())
    }
}

/// The addressing of a connection, the same on both ends.
///
/// # Errors
/// [`ErrorKind::GidFamily`] where the link layers differ or no pair of entries fits together.
pub fn choose(client: &LinkOffer, server: &LinkOffer) -> Result<Addressing> {
    if client.link_layer != server.link_layer {
        return Err(Error::new(
            ErrorKind::GidFamily,
            format!(
                "the client's port is {} and the server's is {}: they are not on one fabric",
                client.link_layer.name(),
                server.link_layer.name()
            ),
        )
        .hint("choose ports of the same kind with --ib-dev and --ib-port on both ends"));
    }
    let grh_wanted = client.gid_forced || server.gid_forced || client.grh_required || server.grh_required;
    if client.link_layer == LinkLayer::InfiniBand && !grh_wanted {
        return Ok(Addressing {
            client: None,
            server: None,
            reason: "InfiniBand in one subnet: addressed by LID".to_owned(),
            other: None,
        });
    }
    best_pair(client, server).ok_or_else(|| no_pair(client, server))
}

fn best_pair(client: &LinkOffer, server: &LinkOffer) -> Option<Addressing> {
    let (ours, theirs) = best_of(client, server, |_, _| true)?;
    let kind = kind_of(ours);
    let reason = match (client.gid_forced, server.gid_forced) {
        (true, true) => "--gid-index on both ends".to_owned(),
        (true, false) => {
            format!("--gid-index on the client, and on the server the entry that fits it best ({kind})")
        }
        (false, true) => {
            format!("--gid-index on the server, and on the client the entry that fits it best ({kind})")
        }
        (false, false) => Rank::of(ours, theirs).reason(ours),
    };
    let other = other_pair(client, server, (ours, theirs));
    Some(Addressing { client: Some(ours.clone()), server: Some(theirs.clone()), reason, other })
}

fn best_of<'a>(
    client: &'a LinkOffer,
    server: &'a LinkOffer,
    wanted: impl Fn(&GidEntry, &GidEntry) -> bool,
) -> Option<(&'a GidEntry, &'a GidEntry)> {
    let pairs = client.gids.iter().flat_map(|ours| server.gids.iter().map(move |theirs| (ours, theirs)));
    pairs
        .filter(|(ours, theirs)| ours.fits(theirs) && wanted(ours, theirs))
        .max_by_key(|(ours, theirs)| Rank::of(ours, theirs))
}

/// The best pair of another family than the one that is used. What drops the one may let the other pass.
fn other_pair(client: &LinkOffer, server: &LinkOffer, used: (&GidEntry, &GidEntry)) -> Option<OtherPair> {
    let (ours, theirs) = best_of(client, server, |ours, _| {
        let family = ours.gid.family();
        // Link-local addresses reach one segment, which ends in one subnet are on.
        let may_reach = family != GidFamily::LinkLocal || used.0.shares_subnet(used.1);
        ours.gid_type == used.0.gid_type && family != used.0.gid.family() && may_reach
    })?;
    Some(OtherPair { client: ours.clone(), server: theirs.clone() })
}

fn no_pair(client: &LinkOffer, server: &LinkOffer) -> Error {
    let what = match (client.gids.as_slice(), server.gids.as_slice()) {
        ([ours], [theirs]) => format!(
            "the client's GID is {} and the server's is {}: they cannot talk to each other",
            kind_of(ours),
            kind_of(theirs)
        ),
        _ => "no GID of the client and none of the server are of the same kind".to_owned(),
    };
    Error::new(ErrorKind::GidFamily, what)
        .fact("client", describe_all(&client.gids))
        .fact("server", describe_all(&server.gids))
        .hint("omit --gid-index on both ends, or choose entries of one address family and one RoCE version")
}

fn kind_of(entry: &GidEntry) -> String {
    format!("{} {}", entry.gid_type.name(), entry.gid.family().name())
}

/// A table of entries in one line.
pub fn describe_all(entries: &[GidEntry]) -> String {
    if entries.is_empty() {
        return "no entry".to_owned();
    }
    entries.iter().map(GidEntry::describe).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u32, gid: &str, gid_type: GidType, prefix_len: Option<u8>) -> GidEntry {
        GidEntry { index, gid: Gid(gid.parse().unwrap()), gid_type, netdev: Some("eth1".into()), prefix_len }
    }

    fn offer(gids: Vec<GidEntry>) -> LinkOffer {
        LinkOffer {
            link_layer: LinkLayer::Ethernet,
            lid: 0,
            active_mtu_bytes: 1024,
            gids,
            gid_forced: false,
            grh_required: false,
        }
    }

    /// The order of a Mellanox RoCE port: v1 and v2 of each address in turn.
    fn table(v4: &str, host: u16, prefix: Option<u8>) -> Vec<GidEntry> {
        let ll = format!("fe80::{host}");
        vec![
            entry(0, &ll, GidType::RoceV1, Some(64)),
            entry(1, &ll, GidType::RoceV2, Some(64)),
            entry(2, &format!("::ffff:{v4}"), GidType::RoceV1, prefix),
            entry(3, &format!("::ffff:{v4}"), GidType::RoceV2, prefix),
            entry(4, &format!("fd77::{host}"), GidType::RoceV2, Some(64)),
        ]
    }

    fn indexes(addressing: &Addressing) -> (u32, u32) {
        (addressing.client.as_ref().unwrap().index, addressing.server.as_ref().unwrap().index)
    }

    #[test]
    fn takes_roce_v2_over_ipv4_in_the_shared_subnet() {
        let chosen =
            choose(&offer(table("10.0.0.1", 1, Some(24))), &offer(table("10.0.0.2", 2, Some(24)))).unwrap();
        assert_eq!(indexes(&chosen), (3, 3));
        assert_eq!(chosen.reason, "RoCE v2, IPv4-mapped: the ends share its subnet");
    }

    #[test]
    fn entries_of_another_family_that_would_do_are_kept() {
        let end = |v4: &str, host| offer(table(v4, host, Some(24)));
        let chosen = choose(&end("10.0.0.1", 1), &end("10.0.0.2", 2)).unwrap();
        assert_eq!(chosen.other.unwrap().how(), "-x 4 on the client makes it IPv6 (fd77::1 to fd77::2)");
        // With link-local addresses only, where both are on one segment.
        let two = |v4: &str, host| offer(table(v4, host, Some(24))[..4].to_vec());
        let other = |ours: &str, theirs: &str| choose(&two(ours, 1), &two(theirs, 2)).unwrap().other;
        assert_eq!(other("10.0.0.1", "10.0.0.2").map(|other| other.client.index), Some(1));
        assert_eq!(other("10.0.0.1", "10.9.0.2"), None);
        // What the user has named is not to be second-guessed.
        let forced = LinkOffer { gid_forced: true, ..offer(table("10.0.0.1", 1, Some(24))[3..4].to_vec()) };
        assert_eq!(choose(&forced, &end("10.0.0.2", 2)).unwrap().other, None);
    }

    #[test]
    fn tables_in_different_orders_still_agree() {
        let mut theirs = table("10.0.0.2", 2, Some(24));
        theirs.reverse();
        theirs.iter_mut().enumerate().for_each(|(index, entry)| entry.index = index as u32);
        let chosen = choose(&offer(table("10.0.0.1", 1, Some(24))), &offer(theirs)).unwrap();
        assert_eq!(indexes(&chosen), (3, 1));
    }

    #[test]
    fn of_two_addresses_takes_the_one_in_the_peers_subnet() {
        let mut ours = table("192.168.9.1", 1, Some(24));
        ours.truncate(4);
        ours.push(entry(5, "::ffff:10.0.0.1", GidType::RoceV2, Some(24)));
        let chosen = choose(&offer(ours), &offer(table("10.0.0.2", 2, Some(24)))).unwrap();
        assert_eq!(indexes(&chosen), (5, 3));
    }

    #[test]
    fn a_routed_pair_says_that_it_needs_a_route() {
        let ours = vec![entry(0, "::ffff:10.1.0.1", GidType::RoceV2, Some(24))];
        let theirs = vec![entry(0, "::ffff:10.2.0.1", GidType::RoceV2, Some(24))];
        assert!(choose(&offer(ours), &offer(theirs)).unwrap().reason.contains("must route"));
    }

    #[test]
    fn routable_addresses_of_any_range_come_before_link_local_ones() {
        // Private, shared and public ranges alike, with a router between the ends.
        for (ours, theirs) in [
            ("10.1.0.1", "10.2.0.1"),
            ("172.16.1.1", "172.16.2.1"),
            ("192.168.1.1", "192.168.2.1"),
            ("100.64.1.1", "100.64.2.1"),
            ("192.0.2.1", "198.51.100.1"),
        ] {
            let end = |v4: &str, host| offer(table(v4, host, Some(24))[..4].to_vec());
            let chosen = choose(&end(ours, 1), &end(theirs, 2)).unwrap();
            assert_eq!(indexes(&chosen), (3, 3), "{ours} {theirs}");
        }
        // A global IPv6 address is there, and no IPv4 one.
        let end = |host| {
            let mut entries = table("10.0.0.1", host, None);
            entries.retain(|entry| entry.gid.family() != GidFamily::Ipv4);
            offer(entries)
        };
        let chosen = choose(&end(1), &end(2)).unwrap();
        assert_eq!(indexes(&chosen), (4, 4));
        assert_eq!(chosen.reason, "RoCE v2, IPv6: the ends share its subnet");
    }

    #[test]
    fn each_device_has_an_index_of_its_own() {
        // Two devices of a host: the second one's entries of interest stand four places further on.
        let first = table("10.0.0.1", 1, Some(24));
        let mut second = table("10.0.1.1", 2, Some(24));
        second.iter_mut().for_each(|entry| entry.index += 4);
        let peer = |v4| offer(table(v4, 9, Some(24)));
        assert_eq!(indexes(&choose(&offer(first), &peer("10.0.0.9")).unwrap()), (3, 3));
        assert_eq!(indexes(&choose(&offer(second), &peer("10.0.1.9")).unwrap()), (7, 3));
    }

    #[test]
    fn link_local_only_where_nothing_else_is_common() {
        let ours = vec![
            entry(0, "fe80::1", GidType::RoceV2, Some(64)),
            entry(1, "::ffff:10.0.0.1", GidType::RoceV2, Some(24)),
        ];
        let theirs = vec![entry(0, "fe80::2", GidType::RoceV2, Some(64))];
        assert_eq!(indexes(&choose(&offer(ours), &offer(theirs)).unwrap()), (0, 0));
    }

    #[test]
    fn forced_entries_of_different_families_are_explained() {
        let ours = LinkOffer { gid_forced: true, ..offer(vec![entry(0, "fe80::1", GidType::RoceV2, None)]) };
        let theirs =
            LinkOffer { gid_forced: true, ..offer(vec![entry(1, "::ffff:10.0.0.2", GidType::RoceV2, None)]) };
        let error = choose(&ours, &theirs).unwrap_err();
        assert_eq!(error.kind, ErrorKind::GidFamily);
        assert_eq!(
            error.what,
            "the client's GID is RoCE v2 link-local IPv6 and the server's is RoCE v2 IPv4-mapped: they cannot talk to each other"
        );
    }

    #[test]
    fn a_forced_entry_pulls_the_other_end_along() {
        let ours =
            LinkOffer { gid_forced: true, ..offer(vec![entry(4, "fd77::1", GidType::RoceV2, Some(64))]) };
        let chosen = choose(&ours, &offer(table("10.0.0.2", 2, Some(24)))).unwrap();
        assert_eq!(indexes(&chosen), (4, 4));
        assert!(chosen.reason.starts_with("--gid-index on the client"));
    }

    #[test]
    fn infiniband_is_addressed_by_lid() {
        let port = LinkOffer {
            link_layer: LinkLayer::InfiniBand,
            lid: 7,
            ..offer(vec![entry(0, "fe80::1", GidType::Ib, None)])
        };
        assert_eq!(choose(&port, &port).unwrap().client, None);
        let routed = LinkOffer { grh_required: true, ..port.clone() };
        assert_eq!(indexes(&choose(&routed, &port).unwrap()), (0, 0));
    }

    #[test]
    fn different_link_layers_are_refused() {
        let ib = LinkOffer { link_layer: LinkLayer::InfiniBand, ..offer(vec![]) };
        assert_eq!(choose(&ib, &offer(vec![])).unwrap_err().kind, ErrorKind::GidFamily);
    }
}
