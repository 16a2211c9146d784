//! softgpu, the CUDA driver in host memory, through the table that the tools use.
//!
//! A driver is one process's, and described by its environment: each test runs itself again with that.
#![allow(unsafe_code, reason = "the driver's interface is C's")]

mod configured;
mod contexts;
mod copies;
mod memory;
mod peers;

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use cuda_sys as sys;
use cuda_sys::{CUdeviceptr, CUresult, Cuda};
use linkproof_tests::softgpu;

/// Tells the process of a test from the one that starts it.
const ROLE: &str = "LINKPROOF_TEST_ROLE";

/// A driver that is ready.
pub(crate) struct Driver(Cuda);

impl std::ops::Deref for Driver {
    type Target = Cuda;
    fn deref(&self) -> &Cuda {
        &self.0
    }
}

/// This test's executable as a process that runs `test` alone, in `role`, with GPUs as `config` describes them.
fn again(test: &str, role: &str, config: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a running test has a path"));
    command.args([test, "--exact", "--nocapture"]).env(ROLE, role).env("LINKPROOF_SOFTGPU", config);
    command
}

/// The role of this process; `None` in the one that cargo started.
fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Runs `body` in a process of its own, as the test `test` that this is called in.
pub(crate) fn alone(test: &str, config: &str, body: fn(&Driver)) {
    alone_among(test, config, &[], body);
}

/// The same with more variables in the environment.
pub(crate) fn alone_among(
    test: &str,
    config: &str,
    environment: &[(&str, std::ffi::OsString)],
    body: fn(&Driver),
) {
    match role() {
        Some(_) => body(&Driver::open()),
        None => passes(again(test, "body", config).envs(environment.iter().cloned())),
    }
}

/// The other process of a test.
pub(crate) struct Other {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    /// What follows `mark` in the next line of its output that has it.
    #[track_caller]
    pub(crate) fn says(&mut self, mark: &str) -> String {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        let rest = lines.find_map(|line| line.split_once(mark).map(|(_, rest)| rest.to_owned()));
        rest.unwrap_or_else(|| panic!("the other process ended before it said {mark}"))
    }

    /// Lets it go on from where it waits for a line.
    pub(crate) fn go_on(&mut self) {
        writeln!(self.process.stdin.as_mut().expect("it is a pipe")).expect("the other process listens");
    }

    /// Reads what it still says, so that it can, and waits for its end.
    fn finish(mut self) {
        drop(self.process.stdin.take());
        self.lines.by_ref().map_while(Result::ok).for_each(drop);
        assert!(self.process.wait().expect("it ends").success(), "the other process failed");
    }
}

/// In the other process: says `line`, which [`Other::says`] waits for.
pub(crate) fn say(line: &str) {
    // Not println!: the test harness's own words may stand in the line already.
    writeln!(std::io::stdout(), "\n{line}").expect("the test listens");
}

/// In the other process: waits for [`Other::go_on`], or the end of the test.
pub(crate) fn wait() {
    std::io::stdin().read_line(&mut String::new()).expect("stdin is a pipe");
}

/// Runs `body` in a process of its own, and `other`, which it starts, in another.
pub(crate) fn with_other(test: &str, body: fn(&Driver, &mut Other), other: fn(&Driver)) {
    match role().as_deref() {
        Some("other") => other(&Driver::open()),
        Some(_) => {
            let mut command = again(test, "other", "");
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut process = command.spawn().expect("the test can be started again");
            let lines = BufReader::new(process.stdout.take().expect("it is a pipe")).lines();
            let mut other = Other { process, lines };
            body(&Driver::open(), &mut other);
            other.finish();
        }
        None => passes(&mut again(test, "body", "")),
    }
}

fn passes(command: &mut Command) {
    let output = command.output().expect("the test can be started again");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{command:?}: {out}\n{err}");
}

impl Driver {
    fn load() -> Self {
        Self(Cuda::open(softgpu()).expect("the driver has all functions"))
    }

    /// Initialised, with the first GPU's context this thread's.
    fn open() -> Self {
        let driver = Self::load();
        // SAFETY: the flags are 0.
        if unsafe { (driver.cuInit)(0) } == sys::CUDA_SUCCESS {
            let mut context = core::ptr::null_mut();
            // SAFETY: `context` is ours.
            let result = unsafe { (driver.cuDevicePrimaryCtxRetain)(&mut context, 0) };
            if result == sys::CUDA_SUCCESS {
                // SAFETY: the context is in use.
                driver.good(unsafe { (driver.cuCtxSetCurrent)(context) });
            }
        }
        driver
    }

    #[track_caller]
    pub(crate) fn good(&self, result: CUresult) {
        assert_eq!(result, sys::CUDA_SUCCESS, "{}", self.describe(result));
    }

    /// Device memory.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<CUdeviceptr, CUresult> {
        let mut pointer = 0;
        // SAFETY: `pointer` is ours.
        match unsafe { (self.cuMemAlloc_v2)(&mut pointer, bytes) } {
            sys::CUDA_SUCCESS => Ok(pointer),
            failure => Err(failure),
        }
    }

    pub(crate) fn free(&self, pointer: CUdeviceptr) -> CUresult {
        // SAFETY: any address may be asked for.
        unsafe { (self.cuMemFree_v2)(pointer) }
    }

    /// Copies to the device.
    fn put(&self, to: CUdeviceptr, bytes: &[u8]) -> CUresult {
        // SAFETY: the slice has that many bytes.
        unsafe { (self.cuMemcpyHtoD_v2)(to, bytes.as_ptr().cast(), bytes.len()) }
    }

    /// Copies from the device.
    #[track_caller]
    fn get(&self, from: CUdeviceptr, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xee; len];
        // SAFETY: the vector has that many bytes.
        self.good(unsafe { (self.cuMemcpyDtoH_v2)(bytes.as_mut_ptr().cast(), from, len) });
        bytes
    }

    /// A descriptor in a dma-buf's place.
    pub(crate) fn export(&self, pointer: CUdeviceptr, bytes: usize) -> Result<i32, CUresult> {
        let (mut fd, kind) = (-1, sys::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
        let call = self.cuMemGetHandleForAddressRange.expect("it is there");
        // SAFETY: `fd` is ours.
        match unsafe { call((&raw mut fd).cast(), pointer, bytes, kind, 0) } {
            sys::CUDA_SUCCESS => Ok(fd),
            failure => Err(failure),
        }
    }

    /// A pointer's attribute, where that is a 32-bit number.
    fn pointer_attribute(&self, which: u32, pointer: CUdeviceptr) -> Result<u32, CUresult> {
        let mut value = u32::MAX;
        // SAFETY: `value` is ours, and of the attribute's width.
        match unsafe { (self.cuPointerGetAttribute)((&raw mut value).cast(), which, pointer) } {
            sys::CUDA_SUCCESS => Ok(value),
            failure => Err(failure),
        }
    }
}
