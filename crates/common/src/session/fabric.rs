//! Whether two devices can reach each other at all.

use crate::device::SOFTNIC;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Role;
use crate::report::RdmaEnd;

/// softnic has no network: no packet of it reaches any other device.
///
/// # Errors
/// [`ErrorKind::Transport`] with both ends' devices.
pub(super) fn check_fabric(ours: &RdmaEnd, theirs: &RdmaEnd, role: Role) -> Result<()> {
    let is_softnic = |end: &RdmaEnd| end.software.as_deref() == Some(SOFTNIC);
    if is_softnic(ours) == is_softnic(theirs) {
        return Ok(());
    }
    let described = |end: &RdmaEnd| match &end.software {
        Some(software) => format!("{} ({software})", end.device),
        None => end.device.clone(),
    };
    Err(Error::new(
        ErrorKind::Transport,
        "one end uses the software device and the other does not: no bytes can pass between them",
    )
    .fact(role.name(), described(ours))
    .fact(role.peer().name(), described(theirs))
    .hint("give --soft-device on both ends or on neither"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gid::LinkLayer;
    use crate::report::DeviceKind;

    fn end(software: Option<&str>) -> RdmaEnd {
        RdmaEnd {
            device: "x0".into(),
            device_kind: if software.is_some() { DeviceKind::Software } else { DeviceKind::Adapter },
            software: software.map(Into::into),
            port_num: 1,
            link_layer: LinkLayer::Ethernet,
            lid: 0,
            gid: None,
            active_mtu_bytes: 1024,
            rate_gbit_per_sec: None,
            qpns: Vec::new(),
            posting: "ibv_wr".into(),
            inline_bytes: 0,
        }
    }

    #[test]
    fn an_emulation_without_a_network_talks_to_its_like_only() {
        let check = |ours, theirs| check_fabric(&end(ours), &end(theirs), Role::Client);
        assert!(check(None, Some("rxe")).is_ok());
        assert!(check(Some("softnic"), Some("softnic")).is_ok());
        let refused = check(Some("softnic"), Some("rxe")).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Transport);
        assert_eq!(refused.facts[0].value, "x0 (softnic)");
        assert_eq!(
            (refused.facts[1].label.as_str(), refused.facts[1].value.as_str()),
            ("server", "x0 (rxe)")
        );
        assert!(check(None, Some("softnic")).is_err());
    }
}
