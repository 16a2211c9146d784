//! Filling and checking buffers where they are: on the GPU, at the speed of its memory.

use std::ffi::c_void;
use std::sync::Arc;

use linkproof_common::cuda::{DeviceBuffer, GpuContext, Kernel, Module, Stream};
use linkproof_common::error::Result;

use crate::backend::Differences;
use crate::data::Recipe;

/// Made from `gpu/data.cu`.
const PTX: &str = include_str!("../../../gpu/data.ptx");
/// Threads of a block, and as many blocks as keep the largest GPU busy; each thread takes every so-many-th element.
const THREADS: u32 = 256;
const MOST_BLOCKS: u32 = 4096;

/// The kernels, compiled for the GPU that is there.
pub(super) struct DataKernels {
    fill: Kernel,
    check: Kernel,
    weights: DeviceBuffer,
    outcome: DeviceBuffer,
}

impl DataKernels {
    /// For calls of `n_ranks` ranks.
    ///
    /// # Errors
    /// The driver's: it compiles the kernels, which want a GPU of compute capability 7.0 or newer.
    pub(super) fn new(context: &Arc<GpuContext>, n_ranks: u32) -> Result<Self> {
        let module = Module::from_ptx(context, PTX)?;
        Ok(Self {
            fill: module.kernel("linkproof_fill")?,
            check: module.kernel("linkproof_check")?,
            // One for each rank, and one.
            weights: DeviceBuffer::new(context, 4 * (u64::from(n_ranks) + 1))?,
            outcome: DeviceBuffer::new(context, 16)?,
        })
    }

    /// Fills `bytes` from `address` as `recipe` says, in `stream`'s turn.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// The memory is the context's, and nothing else uses it until the stream has come to the end of it.
    pub(super) unsafe fn fill(
        &self,
        stream: &Stream,
        address: u64,
        bytes: u64,
        recipe: &Recipe<'_>,
    ) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.launch(&self.fill, stream, address, bytes, recipe, false) }?;
        stream.synchronize()
    }

    /// Compares `bytes` from `address` with what `recipe` says.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// As [`DataKernels::fill`].
    pub(super) unsafe fn check(
        &self,
        stream: &Stream,
        address: u64,
        bytes: u64,
        recipe: &Recipe<'_>,
    ) -> Result<Differences> {
        let (count, first) = (0_u64, u64::MAX);
        self.outcome.write_at(0, &[count.to_le_bytes(), first.to_le_bytes()].concat())?;
        // SAFETY: as the caller says.
        unsafe { self.launch(&self.check, stream, address, bytes, recipe, true) }?;
        stream.synchronize()?;
        let (mut count, mut first) = ([0; 8], [0; 8]);
        self.outcome.read_at(0, &mut count)?;
        self.outcome.read_at(8, &mut first)?;
        Ok(Differences { wrong_elements: u64::from_le_bytes(count), first: u64::from_le_bytes(first) })
    }

    unsafe fn launch(
        &self,
        kernel: &Kernel,
        stream: &Stream,
        mut address: u64,
        bytes: u64,
        recipe: &Recipe<'_>,
        with_outcome: bool,
    ) -> Result<()> {
        let mut count = bytes / recipe.element_bytes();
        if count == 0 {
            return Ok(());
        }
        let weights: Vec<u8> = recipe.weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
        if !weights.is_empty() {
            self.weights.write_at(0, &weights)?;
        }
        let (mut numbers, mut weights) = (recipe.numbers, self.weights.address());
        let mut outcome = self.outcome.address();
        let mut parameters: Vec<*mut c_void> = vec![
            (&raw mut numbers).cast(),
            (&raw mut weights).cast(),
            (&raw mut address).cast(),
            (&raw mut count).cast(),
        ];
        if with_outcome {
            parameters.push((&raw mut outcome).cast());
        }
        let blocks = count.div_ceil(THREADS.into()).min(MOST_BLOCKS.into()) as u32;
        // SAFETY: the parameters are those of the kernel in order, copied by the launch; the memory as the caller says.
        unsafe { kernel.launch(stream, blocks, THREADS, &mut parameters) }
    }
}
