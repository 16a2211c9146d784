//! Which findings may explain a failure.
//!
//! A tool that fails looks at the node as `rdma-check` would, and shows with its error what may be behind it. That two things
//! are there at once proves nothing, so it is a suggestion; where a failure is proven by what the tool itself has asked, its
//! own words say so, and nothing is added.

use super::{Code, Finding, Severity, Topic, examine};
use crate::error::{Error, ErrorKind, Origin};
use crate::host::HostFiles;
use crate::node::Node;

/// More than this would hide the error behind suggestions.
const MOST: usize = 2;

/// What can be behind a failure of `kind`, as far as a look at this end can tell.
fn causes(kind: ErrorKind) -> &'static [Code] {
    match kind {
        ErrorKind::NoDevice => &[Code::AdapterIdle],
        ErrorKind::DeviceUnusable => &[Code::UverbsMissing, Code::NodeMissing, Code::NodeClosed],
        ErrorKind::PortNotActive => &[Code::NoSubnetManager, Code::BondMemberDown],
        // The kernel and the provider say ENOMEM for all of these.
        ErrorKind::Registration | ErrorKind::Resource => {
            &[Code::GuidZero, Code::MemlockLow, Code::CgroupLimit, Code::GpudirectMissing]
        }
        ErrorKind::GidFamily => &[Code::RoceV1Only, Code::LinkLocalOnly],
        ErrorKind::QpTransition => &[
            Code::GuidZero,
            Code::RoceV1Only,
            Code::LinkLocalOnly,
            Code::SameSubnet,
            Code::ReversePath,
            Code::MtuStale,
        ],
        ErrorKind::Completion | ErrorKind::Stalled => &[
            Code::PortDown,
            Code::NoSubnetManager,
            Code::RoceV1Only,
            Code::LinkLocalOnly,
            Code::SameSubnet,
            Code::ReversePath,
            Code::MtuStale,
            Code::BondMemberDown,
            Code::AcsRedirects,
        ],
        // A control channel goes over the same interfaces.
        ErrorKind::Unreachable | ErrorKind::PeerTimeout | ErrorKind::PeerLost => {
            &[Code::SameSubnet, Code::ReversePath, Code::PortDown]
        }
        ErrorKind::Collective => &[
            Code::NcclIfname,
            Code::NcclHca,
            Code::NcclGidIndex,
            Code::MemlockLow,
            Code::NcclIbDisabled,
            Code::NcclSocket,
        ],
        _ => &[],
    }
}

/// `error`, with what of this machine may explain it. What the peer has found is explained there.
#[must_use]
pub fn explain(error: Error, files: &HostFiles) -> Error {
    if error.origin == Origin::Peer || causes(error.kind).is_empty() || !error.findings.is_empty() {
        return error;
    }
    explain_by(error, &Node::of_files(files))
}

fn explain_by(error: Error, node: &Node) -> Error {
    let causes = causes(error.kind);
    let mut fitting: Vec<(usize, Finding)> = examine(node)
        .into_iter()
        .filter(|finding| finding.severity >= Severity::Warning && concerns(finding, &error))
        .filter_map(|finding| Some((causes.iter().position(|code| *code == finding.code)?, finding)))
        .collect();
    // In the order of the causes, the usual first.
    fitting.sort_by_key(|(order, _)| *order);
    fitting.into_iter().take(MOST).fold(error, |error, (_, finding)| suggest(error, &finding))
}

/// Whether a finding on a device is on one that the error is about; an error that names none may be about any.
fn concerns(finding: &Finding, error: &Error) -> bool {
    // Interfaces and the node's own are not in the words of an error, and matter to each.
    if finding.on.is_empty() || !matches!(finding.topic, Topic::Device | Topic::Pci) {
        return true;
    }
    let facts = error.facts.iter().map(|fact| fact.value.as_str());
    let words: Vec<&str> = std::iter::once(error.what.as_str()).chain(facts).flat_map(words_of).collect();
    let device = |on: &String| words_of(on).next().map(str::to_owned);
    let is_named = |on: &String| device(on).is_some_and(|device| words.contains(&device.as_str()));
    let names_any = words.iter().any(|word| is_device_name(word));
    !names_any || finding.on.iter().any(is_named)
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// `mlx5_0`, `rxe0`, `bnxt_re1`: an RDMA device's name begins with its driver's.
fn is_device_name(word: &str) -> bool {
    const DRIVERS: &[&str] =
        &["mlx", "rxe", "siw", "bnxt_re", "irdma", "efa", "erdma", "hns", "mana", "rocep", "ibp"];
    DRIVERS.iter().any(|driver| word.starts_with(driver)) && word.ends_with(|c: char| c.is_ascii_digit())
}

fn suggest(mut error: Error, finding: &Finding) -> Error {
    let on = if finding.on.is_empty() { String::new() } else { format!(" ({})", finding.on.join(", ")) };
    let remedy = finding.remedy.as_ref().map_or(String::new(), |remedy| format!("; {remedy}"));
    error.findings.push(finding.code.name().to_owned());
    error.fact("suggestion", format!("{}{on}: {}{remedy}", finding.code.name(), finding.seen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::fixture::{self, Tree};

    fn explained(kind: ErrorKind, what: &str, tree: &Tree) -> Error {
        let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
        tree.write_to(folder.path()).unwrap();
        explain(Error::new(kind, what), &HostFiles::below(folder.path()))
    }

    #[test]
    fn a_registration_that_fails_under_a_low_limit_names_it() {
        let mut tree = fixture::infiniband();
        tree.memlock("65536");
        let error = explained(
            ErrorKind::Registration,
            "cannot register 4 KiB on mlx5_0: ibv_reg_mr: ENOMEM (12)",
            &tree,
        );
        assert_eq!(error.findings, ["memlock-low"]);
        assert_eq!(error.facts[0].label, "suggestion");
        assert!(error.facts[0].value.contains("soft 64 KiB"), "{}", error.facts[0].value);
        assert_eq!(
            explained(ErrorKind::Registration, "x", &fixture::infiniband()).findings,
            Vec::<String>::new()
        );
    }

    #[test]
    fn connecting_and_completing_fail_where_two_adapters_share_a_subnet() {
        for kind in [ErrorKind::QpTransition, ErrorKind::Completion, ErrorKind::Unreachable] {
            let error =
                explained(kind, "QP 0x000001 on mlx5_0 port 1 stayed in INIT", &fixture::one_subnet());
            assert_eq!(error.findings, ["same-subnet", "reverse-path-filter"]);
        }
    }

    #[test]
    fn a_port_that_has_gone_down_is_suggested_for_its_own_device_only() {
        let gone = |what: &str| explained(ErrorKind::Completion, what, &fixture::link_down()).findings;
        assert_eq!(gone("write 7 did not complete: RETRY_EXC_ERR (12) on mlx5_0"), ["port-not-active"]);
        assert_eq!(gone("write 7 did not complete: RETRY_EXC_ERR (12) on mlx5_1"), Vec::<String>::new());
        assert_eq!(gone("write 7 did not complete"), ["port-not-active"]);
    }

    #[test]
    fn what_the_peer_has_found_and_what_explains_itself_gets_nothing() {
        let mut tree = fixture::infiniband();
        tree.memlock("65536");
        assert!(explained(ErrorKind::Memlock, "x", &tree).findings.is_empty());
        let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
        tree.write_to(folder.path()).unwrap();
        let of_peer = Error::new(ErrorKind::Registration, "x").from_peer("the server a");
        assert!(explain(of_peer, &HostFiles::below(folder.path())).findings.is_empty());
    }
}
