//! The one error of the tools: what could not be done, to which object, the facts one would ask for next, and a
//! hint where there is an honest one.
//!
//! An [`Error`] is plain data. It travels over the control channel, so that both ends of a run show the same
//! story, and into the JSON document. Its [`ErrorKind`] is the machine's name for it and decides the exit status.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What the process tells the shell. The numbers are part of the interface and never change meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Measured, and good.
    Good = 0,
    /// Measured, but the data was wrong or a stated requirement was not met.
    NotMet = 1,
    /// The command line was not understood or contradicts itself.
    Usage = 2,
    /// This machine: device, GID, limit, library.
    Machine = 3,
    /// The peer or the path to it.
    Peer = 4,
    /// Interrupted; what was measured until then is printed and marked.
    Interrupted = 130,
}

macro_rules! error_kinds {
    ($($(#[$doc:meta])* $kind:ident = $code:literal => $exit:ident,)*) => {
        /// Every kind of failure, each with a code for scripts and an exit status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorKind {
            $($(#[$doc])* #[serde(rename = $code)] $kind,)*
        }

        impl ErrorKind {
            /// Every kind, for tables and tests.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$kind,)*];

            /// The stable code that JSON documents carry.
            pub fn code(self) -> &'static str {
                match self { $(ErrorKind::$kind => $code,)* }
            }

            /// The exit status of a process that ends with this failure of its own.
            pub fn exit_status(self) -> ExitStatus {
                match self { $(ErrorKind::$kind => ExitStatus::$exit,)* }
            }
        }
    };
}

error_kinds! {
    /// The command line can't be honoured.
    Usage = "usage" => Usage,
    /// libibverbs can't be loaded.
    LibraryMissing = "library-missing" => Machine,
    /// The machine has no RDMA device at all.
    NoDevice = "no-rdma-device" => Machine,
    /// No device has the name that was asked for.
    DeviceNotFound = "device-not-found" => Machine,
    /// The device could not be opened or queried.
    DeviceUnusable = "device-unusable" => Machine,
    /// The device has no port of that number.
    PortNotFound = "port-not-found" => Machine,
    /// The port is not in state ACTIVE.
    PortNotActive = "port-not-active" => Machine,
    /// The GID index lies outside the table or its entry is empty.
    GidIndex = "gid-index" => Machine,
    /// No entry of the GID table can be used.
    NoGid = "no-usable-gid" => Machine,
    /// The locked-memory limit is too small for this run.
    Memlock = "memlock" => Machine,
    /// Not enough memory for the buffers.
    Memory = "memory" => Machine,
    /// The device refused to register memory.
    Registration = "registration" => Machine,
    /// A limit of the device or of this end is exceeded by the plan.
    DeviceLimit = "device-limit" => Machine,
    /// The cores or the NUMA node asked for can't be had.
    Affinity = "affinity" => Machine,
    /// The CUDA driver can't be loaded or does not start.
    GpuDriver = "gpu-driver" => Machine,
    /// The driver finds no GPU.
    NoGpu = "no-gpu" => Machine,
    /// No GPU has the name that was asked for.
    GpuNotFound = "gpu-not-found" => Machine,
    /// A call to the CUDA driver failed.
    GpuFailed = "gpu-failed" => Machine,
    /// A verbs object could not be made.
    Resource = "verbs-resource" => Machine,
    /// The TCP port is taken, or the address can't be listened on.
    Listen = "listen" => Machine,
    /// This machine does not have the local address that was asked for, or the peer has none of its family.
    SourceAddress = "source-address" => Machine,
    /// This process may not have so many open files.
    OpenFiles = "open-files" => Machine,
    /// A run that this command has started ended without a result.
    RunLost = "run-lost" => Machine,
    /// A file could not be written.
    Output = "output" => Machine,
    /// The host name has no address.
    Resolve = "resolve" => Peer,
    /// The peer's host could not be reached.
    Unreachable = "unreachable" => Peer,
    /// Nothing listens where the peer should.
    Refused = "connection-refused" => Peer,
    /// The other end isn't one of these tools.
    NotLinkproof = "not-linkproof" => Peer,
    /// The other end speaks another version of the protocol, or is another tool.
    PeerVersion = "peer-version" => Peer,
    /// The other end is perftest's, which can't do what was asked, or has other options.
    PerftestPeer = "perftest-peer" => Peer,
    /// The peer sent something that the protocol doesn't allow here.
    Protocol = "protocol" => Peer,
    /// The peer didn't answer in time.
    PeerTimeout = "peer-timeout" => Peer,
    /// The peer is gone.
    PeerLost = "peer-lost" => Peer,
    /// The other end does not serve the transport that was asked for.
    Transport = "transport-mismatch" => Peer,
    /// The two ends' GIDs or link layers don't fit together.
    GidFamily = "gid-family" => Peer,
    /// A queue pair did not reach the state asked for.
    QpTransition = "qp-transition" => Peer,
    /// A write completed with an error.
    Completion = "completion" => Peer,
    /// A collective failed in the library that performs it.
    Collective = "collective" => Peer,
    /// Writes stopped completing.
    Stalled = "stalled" => Peer,
    /// The data that arrived was not the data that was sent.
    WrongData = "wrong-data" => NotMet,
    /// A size did not reach what was required of it.
    RequirementNotMet = "requirement-not-met" => NotMet,
    /// Interrupted by the user.
    Interrupted = "interrupted" => Interrupted,
}

/// Whose failure it is, as seen from this end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// This end found it.
    #[default]
    Local,
    /// The peer found it and told us.
    Peer,
}

/// A fact that belongs to a failure: a label and its value, shown as `label: value`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// One or two words.
    pub label: String,
    /// The value, with its unit.
    pub value: String,
}

/// A failure with everything that a person needs to act on it.
///
/// ```
/// use linkproof_common::error::{Error, ErrorKind};
/// let error = Error::new(ErrorKind::DeviceNotFound, "no RDMA device is called mlx5_9")
///     .fact("present", "rxe0 (port 1 ACTIVE, Ethernet)")
///     .hint("choose one with --ib-dev");
/// assert_eq!(error.exit_status() as i32, 3);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what}")]
pub struct Error {
    /// The stable code.
    #[serde(rename = "code")]
    pub kind: ErrorKind,
    /// What could not be done, to which object: facts only, no guess.
    pub what: String,
    /// What one would ask for next.
    pub facts: Vec<Fact>,
    /// One thing to try: a suggestion, not a diagnosis.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
    /// Codes of what was found on the failing machine and may explain it, the likeliest first: see [`crate::finding`].
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub findings: Vec<String>,
    /// Whose failure it is.
    #[serde(default)]
    pub origin: Origin,
}

/// What every fallible function of this library returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure of `kind`; `what` names the object and keeps to facts.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            facts: Vec::new(),
            hint: None,
            findings: Vec::new(),
            origin: Origin::Local,
        }
    }

    /// Adds a fact.
    #[must_use]
    pub fn fact(mut self, label: &str, value: impl fmt::Display) -> Self {
        self.facts.push(Fact { label: label.to_owned(), value: value.to_string() });
        self
    }

    /// Adds a fact where it is known.
    #[must_use]
    pub fn fact_if(self, label: &str, value: Option<impl fmt::Display>) -> Self {
        match value {
            Some(value) => self.fact(label, value),
            None => self,
        }
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same failure as the other end of the run sees it: `who` (for instance `the server b`) found it, and its
    /// facts are of that place.
    #[must_use]
    pub fn from_peer(mut self, who: &str) -> Self {
        self.what = format!("{who} could not go on: {}", self.what);
        // A fact that names an end by its role is as true here.
        for fact in self.facts.iter_mut().filter(|fact| fact.label != "client" && fact.label != "server") {
            fact.label.push_str(" (there)");
        }
        self.origin = Origin::Peer;
        self
    }

    /// What the shell is told. A failure that the peer reported is the peer's, whatever it was over there.
    pub fn exit_status(&self) -> ExitStatus {
        match (self.origin, self.kind) {
            (_, ErrorKind::WrongData | ErrorKind::RequirementNotMet) => ExitStatus::NotMet,
            (Origin::Peer, _) => ExitStatus::Peer,
            (Origin::Local, kind) => kind.exit_status(),
        }
    }

    /// The message as it goes to stderr, `tool` first, without a trailing line end.
    pub fn render(&self, tool: &str) -> String {
        let mut text = format!("{tool}: {}", self.what);
        for fact in &self.facts {
            text.push_str(&format!("\n  {}: {}", fact.label, fact.value));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n  hint: {hint}"));
        }
        text
    }
}

/// The kernel's own "not supported", which its drivers pass on though no C library knows it.
const ENOTSUPP: i32 = 524;

/// The name and number of an errno, as messages carry it: `ENOMEM (12), Out of memory`.
pub fn show_errno(errno: i32) -> String {
    if errno == ENOTSUPP {
        return format!("ENOTSUPP ({errno}), Operation not supported");
    }
    let known = nix::errno::Errno::from_raw(errno);
    let words = match known {
        // "… on transport endpoint" is of sockets, and this may be an adapter's.
        nix::errno::Errno::EOPNOTSUPP => "Operation not supported",
        other => other.desc(),
    };
    format!("{known:?} ({errno}), {words}")
}

/// The same for an [`std::io::Error`]; one without an errno shows its own words.
pub fn show_io_error(error: &std::io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), show_errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_object_facts_and_hint() {
        let error = Error::new(ErrorKind::Memlock, "cannot register 64 MiB on mlx5_0")
            .fact("memlock", "soft 8 MiB, hard 8 MiB")
            .hint("raise the limit");
        assert_eq!(
            error.render("write-bw"),
            "write-bw: cannot register 64 MiB on mlx5_0\n  memlock: soft 8 MiB, hard 8 MiB\n  hint: raise the limit"
        );
    }

    #[test]
    fn a_failure_of_the_peer_exits_4_here_and_names_it() {
        let error = Error::new(ErrorKind::Memlock, "cannot register 64 MiB")
            .fact("memlock", 1)
            .from_peer("the server b");
        assert_eq!(error.facts[0].label, "memlock (there)");
        assert_eq!(error.exit_status(), ExitStatus::Peer);
        assert!(error.what.starts_with("the server b could not go on: "));
    }

    #[test]
    fn wrong_data_exits_1_whoever_found_it() {
        let error = Error::new(ErrorKind::WrongData, "x");
        assert_eq!(error.clone().from_peer("the server").exit_status(), ExitStatus::NotMet);
        assert_eq!(error.exit_status(), ExitStatus::NotMet);
    }

    #[test]
    fn codes_are_unique_and_kebab_case() {
        let mut seen = std::collections::HashSet::new();
        for kind in ErrorKind::ALL {
            assert!(seen.insert(kind.code()), "{} appears twice", kind.code());
            assert!(kind.code().bytes().all(|b| b.is_ascii_lowercase() || b == b'-'));
        }
    }

    #[test]
    fn survives_the_wire() {
        let error = Error::new(ErrorKind::GidIndex, "x").fact("a", 1).hint("y");
        let text = serde_json::to_string(&error).unwrap();
        assert!(text.contains("\"code\":\"gid-index\""), "{text}");
        assert_eq!(serde_json::from_str::<Error>(&text).unwrap(), error);
    }

    #[test]
    fn errno_has_name_number_and_words() {
        assert_eq!(show_errno(12), "ENOMEM (12), Out of memory");
        assert_eq!(show_errno(524), "ENOTSUPP (524), Operation not supported");
    }
}
