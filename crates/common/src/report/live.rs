//! Intervals as they come: a line each, written by a thread of its own.
//!
//! The watcher of a round must not wait for whoever reads the lines: a terminal that is held (Ctrl-S), a pager that is
//! not scrolled. So it hands them over, some are kept, and what is too much is left out and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use super::lines::Lines;
use super::stream::Stream;
use crate::affinity;
use crate::error::Result;
use crate::watch::sampling::{Audience, Report};

/// Lines that wait for a slow reader at most. Taste: a minute of seconds.
const KEPT: usize = 64;

/// What becomes of a run when a line can't be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// Nothing: its result comes all the same.
    GoesOn,
    /// It ends: it lasts as long as somebody follows it.
    Ends,
}

/// The lines of a run.
pub struct Live {
    sender: Option<SyncSender<(Report, SystemTime)>>,
    writer: Option<JoinHandle<Result<()>>>,
    has_ended: Arc<AtomicBool>,
    left_out: u64,
}

impl Live {
    /// Begins to write, each kind of lines to its stream.
    pub(super) fn start(lines: Vec<(Stream, Lines)>, unread: Unread) -> Self {
        let (sender, receiver) = sync_channel(KEPT);
        let has_ended = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&has_ended);
        let writer = std::thread::spawn(move || {
            // It would take the core from the loop.
            affinity::roam();
            let written = write_all(&lines, &receiver);
            match unread {
                Unread::GoesOn => Ok(()),
                Unread::Ends => {
                    ends.store(true, Ordering::Relaxed);
                    written
                }
            }
        });
        Self { sender: Some(sender), writer: Some(writer), has_ended, left_out: 0 }
    }

    /// Writes what is left. Gives how many lines were left out because they were not read fast enough.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Output`] where a line could not be written and the run ends with that.
    pub fn finish(mut self) -> Result<u64> {
        self.close().map(|()| self.left_out)
    }

    fn close(&mut self) -> Result<()> {
        self.sender = None;
        // A writer that panicked has said so.
        self.writer.take().map_or(Ok(()), |writer| writer.join().unwrap_or(Ok(())))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // The run has failed, and that is the better story.
        let _ = self.close();
    }
}

impl Audience for Live {
    fn hear(&mut self, report: Report) {
        let began =
            SystemTime::now().checked_sub(report.interval.elapsed()).unwrap_or(SystemTime::UNIX_EPOCH);
        if let Some(Err(TrySendError::Full(_))) = self.sender.as_ref().map(|s| s.try_send((report, began))) {
            self.left_out += 1;
        }
    }

    fn has_left(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }
}

/// Writes until the run is over, or a reader has closed its end, which ends the lines and is no failure.
fn write_all(lines: &[(Stream, Lines)], receiver: &Receiver<(Report, SystemTime)>) -> Result<()> {
    for (stream, lines) in lines {
        if !stream.write(&lines.header())? {
            return Ok(());
        }
    }
    while let Ok((report, began)) = receiver.recv() {
        for (stream, lines) in lines {
            if !stream.write(&lines.line(&report, began))? {
                return Ok(());
            }
        }
    }
    Ok(())
}
