//! Contexts: the primary one of each GPU, and which of them is a thread's.

use std::cell::RefCell;

use cuda_sys::CUcontext;

use crate::driver::{Driver, State};
use crate::failure::{Failure, Result};

/// Where the handles of contexts begin, which point to nothing: the number of the GPU follows.
const FIRST: usize = 0x5047_0001;

thread_local! {
    /// The contexts of this thread, the current one last.
    static STACK: RefCell<Vec<CUcontext>> = const { RefCell::new(Vec::new()) };
}

/// The primary context of a GPU.
#[derive(Default)]
pub(crate) struct Primary {
    /// How many times it is retained; 0: it isn't there.
    retained: u32,
}

fn handle(gpu: usize) -> CUcontext {
    core::ptr::without_provenance_mut(FIRST + gpu)
}

impl State {
    /// The GPU of a context that is there.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_CONTEXT` for what is none, `CUDA_ERROR_CONTEXT_IS_DESTROYED` for what was one.
    fn gpu_of(&self, context: CUcontext) -> Result<usize> {
        let gpu = context.addr().checked_sub(FIRST).filter(|&gpu| gpu < self.contexts.len());
        let gpu = gpu.ok_or(Failure::INVALID_CONTEXT)?;
        if self.contexts[gpu].retained > 0 { Ok(gpu) } else { Err(Failure::CONTEXT_IS_DESTROYED) }
    }

    /// The GPU of this thread's context.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_CONTEXT` where it has none.
    pub(crate) fn current(&self) -> Result<usize> {
        let last = STACK.with_borrow(|stack| stack.last().copied());
        self.gpu_of(last.ok_or(Failure::INVALID_CONTEXT)?)
    }
}

impl Driver {
    /// Takes the primary context of `gpu` into use.
    ///
    /// # Errors
    /// `CUDA_ERROR_DEVICE_UNAVAILABLE` where another process has the GPU for itself.
    pub(crate) fn retain(&self, gpu: usize) -> Result<CUcontext> {
        if self.config.exclusive.contains(&gpu) {
            return Err(Failure::DEVICE_UNAVAILABLE);
        }
        self.write().contexts[gpu].retained += 1;
        Ok(handle(gpu))
    }

    /// Gives it back; with the last use everything in it goes.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_CONTEXT` where nobody uses it.
    pub(crate) fn release(&self, gpu: usize) -> Result<()> {
        let mut state = self.write();
        let retained = &mut state.contexts[gpu].retained;
        *retained = retained.checked_sub(1).ok_or(Failure::INVALID_CONTEXT)?;
        if *retained == 0 {
            state.allocations.retain(|_, allocation| allocation.gpu != gpu);
            state.streams.retain(|_, stream| stream.gpu != gpu);
            state.events.retain(|_, event| event.gpu != gpu);
            state.pinned.retain(|_, pinned| pinned.gpu != gpu);
        }
        Ok(())
    }

    /// Makes `context` this thread's; NULL: none.
    pub(crate) fn set_current(&self, context: CUcontext) -> Result<()> {
        if !context.is_null() {
            self.read().gpu_of(context)?;
        }
        STACK.with_borrow_mut(|stack| {
            stack.pop();
            if !context.is_null() {
                stack.push(context);
            }
        });
        Ok(())
    }

    /// Makes `context` this thread's until it is popped.
    pub(crate) fn push_current(&self, context: CUcontext) -> Result<()> {
        self.read().gpu_of(context)?;
        STACK.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }
}

/// Ends the use of this thread's context, and gives it.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT` where it has none.
pub(crate) fn pop_current() -> Result<CUcontext> {
    STACK.with_borrow_mut(Vec::pop).ok_or(Failure::INVALID_CONTEXT)
}
