//! Memory of the GPU, and of the host where the GPU reaches it.

use std::sync::Arc;

use cuda_sys as sys;

use super::GpuContext;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Buffer, MemoryKind};
use crate::units::ByteSize;

/// Gives memory back to whoever allocated it.
type Release = Box<dyn FnOnce(sys::CUdeviceptr) + Send + Sync>;

/// Device memory.
pub struct DeviceBuffer {
    context: Arc<GpuContext>,
    pointer: sys::CUdeviceptr,
    len: u64,
    /// Where it is not the driver's own allocation.
    release: Option<Release>,
}

impl DeviceBuffer {
    /// `len` bytes, at least one.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] with what is free.
    pub fn new(context: &Arc<GpuContext>, len: u64) -> Result<Self> {
        let (driver, mut pointer) = (context.driver(), 0);
        // SAFETY: `pointer` is ours; the memory is freed in Drop.
        let result = unsafe { (driver.table().cuMemAlloc_v2)(&mut pointer, len.max(1) as usize) };
        if result == sys::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(no_room(context, len));
        }
        driver.check(result, "cuMemAlloc")?;
        Ok(Self { context: Arc::clone(context), pointer, len, release: None })
    }

    /// `len` bytes at `pointer` that a library has allocated in `context`; `release` gives them back to it.
    ///
    /// # Safety
    ///
    /// The memory must be device memory of that length, and nobody else's until `release` is called.
    pub unsafe fn of_library(
        context: &Arc<GpuContext>,
        pointer: u64,
        len: u64,
        release: impl FnOnce(u64) + Send + Sync + 'static,
    ) -> Self {
        Self { context: Arc::clone(context), pointer, len, release: Some(Box::new(release)) }
    }

    /// Its first byte, on the device.
    pub fn address(&self) -> u64 {
        self.pointer
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The context that it is in.
    pub fn context(&self) -> &Arc<GpuContext> {
        &self.context
    }

    /// Copies `bytes` to `offset`, and waits. Panics where they don't fit.
    ///
    /// # Errors
    /// The driver's.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.assert_within(offset, bytes.len());
        let driver = self.context.driver();
        // SAFETY: the range lies in the buffer, and `bytes` is read before the call returns.
        let result = unsafe {
            (driver.table().cuMemcpyHtoD_v2)(self.pointer + offset, bytes.as_ptr().cast(), bytes.len())
        };
        driver.check(result, "cuMemcpyHtoD")?;
        // A short copy from pageable memory may return when the bytes are on their way.
        // SAFETY: the default stream is always there.
        let result = unsafe { (driver.table().cuStreamSynchronize)(core::ptr::null_mut()) };
        driver.check(result, "cuStreamSynchronize")
    }

    /// Copies from `offset` into `bytes`, and waits. Panics where they don't fit.
    ///
    /// # Errors
    /// The driver's.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.assert_within(offset, bytes.len());
        let driver = self.context.driver();
        // SAFETY: the range lies in the buffer, and `bytes` is written before the call returns.
        let result = unsafe {
            (driver.table().cuMemcpyDtoH_v2)(bytes.as_mut_ptr().cast(), self.pointer + offset, bytes.len())
        };
        driver.check(result, "cuMemcpyDtoH")
    }

    /// Fills it with `byte`, and waits.
    ///
    /// # Errors
    /// The driver's.
    pub fn fill(&self, byte: u8) -> Result<()> {
        let driver = self.context.driver();
        // SAFETY: the range is the buffer.
        let result = unsafe { (driver.table().cuMemsetD8_v2)(self.pointer, byte, self.len as usize) };
        driver.check(result, "cuMemsetD8")?;
        // Filling does not wait by itself.
        self.context.synchronize()
    }

    /// Makes copies to and from it complete before they return to the host, which an adapter that reads it relies on.
    ///
    /// # Errors
    /// The driver's.
    pub fn set_sync_memops(&self) -> Result<()> {
        let (driver, on) = (self.context.driver(), 1_u32);
        // SAFETY: the attribute is a number of that width, read during the call.
        let result = unsafe {
            (driver.table().cuPointerSetAttribute)(
                (&raw const on).cast(),
                sys::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                self.pointer,
            )
        };
        driver.check(result, "cuPointerSetAttribute SYNC_MEMOPS")
    }

    fn assert_within(&self, offset: u64, len: usize) {
        assert!(offset.checked_add(len as u64).is_some_and(|end| end <= self.len), "outside the buffer");
    }
}

#[cold]
fn no_room(context: &GpuContext, len: u64) -> Error {
    let free = context.free_bytes().ok().map(ByteSize);
    Error::new(ErrorKind::Memory, format!("{} has no room for {}", context.gpu().describe(), ByteSize(len)))
        .fact_if("free", free)
        .hint("see who holds the GPU's memory (nvidia-smi), or measure smaller messages")
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        match self.release.take() {
            Some(release) => release(self.pointer),
            // SAFETY: the memory is ours and freed once; whoever gave its address away has ended that before.
            None => _ = unsafe { (self.context.driver().table().cuMemFree_v2)(self.pointer) },
        }
    }
}

/// Host memory that the GPU copies from and to directly.
pub struct PinnedBuffer {
    context: Arc<GpuContext>,
    pointer: *mut u8,
    len: usize,
}

// SAFETY: the memory belongs to the buffer alone; the pointer is set once and freed once.
unsafe impl Send for PinnedBuffer {}
// SAFETY: shared, it is only reached by copies through the pointer, and may change under them.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// `len` bytes, at least one; what they are at first is not known.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`].
    pub fn new(context: &Arc<GpuContext>, len: usize) -> Result<Self> {
        let (driver, mut pointer) = (context.driver(), core::ptr::null_mut());
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: `pointer` is ours; the memory is freed in Drop.
        let result = unsafe { (driver.table().cuMemHostAlloc)(&mut pointer, len.max(1), flags) };
        driver.check(result, "cuMemHostAlloc")?;
        Ok(Self { context: Arc::clone(context), pointer: pointer.cast(), len })
    }

    /// Makes all of it zero; nobody else has it yet.
    pub fn clear(&self) {
        // SAFETY: the range is the buffer, and the caller's alone.
        unsafe { self.pointer.write_bytes(0, self.len) };
    }

    /// Its first byte.
    pub fn pointer(&self) -> *mut u8 {
        self.pointer
    }
}

/// As host memory that an adapter uses: reached by copies through raw pointers alone.
impl Buffer for PinnedBuffer {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn address(&self) -> u64 {
        self.pointer.addr() as u64
    }

    fn len(&self) -> u64 {
        self.len as u64
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        assert!(offset as usize + bytes.len() <= self.len, "outside the buffer");
        // SAFETY: the range lies in the buffer, which lives as long as `self`.
        unsafe { self.pointer.add(offset as usize).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        assert!(offset as usize + bytes.len() <= self.len, "outside the buffer");
        // SAFETY: as above.
        unsafe { self.pointer.add(offset as usize).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: the memory is ours and freed once; copies from and to it are waited for by whoever began them.
        unsafe { (self.context.driver().table().cuMemFreeHost)(self.pointer.cast()) };
    }
}
