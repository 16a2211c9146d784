//! How a run goes, whatever it measures: the client leads through the stretches of the plan, the server follows,
//! and both end up with the same document.
//!
//! A tool is what it does in one stretch ([`Tool`]); everything around that is here, once for all tools.

pub mod client;
mod entry;
mod perftest;
pub mod server;
mod stretch;

pub use entry::{fail, main};
pub use stretch::{Performed, Stage};

use crate::args::{DeviceArgs, PeerArgs};
use crate::clock::ClockUse;
use crate::error::{Error, ErrorKind, Result};
use crate::exchange::source;
use crate::host::HostFiles;
use crate::plan::Transport;
use crate::report::{Conditions, Output};
use crate::session::{LocalEnd, Session};

/// A measuring tool, on either end.
pub trait Tool {
    /// The name that messages begin with and both ends must share.
    const NAME: &'static str;
    /// This release.
    const VERSION: &'static str;

    /// Does this end's part of a stretch: the part that writes, not what the adapter does alone.
    ///
    /// # Errors
    /// A failed write, the peer's failure or death; with how far it got.
    fn perform(&mut self, stage: &mut Stage) -> Result<Performed>;

    /// What has taken this end's times, once it has performed; `None` where it takes none.
    fn clock(&self) -> Option<ClockUse>;
}

/// What this end has measured under, once it has measured.
fn conditions<T: Tool>(tool: &T, session: &Session) -> Conditions {
    let takes_times = session.plan().is_initiator(session.role());
    Conditions {
        clock: tool.clock().filter(|_| takes_times),
        contention: session.observer().total(),
        ..session.conditions().clone()
    }
}

/// What the options say of the two ends.
#[derive(Clone, Copy)]
pub struct Ends<'a> {
    /// This end.
    pub device: &'a DeviceArgs,
    /// The other one.
    pub peer: &'a PeerArgs,
}

impl Ends<'_> {
    /// The transport asked for; RDMA unless told otherwise.
    pub fn transport(&self) -> Transport {
        self.peer.transport.unwrap_or(Transport::Rdma)
    }

    /// Says which options were needless.
    pub(crate) fn note_needless(&self, output: &Output) {
        self.peer.habits.notes().into_iter().for_each(|note| output.note(note));
    }

    /// This end, with the device and the local address that the options name, and the calling thread bound to where
    /// it measures, as long as this is there.
    ///
    /// # Errors
    /// As [`LocalEnd::rdma`], and [`source::check`]; [`ErrorKind::Usage`] for a device without a use.
    pub fn local(&self) -> Result<LocalEnd> {
        self.peer.bind_source_ip.map(source::check).transpose()?;
        let (device, files) = (self.device, HostFiles::this_machine());
        let wish = device.place.wish();
        match self.transport() {
            Transport::Rdma => LocalEnd::rdma(&device.wish(), &wish, files),
            Transport::Tcp if device.soft_device => Err(Error::new(
                ErrorKind::Usage,
                "--soft-device is an RDMA device, and --transport tcp uses none",
            )
            .hint("give one of the two")),
            Transport::Tcp => LocalEnd::tcp(&wish, files),
        }
    }
}
