//! Faults: what goes wrong, and when.
//!
//! `SITE@N:EFFECT` is about the N-th time, counted from 1, `SITE@N+:EFFECT` about that and all later ones, and
//! `SITE~P:EFFECT` about each with probability P. `send/K` means the requests of the K-th queue pair made on the device,
//! counted from 0, and counts those only.

use std::time::Duration;

use rdma_sys as sys;

use super::size::{count, duration};

/// One fault.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FaultDescription {
    pub(crate) site: Site,
    /// The queue pair that it is about; `None`: all.
    pub(crate) qp: Option<u32>,
    pub(crate) when: When,
    pub(crate) effect: Effect,
}

/// Where a fault can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// A request on its way.
    Send,
    /// The port, counted in requests.
    Port,
    /// A call that fails.
    Call(Call),
}

/// Calls that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    OpenDevice,
    QueryDevice,
    QueryPort,
    AllocPd,
    RegMr,
    RegDmabufMr,
    CreateCq,
    CreateQp,
    CreateQpEx,
    ModifyQp,
    PostSend,
    PollCq,
}

const CALLS: &[(&str, Call)] = &[
    ("open_device", Call::OpenDevice),
    ("query_device", Call::QueryDevice),
    ("query_port", Call::QueryPort),
    ("alloc_pd", Call::AllocPd),
    ("reg_mr", Call::RegMr),
    ("reg_dmabuf_mr", Call::RegDmabufMr),
    ("create_cq", Call::CreateCq),
    ("create_qp", Call::CreateQp),
    ("create_qp_ex", Call::CreateQpEx),
    ("modify_qp", Call::ModifyQp),
    ("post_send", Call::PostSend),
    ("poll_cq", Call::PollCq),
];

/// When a fault happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    /// The time of this number, from 1.
    Once(u64),
    /// That and all later ones.
    From(u64),
    /// Each with this probability.
    Chance(f64),
    /// So long after the device is opened first; of a port only.
    After(Duration),
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The call fails with this errno value.
    Errno(i32),
    /// The request fails with this `IBV_WC_*` status, and does nothing.
    Status(sys::ibv_wc_status),
    /// The request is carried out so much later, and those behind it.
    Delay(Duration),
    /// Nobody ever answers it.
    Lost,
    /// One byte arrives changed: that at the offset (the last, if there are fewer), or any.
    Corrupt(Option<u64>),
    /// The port is down from then on, or for so long.
    Down(Option<Duration>),
}

const STATUSES: &[(&str, sys::ibv_wc_status)] = &[
    ("LOC_LEN_ERR", sys::IBV_WC_LOC_LEN_ERR),
    ("LOC_QP_OP_ERR", sys::IBV_WC_LOC_QP_OP_ERR),
    ("LOC_PROT_ERR", sys::IBV_WC_LOC_PROT_ERR),
    ("WR_FLUSH_ERR", sys::IBV_WC_WR_FLUSH_ERR),
    ("BAD_RESP_ERR", sys::IBV_WC_BAD_RESP_ERR),
    ("LOC_ACCESS_ERR", sys::IBV_WC_LOC_ACCESS_ERR),
    ("REM_INV_REQ_ERR", sys::IBV_WC_REM_INV_REQ_ERR),
    ("REM_ACCESS_ERR", sys::IBV_WC_REM_ACCESS_ERR),
    ("REM_OP_ERR", sys::IBV_WC_REM_OP_ERR),
    ("RETRY_EXC_ERR", sys::IBV_WC_RETRY_EXC_ERR),
    ("RNR_RETRY_EXC_ERR", sys::IBV_WC_RNR_RETRY_EXC_ERR),
    ("REM_ABORT_ERR", sys::IBV_WC_REM_ABORT_ERR),
    ("FATAL_ERR", sys::IBV_WC_FATAL_ERR),
    ("RESP_TIMEOUT_ERR", sys::IBV_WC_RESP_TIMEOUT_ERR),
    ("GENERAL_ERR", sys::IBV_WC_GENERAL_ERR),
];

const ERRNOS: &[(&str, i32)] = &[
    ("EPERM", libc::EPERM),
    ("EIO", libc::EIO),
    ("EAGAIN", libc::EAGAIN),
    ("ENOMEM", libc::ENOMEM),
    ("EACCES", libc::EACCES),
    ("EFAULT", libc::EFAULT),
    ("EBUSY", libc::EBUSY),
    ("ENODEV", libc::ENODEV),
    ("EINVAL", libc::EINVAL),
    ("ENOSYS", libc::ENOSYS),
    ("EOPNOTSUPP", libc::EOPNOTSUPP),
    ("ENETUNREACH", libc::ENETUNREACH),
    ("ETIMEDOUT", libc::ETIMEDOUT),
    ("EHOSTUNREACH", libc::EHOSTUNREACH),
];

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
}

fn names<T>(table: &[(&str, T)]) -> String {
    table.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

impl FaultDescription {
    /// # Errors
    /// What would have been understood.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let form = || "a fault is SITE@N:EFFECT, SITE@N+:EFFECT or SITE~P:EFFECT".to_owned();
        let (place, effect) = text.split_once(':').ok_or_else(form)?;
        let at = place.find(['@', '~']).ok_or_else(form)?;
        let (site, when) = (&place[..at], &place[at..]);
        let (site, qp) = match site.split_once('/') {
            Some(("send", qp)) => {
                let number = count(qp).and_then(|qp| u32::try_from(qp).ok());
                ("send", Some(number.ok_or_else(|| format!("{qp} is no number of a queue pair"))?))
            }
            Some(_) => return Err("only send/K is about one queue pair".to_owned()),
            None => (site, None),
        };
        let site = parse_site(site)?;
        let when = When::parse(when).filter(|when| site == Site::Port || !matches!(when, When::After(_)));
        let when =
            when.ok_or("a fault happens at @N, from @N+ on, or with a chance ~0.01; a port's also @TIME")?;
        Ok(Self { site, qp, when, effect: parse_effect(site, effect)? })
    }
}

impl When {
    fn parse(text: &str) -> Option<Self> {
        if let Some(chance) = text.strip_prefix('~') {
            let plain = chance.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            let chance: f64 = chance.parse().ok().filter(|_| plain)?;
            return (chance > 0.0 && chance <= 1.0).then_some(Self::Chance(chance));
        }
        let number = text.strip_prefix('@')?;
        if let Some(time) = duration(number) {
            return Some(Self::After(time));
        }
        let from_one = |text| count(text).filter(|&number| number > 0);
        match number.strip_suffix('+') {
            Some(number) => from_one(number).map(Self::From),
            None => from_one(number).map(Self::Once),
        }
    }
}

fn parse_site(name: &str) -> Result<Site, String> {
    match name {
        "send" => Ok(Site::Send),
        "port" => Ok(Site::Port),
        _ => named(CALLS, name)
            .map(Site::Call)
            .ok_or_else(|| format!("{name} is no place for a fault: there are send, port, {}", names(CALLS))),
    }
}

fn parse_effect(site: Site, text: &str) -> Result<Effect, String> {
    let found = match (site, text.split_once('=')) {
        (Site::Send, None) if text == "lost" => Some(Effect::Lost),
        (Site::Send, None) if text == "corrupt" => Some(Effect::Corrupt(None)),
        (Site::Send, None) => named(STATUSES, text).map(Effect::Status),
        (Site::Send, Some(("delay", time))) => duration(time).map(Effect::Delay),
        (Site::Send, Some(("corrupt", offset))) => count(offset).map(|offset| Effect::Corrupt(Some(offset))),
        (Site::Port, None) if text == "down" => Some(Effect::Down(None)),
        (Site::Port, Some(("down", time))) => duration(time).map(|time| Effect::Down(Some(time))),
        (Site::Call(_), None) => named(ERRNOS, text).map(Effect::Errno),
        _ => None,
    };
    found.ok_or_else(|| match site {
        Site::Send => format!(
            "a request can have lost, corrupt, corrupt=OFFSET, delay=TIME, or a status: {}",
            names(STATUSES)
        ),
        Site::Port => "a port can go down, or be down=TIME".to_owned(),
        Site::Call(_) => format!("a call can fail with {}", names(ERRNOS)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> FaultDescription {
        FaultDescription::parse(text).unwrap()
    }

    #[test]
    fn a_fault_has_a_place_a_time_and_an_effect() {
        let lost =
            FaultDescription { site: Site::Send, qp: None, when: When::Once(1024), effect: Effect::Lost };
        assert_eq!(parse("send@1K:lost"), lost);
        assert_eq!(parse("send/3@7+:corrupt=10").qp, Some(3));
        assert_eq!(parse("send/3@7+:corrupt=10").when, When::From(7));
        assert_eq!(parse("send~0.25:corrupt").when, When::Chance(0.25));
        assert_eq!(parse("send@1:delay=5ms").effect, Effect::Delay(Duration::from_millis(5)));
        assert_eq!(parse("send@1:REM_OP_ERR").effect, Effect::Status(sys::IBV_WC_REM_OP_ERR));
        assert_eq!(parse("reg_mr@1:EFAULT").effect, Effect::Errno(libc::EFAULT));
        assert_eq!(parse("create_qp_ex@1+:EOPNOTSUPP").site, Site::Call(Call::CreateQpEx));
        assert_eq!(parse("port@2s:down=1ms").when, When::After(Duration::from_secs(2)));
        assert_eq!(parse("port@9:down").effect, Effect::Down(None));
    }

    #[test]
    fn what_is_no_fault_is_refused_with_what_would_be() {
        let refused = |text: &str| FaultDescription::parse(text).unwrap_err();
        assert!(refused("send").contains("SITE@N:EFFECT"));
        assert!(refused("send@1").contains("SITE@N:EFFECT"));
        assert!(refused("teapot@1:EIO").contains("there are send, port, open_device"));
        for when in ["@0", "@", "@-1", "@1++", "~0", "~1.5", "~-1", "~1e9", "@2s"] {
            assert!(refused(&format!("send{when}:lost")).contains("happens at @N"), "{when}");
        }
        assert!(refused("send@1:EIO").contains("lost, corrupt"));
        assert!(refused("send@1:SUCCESS").contains("RETRY_EXC_ERR"));
        assert!(refused("reg_mr@1:lost").contains("EFAULT"));
        assert!(refused("port@1:lost").contains("go down"));
        assert!(refused("reg_mr/1@1:EIO").contains("only send/K"));
    }
}
