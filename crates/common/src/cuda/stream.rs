//! What runs in turn, the moments in it, and recordings of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_sys as sys;

use super::GpuContext;
use crate::error::{Error, ErrorKind, Result};

/// Work of the GPU that runs in turn.
pub struct Stream {
    context: Arc<GpuContext>,
    raw: sys::CUstream,
}

// SAFETY: streams may be used from any thread that has the context; the pointer is set once and freed once.
unsafe impl Send for Stream {}

/// How often a wait with a limit looks: the answer is no part of a measured time.
const LOOK_AROUND: Duration = Duration::from_micros(20);

impl Stream {
    /// A stream that does not wait for the default one.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Arc<GpuContext>) -> Result<Self> {
        let (driver, mut raw) = (context.driver(), core::ptr::null_mut());
        // SAFETY: `raw` is ours; the stream is destroyed in Drop.
        let result = unsafe { (driver.table().cuStreamCreate)(&mut raw, sys::CU_STREAM_NON_BLOCKING) };
        driver.check(result, "cuStreamCreate")?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// The raw stream.
    pub fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// The context that it is in.
    pub fn context(&self) -> &Arc<GpuContext> {
        &self.context
    }

    /// Copies `len` bytes of device memory to pinned host memory, in the stream's turn.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// Both have `len` bytes, which stay theirs, and unused otherwise, until the stream has come so far.
    pub unsafe fn copy_to_host(&self, to: *mut u8, from: u64, len: usize) -> Result<()> {
        let driver = self.context.driver();
        // SAFETY: the caller vouches for the memory; the stream is ours.
        let result = unsafe { (driver.table().cuMemcpyDtoHAsync_v2)(to.cast(), from, len, self.raw) };
        driver.check(result, "cuMemcpyDtoHAsync")
    }

    /// Copies `len` bytes of pinned host memory to device memory, in the stream's turn.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// As for [`Stream::copy_to_host`].
    pub unsafe fn copy_to_device(&self, to: u64, from: *const u8, len: usize) -> Result<()> {
        let driver = self.context.driver();
        // SAFETY: as above.
        let result = unsafe { (driver.table().cuMemcpyHtoDAsync_v2)(to, from.cast(), len, self.raw) };
        driver.check(result, "cuMemcpyHtoDAsync")
    }

    /// Waits until all in it is done.
    ///
    /// # Errors
    /// What failed meanwhile.
    pub fn synchronize(&self) -> Result<()> {
        let driver = self.context.driver();
        // SAFETY: the stream is ours.
        driver.check(unsafe { (driver.table().cuStreamSynchronize)(self.raw) }, "cuStreamSynchronize")
    }

    /// Whether all in it is done.
    ///
    /// # Errors
    /// What failed meanwhile.
    pub fn is_done(&self) -> Result<bool> {
        let driver = self.context.driver();
        // SAFETY: the stream is ours.
        match unsafe { (driver.table().cuStreamQuery)(self.raw) } {
            sys::CUDA_ERROR_NOT_READY => Ok(false),
            result => driver.check(result, "cuStreamQuery").map(|()| true),
        }
    }

    /// Waits until all in it is done, but no longer than `limit`, and asks `meanwhile` now and then.
    ///
    /// # Errors
    /// What failed meanwhile; [`ErrorKind::Stalled`] where it is not done in time; what `meanwhile` says.
    pub fn wait(&self, limit: Duration, mut meanwhile: impl FnMut() -> Result<()>) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !self.is_done()? {
            meanwhile()?;
            if Instant::now() >= deadline {
                return Err(Error::new(
                    ErrorKind::Stalled,
                    format!("the GPU did not finish within {} s", limit.as_secs_f64()),
                ));
            }
            std::thread::sleep(LOOK_AROUND);
        }
        Ok(())
    }

    /// Records what `body` puts into the stream, instead of running it.
    ///
    /// # Errors
    /// The driver's, and those of `body`.
    pub fn capture(&self, body: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let driver = self.context.driver();
        let instantiate = driver.table().cuGraphInstantiateWithFlags.ok_or_else(|| {
            Error::new(ErrorKind::GpuDriver, "the CUDA driver can't run graphs")
                .fact("driver", format!("CUDA {}", driver.cuda_version()))
                .hint("use a driver for CUDA 11.4 or newer, or measure without graphs")
        })?;
        let mode = sys::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is ours.
        let began = unsafe { (driver.table().cuStreamBeginCapture_v2)(self.raw, mode) };
        driver.check(began, "cuStreamBeginCapture")?;
        let recorded = body();
        let (mut graph, mut exec) = (core::ptr::null_mut(), core::ptr::null_mut());
        // SAFETY: as above; `graph` is ours. A capture is ended also where its body failed.
        let ended = unsafe { (driver.table().cuStreamEndCapture)(self.raw, &mut graph) };
        recorded?;
        driver.check(ended, "cuStreamEndCapture")?;
        // SAFETY: the graph was recorded just now; what can be run is independent of it.
        let result = unsafe {
            let result = instantiate(&mut exec, graph, 0);
            (driver.table().cuGraphDestroy)(graph);
            result
        };
        driver.check(result, "cuGraphInstantiate")?;
        Ok(Graph { context: Arc::clone(&self.context), exec })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is ours and destroyed once; the driver frees it when its work is done.
        unsafe { (self.context.driver().table().cuStreamDestroy_v2)(self.raw) };
    }
}

/// A recording that can be run again and again.
pub struct Graph {
    context: Arc<GpuContext>,
    exec: sys::CUgraphExec,
}

impl Graph {
    /// Brings it to the GPU in `stream`'s turn, so that its first launch does not have to; nothing where the driver is too
    /// old to do that apart.
    ///
    /// # Errors
    /// The driver's.
    pub fn upload(&self, stream: &Stream) -> Result<()> {
        let driver = self.context.driver();
        let Some(upload) = driver.table().cuGraphUpload else { return Ok(()) };
        // SAFETY: both are alive.
        driver.check(unsafe { upload(self.exec, stream.raw) }, "cuGraphUpload")
    }

    /// Runs it in `stream`.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let driver = self.context.driver();
        // SAFETY: both are alive.
        driver.check(unsafe { (driver.table().cuGraphLaunch)(self.exec, stream.raw) }, "cuGraphLaunch")
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: ours, and destroyed once.
        unsafe { (self.context.driver().table().cuGraphExecDestroy)(self.exec) };
    }
}

/// A moment in a stream, by the GPU's clock.
pub struct Event {
    context: Arc<GpuContext>,
    raw: sys::CUevent,
}

// SAFETY: events may be used from any thread that has the context; the pointer is set once and freed once.
unsafe impl Send for Event {}

impl Event {
    /// An event that keeps its time.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Arc<GpuContext>) -> Result<Self> {
        Self::with(context, sys::CU_EVENT_DEFAULT)
    }

    /// An event that can only be waited for, which costs less.
    ///
    /// # Errors
    /// The driver's.
    pub fn untimed(context: &Arc<GpuContext>) -> Result<Self> {
        Self::with(context, sys::CU_EVENT_DISABLE_TIMING)
    }

    fn with(context: &Arc<GpuContext>, flags: u32) -> Result<Self> {
        let (driver, mut raw) = (context.driver(), core::ptr::null_mut());
        // SAFETY: `raw` is ours; the event is destroyed in Drop.
        let result = unsafe { (driver.table().cuEventCreate)(&mut raw, flags) };
        driver.check(result, "cuEventCreate")?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// Whether its stream has come to it.
    ///
    /// # Errors
    /// What failed meanwhile.
    pub fn has_come(&self) -> Result<bool> {
        let driver = self.context.driver();
        // SAFETY: the event is alive.
        match unsafe { (driver.table().cuEventQuery)(self.raw) } {
            sys::CUDA_ERROR_NOT_READY => Ok(false),
            result => driver.check(result, "cuEventQuery").map(|()| true),
        }
    }

    /// Waits until its stream has come to it; an event that was never recorded is not waited for.
    ///
    /// # Errors
    /// What failed meanwhile.
    pub fn wait(&self) -> Result<()> {
        let driver = self.context.driver();
        // SAFETY: the event is alive.
        driver.check(unsafe { (driver.table().cuEventSynchronize)(self.raw) }, "cuEventSynchronize")
    }

    /// Puts it into `stream`.
    ///
    /// # Errors
    /// The driver's.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let driver = self.context.driver();
        // SAFETY: both are alive.
        driver.check(unsafe { (driver.table().cuEventRecord)(self.raw, stream.raw) }, "cuEventRecord")
    }

    /// Nanoseconds from `earlier` to this, both of which their streams have come to; the driver rounds to about 500.
    ///
    /// # Errors
    /// The driver's.
    pub fn ns_since(&self, earlier: &Self) -> Result<u64> {
        let (driver, mut milliseconds) = (self.context.driver(), 0.0);
        // SAFETY: both events are alive, `milliseconds` is ours.
        let result = unsafe { (driver.table().cuEventElapsedTime)(&mut milliseconds, earlier.raw, self.raw) };
        driver.check(result, "cuEventElapsedTime")?;
        Ok((f64::from(milliseconds) * 1e6).round().max(0.0) as u64)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: ours, and destroyed once.
        unsafe { (self.context.driver().table().cuEventDestroy_v2)(self.raw) };
    }
}
