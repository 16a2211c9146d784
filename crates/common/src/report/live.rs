//! Intervals as they come: a line each, written by a thread of its own.
//!
//! The watcher of a round must not wait for whoever reads the lines: a terminal that is held (Ctrl-S), a pager that is
//! not scrolled. So it hands them over, some are kept, and what is too much is left out and counted.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use super::lines::Lines;
use crate::affinity;
use crate::watch::sampling::{Audience, Report};

/// Lines that wait for a slow reader at most. Taste: a minute of seconds.
const KEPT: usize = 64;

/// The lines of a run.
pub struct Live {
    sender: Option<SyncSender<(Report, SystemTime)>>,
    writer: Option<JoinHandle<()>>,
    left_out: u64,
}

impl Live {
    /// Begins to write `lines` to stderr, beside a result that will come on stdout.
    pub(super) fn start(lines: Lines) -> Self {
        let (sender, receiver) = sync_channel(KEPT);
        let writer = std::thread::spawn(move || {
            // It would take the core from the loop.
            affinity::roam();
            // Who has closed stderr does not want them; the result comes all the same.
            let _ = write_all(&lines, &receiver);
        });
        Self { sender: Some(sender), writer: Some(writer), left_out: 0 }
    }

    /// Writes what is left. Gives how many lines were left out because they were not read fast enough.
    pub fn finish(mut self) -> u64 {
        self.close();
        self.left_out
    }

    fn close(&mut self) {
        self.sender = None;
        // A writer that panicked has said so.
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.close();
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
        false
    }
}

/// Each line in one write.
fn write_all(lines: &Lines, receiver: &Receiver<(Report, SystemTime)>) -> std::io::Result<()> {
    let to_stderr = |text: String| std::io::stderr().lock().write_all(text.as_bytes());
    to_stderr(lines.header())?;
    while let Ok((report, began)) = receiver.recv() {
        to_stderr(lines.line(&report, began))?;
    }
    Ok(())
}
