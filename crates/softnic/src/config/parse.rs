//! From text to a [`Description`].

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use rdma_sys as sys;

use super::size::{count, duration, rate_gbit};
use super::{Description, DeviceDescription, FaultDescription, GidDescription, Link, PortDescription};

/// What is wrong with a description, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParseError {
    /// The byte at which the word begins that is not understood.
    at: usize,
    what: String,
}

impl ParseError {
    /// In one line, with the place in `text`, which stands in `source`.
    pub(super) fn show(&self, source: &str, text: &str) -> String {
        let before = &text[..self.at.min(text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        format!("{source}, line {line}, column {column}: {}", self.what)
    }
}

/// A word and where it stands.
#[derive(Clone, Copy)]
struct Word<'a> {
    at: usize,
    text: &'a str,
}

impl<'a> Word<'a> {
    fn error(self, what: impl Into<String>) -> ParseError {
        ParseError { at: self.at, what: what.into() }
    }

    /// `key=value` in its two parts; the value with its own place.
    fn split(self) -> Option<(&'a str, Word<'a>)> {
        let (key, value) = self.text.split_once('=')?;
        Some((key, Word { at: self.at + key.len() + 1, text: value }))
    }
}

impl Description {
    /// # Errors
    /// The first word that is not understood.
    pub(super) fn parse(text: &str) -> Result<Self, ParseError> {
        let mut description = Self { devices: Vec::new(), ..Self::default() };
        for clause in clauses(text) {
            match clause[0].split() {
                Some(_) => description.general(&clause)?,
                None => description.device(&clause)?,
            }
        }
        if description.devices.is_empty() {
            description.devices = Self::default().devices;
        }
        Ok(description)
    }

    fn general(&mut self, clause: &[Word]) -> Result<(), ParseError> {
        for word in clause {
            match word.split() {
                Some(("fabric", value)) => self.fabric = name_of(value, "a fabric")?,
                _ => return Err(word.error(format!("{} is no setting: there is fabric=", word.text))),
            }
        }
        Ok(())
    }

    fn device(&mut self, clause: &[Word]) -> Result<(), ParseError> {
        let name = name_of(clause[0], "a device")?;
        if self.devices.iter().any(|device| device.name == name) {
            return Err(clause[0].error(format!("{name} is described twice")));
        }
        let settings = Settings::of(&clause[1..])?;
        // The link decides what the other defaults are, wherever it stands.
        let mut device = DeviceDescription::named(name);
        if let Some(Link::InfiniBand) = settings.first("link").map(link).transpose()? {
            device.port = PortDescription::infiniband(self.devices.len() as u16 + 1);
        }
        for &(key, value) in &settings.0 {
            device.set(key, value)?;
        }
        device.take_gids(&settings)?;
        self.devices.push(device);
        Ok(())
    }
}

/// The settings of a device, each key once but `gid` and `fault`.
struct Settings<'a>(Vec<(&'a str, Word<'a>)>);

impl<'a> Settings<'a> {
    fn of(words: &[Word<'a>]) -> Result<Self, ParseError> {
        let mut seen = BTreeSet::new();
        let mut settings = Vec::new();
        for word in words {
            let setting = word.split().ok_or_else(|| word.error(format!("{} is no key=value", word.text)))?;
            if !seen.insert(setting.0) && !["gid", "fault"].contains(&setting.0) {
                return Err(word.error(format!("{} is set twice", setting.0)));
            }
            settings.push(setting);
        }
        Ok(Self(settings))
    }

    fn all(&self, key: &str) -> impl Iterator<Item = Word<'a>> {
        self.0.iter().filter(move |setting| setting.0 == key).map(|setting| setting.1)
    }

    fn first(&self, key: &str) -> Option<Word<'a>> {
        self.all(key).next()
    }
}

impl DeviceDescription {
    fn set(&mut self, key: &str, value: Word) -> Result<(), ParseError> {
        let limits = &mut self.limits;
        match key {
            // Looked at before and after the others.
            "link" | "gid" => {}
            "lid" => self.port.lid = number(value, 1, 0xbfff)? as u16,
            "mtu" => self.port.mtu = mtu(value)?,
            "rate" => {
                self.port.rate_gbit =
                    rate_gbit(value.text).ok_or_else(|| value.error("a rate is Gb/s, for instance 100G"))?;
            }
            "state" => self.port.active = state(value)?,
            "latency" => {
                self.model.latency = duration(value.text)
                    .ok_or_else(|| value.error("a latency is a time, for instance 2us"))?;
            }
            "pace" => {
                self.model.pace_gbit =
                    rate_gbit(value.text).ok_or_else(|| value.error("a pace is Gb/s, for instance 100G"))?;
            }
            "dma_buf" => self.gpu.dma_buf = on_or_off(value)?,
            "peer_memory" => self.gpu.peer_memory = on_or_off(value)?,
            "seed" => self.seed = number(value, 0, u64::MAX)?,
            "fault" => {
                let fault = FaultDescription::parse(value.text);
                self.faults.push(fault.map_err(|what| value.error(what))?);
            }
            "max_qp" => limits.max_qp = number(value, 1, limits.max_qp.into())? as u32,
            "max_qp_wr" => limits.max_qp_wr = number(value, 1, limits.max_qp_wr.into())? as u32,
            "max_sge" => limits.max_sge = number(value, 1, limits.max_sge.into())? as u32,
            "max_inline" => limits.max_inline = number(value, 0, 4096)? as u32,
            "max_cq" => limits.max_cq = number(value, 1, limits.max_cq.into())? as u32,
            "max_cqe" => limits.max_cqe = number(value, 1, limits.max_cqe.into())? as u32,
            "max_pd" => limits.max_pd = number(value, 1, limits.max_pd.into())? as u32,
            "max_mr" => limits.max_mr = number(value, 1, limits.max_mr.into())? as u32,
            "max_mr_size" => limits.max_mr_size = number(value, 1, limits.max_mr_size)?,
            _ => return Err(ParseError { at: value.at - key.len() - 1, what: unknown(key) }),
        }
        Ok(())
    }

    fn take_gids(&mut self, settings: &Settings) -> Result<(), ParseError> {
        let link = self.port.link;
        let gids: Vec<_> = settings.all("gid").map(|word| gid(word, link)).collect::<Result<_, _>>()?;
        if !gids.is_empty() {
            self.port.gids = gids;
        }
        if let (Link::Ethernet, Some(lid)) = (link, settings.first("lid")) {
            return Err(lid.error("an Ethernet port has no lid"));
        }
        Ok(())
    }
}

fn on_or_off(value: Word) -> Result<bool, ParseError> {
    match value.text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(value.error("it is on or off")),
    }
}

fn unknown(key: &str) -> String {
    format!(
        "{key} is no setting of a device: there are link, lid, mtu, rate, state, gid, latency, pace, dma_buf, peer_memory, seed, fault, and max_qp, max_qp_wr, max_sge, \
         max_inline, max_cq, max_cqe, max_pd, max_mr, max_mr_size"
    )
}

/// The clauses of `text`, none of them empty.
fn clauses(text: &str) -> Vec<Vec<Word<'_>>> {
    let mut clauses = vec![Vec::new()];
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let used = line.split('#').next().unwrap_or_default();
        let mut clause_at = at;
        for clause in used.split(';') {
            clauses.push(words(clause, clause_at));
            clause_at += clause.len() + 1;
        }
        at += line.len();
    }
    clauses.retain(|clause| !clause.is_empty());
    clauses
}

fn words(clause: &str, at: usize) -> Vec<Word<'_>> {
    let place = |word: &str| at + (word.as_ptr().addr() - clause.as_ptr().addr());
    clause.split_whitespace().map(|text| Word { at: place(text), text }).collect()
}

/// A name: what can stand in a socket's address and in a message without quotes.
fn name_of(word: Word, what: &str) -> Result<String, ParseError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if word.text.is_empty() || word.text.len() > 32 || !word.text.chars().all(fits) {
        return Err(word.error(format!("{what}'s name has 1 to 32 letters, digits, _ - . and nothing else")));
    }
    Ok(word.text.to_owned())
}

fn number(word: Word, least: u64, most: u64) -> Result<u64, ParseError> {
    let range = || word.error(format!("{} is not a number from {least} to {most}", word.text));
    count(word.text).filter(|number| (least..=most).contains(number)).ok_or_else(range)
}

fn link(word: Word) -> Result<Link, ParseError> {
    match word.text {
        "ethernet" => Ok(Link::Ethernet),
        "infiniband" => Ok(Link::InfiniBand),
        _ => Err(word.error("a link is ethernet or infiniband")),
    }
}

fn state(word: Word) -> Result<bool, ParseError> {
    match word.text {
        "active" => Ok(true),
        "down" => Ok(false),
        _ => Err(word.error("a state is active or down")),
    }
}

fn mtu(word: Word) -> Result<sys::ibv_mtu, ParseError> {
    match word.text {
        "256" => Ok(sys::IBV_MTU_256),
        "512" => Ok(sys::IBV_MTU_512),
        "1024" => Ok(sys::IBV_MTU_1024),
        "2048" => Ok(sys::IBV_MTU_2048),
        "4096" => Ok(sys::IBV_MTU_4096),
        _ => Err(word.error("an MTU is 256, 512, 1024, 2048 or 4096")),
    }
}

/// `roce2:192.0.2.1/eth0`, `roce1:fe80::1`, `ib:fe80::2`, or `none` for an unused entry.
fn gid(word: Word, link: Link) -> Result<GidDescription, ParseError> {
    let form = || word.error("a GID is TYPE:ADDRESS[/NETDEV] with roce2, roce1 or ib as the type, or none");
    if word.text == "none" {
        let gid_type = sys::IBV_GID_TYPE_IB;
        return Ok(GidDescription { gid_type, gid: Ipv6Addr::UNSPECIFIED, netdev: None });
    }
    let (kind, rest) = word.text.split_once(':').ok_or_else(form)?;
    let gid_type = match (kind, link) {
        ("roce2", Link::Ethernet) => sys::IBV_GID_TYPE_ROCE_V2,
        ("roce1", Link::Ethernet) => sys::IBV_GID_TYPE_ROCE_V1,
        ("ib", Link::InfiniBand) => sys::IBV_GID_TYPE_IB,
        ("roce1" | "roce2" | "ib", _) => return Err(word.error("this type of GID is of another link")),
        _ => return Err(form()),
    };
    let (address, netdev) = match rest.split_once('/') {
        Some((address, netdev)) => (address, Some(netdev.to_owned())),
        None => (rest, None),
    };
    let gid = match address.parse().map_err(|_| form())? {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    Ok(GidDescription { gid_type, gid, netdev })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> String {
        Description::parse(text).unwrap_err().show("X", text)
    }

    #[test]
    fn nothing_is_the_default() {
        assert_eq!(Description::parse(" ; ;\n# a comment; soft9\n").unwrap(), Description::default());
        assert_eq!(Description::default().devices[0].port.gids[1].gid.to_string(), "::ffff:127.0.0.1");
    }

    #[test]
    fn every_setting_reaches_its_place() {
        let text = "fabric=t-1; soft0 gid=roce2:192.0.2.1/eth0 gid=none gid=roce1:fe80::2 mtu=1024 rate=400G \
                    state=down fault=send@5:lost fault=reg_mr@1:EIO latency=2us pace=25G peer_memory=off dma_buf=on seed=7 max_qp=5 max_inline=0 max_mr_size=4K\nib0 link=infiniband lid=7 # here";
        let description = Description::parse(text).unwrap();
        assert_eq!(description.fabric, "t-1");
        let [soft0, ib0] = &description.devices[..] else { panic!("{description:?}") };
        assert_eq!(
            (soft0.port.mtu, soft0.port.rate_gbit, soft0.port.active),
            (sys::IBV_MTU_1024, 400, false)
        );
        assert_eq!((soft0.limits.max_qp, soft0.limits.max_inline, soft0.limits.max_mr_size), (5, 0, 4096));
        assert_eq!((soft0.gpu.dma_buf, soft0.gpu.peer_memory), (true, false));
        assert_eq!((soft0.faults.len(), soft0.seed, soft0.model.pace_gbit), (2, 7, 25));
        assert_eq!(soft0.port.gids.len(), 3);
        assert_eq!(soft0.port.gids[0].gid.to_string(), "::ffff:192.0.2.1");
        assert_eq!(soft0.port.gids[0].netdev.as_deref(), Some("eth0"));
        assert!(soft0.port.gids[1].gid.is_unspecified());
        assert_eq!(soft0.port.gids[2].gid_type, sys::IBV_GID_TYPE_ROCE_V1);
        assert_eq!((ib0.port.link, ib0.port.lid, ib0.port.gids.len()), (Link::InfiniBand, 7, 1));
    }

    #[test]
    fn what_is_not_understood_is_an_error_with_its_place() {
        assert_eq!(wrong("soft0 mtu=1500"), "X, line 1, column 11: an MTU is 256, 512, 1024, 2048 or 4096");
        assert_eq!(wrong("soft0\nsoft1 frob=1").split(" is").next().unwrap(), "X, line 2, column 7: frob");
        assert!(wrong("soft0; soft0").contains("column 8: soft0 is described twice"));
        assert!(wrong("soft0 mtu=1024 mtu=256").contains("mtu is set twice"));
        assert!(wrong("soft0 mtu").contains("mtu is no key=value"));
        assert!(wrong("fabric=a/b").contains("a fabric's name has"));
        assert!(wrong("speed=1").contains("speed=1 is no setting"));
        assert!(wrong("soft0 max_qp=0").contains("0 is not a number from 1 to"));
        assert!(wrong("soft0 gid=roce2:nowhere").contains("a GID is TYPE:ADDRESS"));
        assert!(wrong("soft0 gid=ib:fe80::1").contains("of another link"));
        assert!(wrong("soft0 lid=3").contains("an Ethernet port has no lid"));
        assert!(wrong("soft0 link=token-ring").contains("ethernet or infiniband"));
        assert!(wrong("soft0 fault=send@1:tea").contains("line 1, column 13: a request can have lost"));
        assert!(wrong("soft0 dma_buf=no").contains("on or off"));
        assert!(wrong("soft0 latency=2").contains("a latency is a time"));
    }
}
