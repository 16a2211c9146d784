//! The driver: what begins each call, and what all of them share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

use cuda_sys::{CUDA_SUCCESS, CUresult};

use crate::allocations::Allocation;
use crate::config::Config;
use crate::context::Primary;
use crate::failure::{Failure, Result};
use crate::faults::Faults;
use crate::host::Pinned;
use crate::streams::{Event, Stream};

/// The driver of this process.
pub(crate) struct Driver {
    pub(crate) config: Config,
    faults: Faults,
    /// The process that it belongs to: a child of it has no driver, as with CUDA.
    pid: u32,
    initialised: AtomicBool,
    state: RwLock<State>,
}

/// What programs have made. Held for reading while bytes are copied, so that no memory goes away meanwhile.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) contexts: Vec<Primary>,
    /// Device memory, by its address.
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    /// Host memory that GPUs reach, by its address.
    pub(crate) pinned: BTreeMap<u64, Pinned>,
    pub(crate) streams: BTreeMap<usize, Stream>,
    pub(crate) events: BTreeMap<usize, Event>,
    /// How many handles and allocations there have been.
    counted: u64,
}

impl State {
    /// A number that no other object of the process has.
    pub(crate) fn number(&mut self) -> u64 {
        self.counted += 1;
        self.counted
    }
}

/// The driver as the environment describes it, or `None` where it can't be understood; stderr says why then: a library
/// has no better place for it.
fn driver() -> Option<&'static Driver> {
    static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
    #[allow(clippy::print_stderr, reason = "a description that is wrong must not pass in silence")]
    let made = DRIVER.get_or_init(|| match Config::from_environment() {
        Ok(config) => Some(Driver::new(config)),
        Err(what) => {
            eprintln!("softgpu: cannot use the description of the GPUs: {what}");
            None
        }
    });
    made.as_ref()
}

impl Driver {
    fn new(config: Config) -> Self {
        let contexts = (0..config.gpus).map(|_| Primary::default()).collect();
        Self {
            faults: Faults::new(&config.faults),
            config,
            pid: std::process::id(),
            initialised: AtomicBool::new(false),
            state: RwLock::new(State { contexts, ..State::default() }),
        }
    }

    fn check_use(&self) -> Result<()> {
        let usable = self.initialised.load(Ordering::Acquire) && self.pid == std::process::id();
        if usable { Ok(()) } else { Err(Failure::NOT_INITIALIZED) }
    }

    /// What there is, to look at.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What there is, to change.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// `cuInit`.
///
/// # Errors
/// `CUDA_ERROR_NO_DEVICE` where there is no GPU, `CUDA_ERROR_INVALID_VALUE` where the description is wrong.
pub(crate) fn initialise(flags: u32) -> Result<()> {
    let driver = driver().filter(|_| flags == 0).ok_or(Failure::INVALID_VALUE)?;
    driver.faults.call("cuInit")?;
    if driver.config.gpus == 0 {
        return Err(Failure::NO_DEVICE);
    }
    driver.initialised.store(true, Ordering::Release);
    driver.check_use()
}

/// The call `name`: `body`, unless the driver is not ready or a fault strikes.
pub(crate) fn call(name: &str, body: impl FnOnce(&'static Driver) -> Result<()>) -> CUresult {
    let ready = || {
        let driver = driver().ok_or(Failure::NOT_INITIALIZED)?;
        driver.check_use()?;
        driver.faults.call(name)?;
        Ok(driver)
    };
    status(ready().and_then(body))
}

/// What a function returns.
pub(crate) fn status(result: Result<()>) -> CUresult {
    result.err().map_or(CUDA_SUCCESS, |failure| failure.0)
}

/// Fills what the caller has room for.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for NULL.
///
/// # Safety
/// `place` is NULL or has room for a T.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Err(Failure::INVALID_VALUE);
    }
    // SAFETY: the caller vouches for the room; unaligned where C's `void *` doesn't promise more.
    unsafe { place.write_unaligned(value) };
    Ok(())
}
