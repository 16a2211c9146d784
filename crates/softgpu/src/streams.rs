//! Streams and events. Nothing is ever behind in a stream: an event is over when it is recorded.

use std::time::Instant;

use cuda_sys as sys;

use crate::driver::{Driver, State};
use crate::failure::{Failure, Result};

/// A stream.
pub(crate) struct Stream {
    pub(crate) gpu: usize,
}

/// An event.
pub(crate) struct Event {
    pub(crate) gpu: usize,
    has_time: bool,
    recorded: Option<Instant>,
}

/// The streams that there are without being made: NULL, `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
const LAST_BUILT_IN: usize = 2;
/// Where the handles of streams and events begin, which point to nothing.
const FIRST: u64 = 0x5047_1000;

impl State {
    fn handle(&mut self) -> usize {
        (FIRST + self.number()) as usize
    }

    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE` for what is no stream.
    fn check_stream(&self, stream: sys::CUstream) -> Result<()> {
        self.current()?;
        let known = stream.addr() <= LAST_BUILT_IN || self.streams.contains_key(&stream.addr());
        if known { Ok(()) } else { Err(Failure::INVALID_HANDLE) }
    }

    fn event(&self, event: sys::CUevent) -> Result<&Event> {
        self.events.get(&event.addr()).ok_or(Failure::INVALID_HANDLE)
    }
}

impl Driver {
    pub(crate) fn create_stream(&self, flags: u32) -> Result<sys::CUstream> {
        let mut state = self.write();
        let gpu = state.current()?;
        if flags & !sys::CU_STREAM_NON_BLOCKING != 0 {
            return Err(Failure::INVALID_VALUE);
        }
        let handle = state.handle();
        state.streams.insert(handle, Stream { gpu });
        Ok(core::ptr::without_provenance_mut(handle))
    }

    pub(crate) fn destroy_stream(&self, stream: sys::CUstream) -> Result<()> {
        self.write().streams.remove(&stream.addr()).map(drop).ok_or(Failure::INVALID_HANDLE)
    }

    /// Whether all of a stream is done, or the wait for it: it always is.
    pub(crate) fn stream_is_done(&self, stream: sys::CUstream) -> Result<()> {
        self.read().check_stream(stream)
    }

    pub(crate) fn wait_in_stream(&self, stream: sys::CUstream, event: sys::CUevent) -> Result<()> {
        let state = self.read();
        state.check_stream(stream)?;
        state.event(event).map(drop)
    }

    pub(crate) fn create_event(&self, flags: u32) -> Result<sys::CUevent> {
        // Blocking waits (1) and events between processes (4) are flags too; there is nothing to wait for, and no IPC of
        // events.
        const BLOCKING_SYNC: u32 = 1;
        let mut state = self.write();
        let gpu = state.current()?;
        if flags & !(sys::CU_EVENT_DISABLE_TIMING | BLOCKING_SYNC) != 0 {
            return Err(Failure::INVALID_VALUE);
        }
        let (handle, has_time) = (state.handle(), flags & sys::CU_EVENT_DISABLE_TIMING == 0);
        state.events.insert(handle, Event { gpu, has_time, recorded: None });
        Ok(core::ptr::without_provenance_mut(handle))
    }

    pub(crate) fn destroy_event(&self, event: sys::CUevent) -> Result<()> {
        self.write().events.remove(&event.addr()).map(drop).ok_or(Failure::INVALID_HANDLE)
    }

    pub(crate) fn record(&self, event: sys::CUevent, stream: sys::CUstream) -> Result<()> {
        let mut state = self.write();
        state.check_stream(stream)?;
        let found = state.events.get_mut(&event.addr()).ok_or(Failure::INVALID_HANDLE)?;
        found.recorded = Some(Instant::now());
        Ok(())
    }

    /// Whether the stream has come to it, or the wait for that. One that was never recorded is done, as with CUDA.
    pub(crate) fn event_is_done(&self, event: sys::CUevent) -> Result<()> {
        self.read().event(event).map(drop)
    }

    /// Milliseconds between two events.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE` where one has no time, or was not recorded.
    pub(crate) fn elapsed(&self, start: sys::CUevent, end: sys::CUevent) -> Result<f32> {
        let state = self.read();
        let time = |event| {
            let event = state.event(event)?;
            event.recorded.filter(|_| event.has_time).ok_or(Failure::INVALID_HANDLE)
        };
        let (start, end) = (time(start)?, time(end)?);
        let milliseconds = |from: Instant, to: Instant| (to - from).as_secs_f32() * 1e3;
        Ok(if start <= end { milliseconds(start, end) } else { -milliseconds(end, start) })
    }
}
