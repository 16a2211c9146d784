//! One run: the tool, started again.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use linkproof_common::error::{Error, ErrorKind, Result, show_io_error};
use linkproof_common::interrupt;
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid, getppid};
use serde_json::Value;

use crate::arm::Arm;
use crate::line::Line;

/// What every run is told: it is one round, and its document goes to who started it.
const OPTIONS: [&str; 3] = ["--rounds", "1", "--json"];

/// How often a waiting command looks whether the run has ended, or the user wants to stop. It measures nothing
/// meanwhile, and should not disturb what does.
const LOOK_AROUND: Duration = Duration::from_millis(50);

/// Runs `program` as `arm` has it, and waits for its end.
///
/// # Errors
/// [`ErrorKind::RunLost`] where it can't be started.
pub(crate) fn run(program: &Path, line: &Line, arm: &Arm) -> Result<Output> {
    let options = OPTIONS.iter().map(|&option| option.to_owned()).chain(arm.options.iter().cloned());
    let options: Vec<String> = options.collect();
    let mut command = Command::new(program);
    command.args(line.with(&options)).envs(arm.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let starter = getpid();
    // SAFETY: between fork and exec the closure makes two system calls, and touches no memory of this process.
    unsafe {
        command.pre_exec(move || end_with(starter));
    }
    command.spawn().and_then(finish).map_err(|error| {
        Error::new(
            ErrorKind::RunLost,
            format!("cannot start a run of arm {}: {}", arm.name, show_io_error(&error)),
        )
        .fact("program", program.display())
    })
}

/// A run whose command is gone would go on measuring, for nobody.
fn end_with(starter: Pid) -> std::io::Result<()> {
    set_pdeathsig(Signal::SIGTERM)?;
    // It may have gone before that was asked for.
    if getppid() == starter { Ok(()) } else { Err(Errno::ESRCH.into()) }
}

fn finish(mut child: Child) -> std::io::Result<Output> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let stdout = scope.spawn(|| read(stdout));
        let stderr = scope.spawn(|| read(stderr));
        let status = wait(&mut child)?;
        let [stdout, stderr] = [stdout, stderr].map(|thread| thread.join().unwrap_or_default());
        Ok(Output { status, stdout, stderr })
    })
}

fn read(stream: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What came until a failure is what there is: a document that is cut off is found where it is read.
    let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
    bytes
}

/// Waits for the end of a run, and passes on a wish to stop: a terminal tells both, whoever sends a signal may not.
fn wait(child: &mut Child) -> std::io::Result<ExitStatus> {
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if interrupt::requested() && !std::mem::replace(&mut told, true) {
            // It has not been waited for: the number is still its own.
            let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT);
        }
        std::thread::sleep(LOOK_AROUND);
    }
}

/// The document that a run has written to its standard output.
///
/// # Errors
/// [`ErrorKind::RunLost`] where there is none.
pub(crate) fn document(arm: &Arm, output: &Output) -> Result<Value> {
    serde_json::from_slice(&output.stdout).map_err(|_| without_result(arm, output))
}

/// Whether the run went well, where its document is somebody else's to read.
///
/// # Errors
/// [`ErrorKind::RunLost`] where it did not.
pub(crate) fn succeeded(arm: &Arm, output: &Output) -> Result<()> {
    if output.status.success() { Ok(()) } else { Err(without_result(arm, output)) }
}

fn without_result(arm: &Arm, output: &Output) -> Error {
    let how = match (output.status.code(), output.status.signal()) {
        (Some(code), _) => format!("with exit status {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => "somehow".to_owned(),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let error =
        Error::new(ErrorKind::RunLost, format!("a run of arm {} ended {how} and left no result", arm.name));
    // The last lines: what a process says before it ends is why.
    let mut last: Vec<&str> = said.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
    last.reverse();
    let error = last.into_iter().fold(error, |error, line| error.fact("it said", line.trim()));
    error.hint("run the tool by itself with what the arm sets, to see all that it says")
}
