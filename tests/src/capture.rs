//! A stream of a process, read as it comes, so that a test can wait for what it says.

use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    ended: bool,
}

/// What a stream has said so far.
pub(crate) struct Capture(Arc<Shared>);

impl Capture {
    /// Reads `stream` to its end in a thread of its own.
    pub(crate) fn of(mut stream: impl Read + Send + 'static) -> Self {
        let shared = Arc::new(Shared::default());
        let writer = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut piece = [0; 8192];
            loop {
                let count = stream.read(&mut piece).unwrap_or(0);
                let mut state = lock(&writer);
                state.bytes.extend_from_slice(&piece[..count]);
                state.ended = count == 0;
                writer.changed.notify_all();
                if state.ended {
                    return;
                }
            }
        });
        Self(shared)
    }

    /// Everything so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.0).bytes).into_owned()
    }

    /// Waits until the text satisfies `condition`; false where the stream ends or `limit` passes before.
    pub(crate) fn wait_for(&self, limit: Duration, condition: impl Fn(&str) -> bool) -> bool {
        self.wait(limit, |state| {
            let met = condition(&String::from_utf8_lossy(&state.bytes));
            (met || state.ended).then_some(met)
        })
    }

    /// Waits for the end of the stream; false where `limit` passes before.
    pub(crate) fn wait_for_end(&self, limit: Duration) -> bool {
        self.wait(limit, |state| state.ended.then_some(true))
    }

    fn wait(&self, limit: Duration, answer: impl Fn(&State) -> Option<bool>) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = lock(&self.0);
        loop {
            if let Some(answer) = answer(&state) {
                return answer;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, State> {
    shared.state.lock().unwrap_or_else(PoisonError::into_inner)
}
