//! A tool as a process: started, watched, signalled, and never left behind.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::capture::Capture;
use crate::{SOON, binary, library, rdma_devices, schema, softgpu};

/// How often a test looks whether a process has ended once its streams are closed.
const LOOK_AROUND: Duration = Duration::from_millis(2);

/// A command line to be.
pub struct Tool {
    words: Vec<OsString>,
    env: Vec<(String, OsString)>,
}

impl Tool {
    /// The built tool `name`.
    pub fn new(name: &str) -> Self {
        Self::program(&binary(name))
    }

    /// Any program.
    pub fn program(path: &Path) -> Self {
        Self { words: vec![path.into()], env: Vec::new() }
    }

    /// The built tool `name`, over TCP, which every host has.
    pub fn tcp(name: &str) -> Self {
        Self::new(name).args("--transport tcp")
    }

    /// `write-bw` over TCP.
    pub fn write_bw_tcp() -> Self {
        Self::tcp("write-bw")
    }

    /// The built tool `name` on the software device `soft0`, seen by processes of the same `fabric` only. `devices`
    /// goes on with the description; empty: one device with nothing special.
    pub fn soft(name: &str, fabric: &str, devices: &str) -> Self {
        Self::new(name)
            .args("-d soft0")
            .env("LINKPROOF_IBVERBS", library("softnic"))
            .env("LINKPROOF_SOFTNIC", format!("fabric={fabric}; {devices}"))
    }

    /// perftest's `program` on the same device; its memory is the host's, and the other end's may be a GPU's.
    pub fn perftest(program: &str, fabric: &str, devices: &str) -> Self {
        Self::program(Path::new("/usr/bin/env"))
            .arg(format!("LD_PRELOAD={}", library("softnic").display()))
            .arg(format!("LINKPROOF_SOFTNIC=fabric={fabric}; {devices}"))
            .arg(format!("LINKPROOF_CUDA={}", softgpu().display()))
            .arg(program)
            .args("-d soft0 -F")
    }

    /// Adds arguments, split at spaces.
    #[must_use]
    pub fn args(mut self, args: &str) -> Self {
        self.words.extend(args.split_whitespace().map(OsString::from));
        self
    }

    /// Adds one argument as it is.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.words.push(arg.into());
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Runs it by way of another program, split at spaces: `unshare -n`.
    #[must_use]
    pub fn by_way_of(mut self, program: &str) -> Self {
        self.words.splice(0..0, program.split_whitespace().map(OsString::from));
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// Where it can't be started.
    pub fn start(self) -> Running {
        let mut command = Command::new(&self.words[0]);
        // Help is laid out for the terminal's width and messages follow the user's language and colours otherwise.
        command.args(&self.words[1..]).env_remove("COLUMNS").env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1");
        command
            .env_remove("LINKPROOF_IBVERBS")
            .env_remove("LINKPROOF_SOFTNIC")
            .env_remove("LINKPROOF_SOFTGPU")
            .envs(self.env.clone());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let line = self.line();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {line}: {error}"));
        let stdout = Capture::of(child.stdout.take().expect("stdout is a pipe"));
        let stderr = Capture::of(child.stderr.take().expect("stderr is a pipe"));
        Running { line, child, stdout, stderr, status: None }
    }

    /// Starts it and waits for its end.
    pub fn run(self) -> Finished {
        self.start().finish()
    }

    /// Starts it as a server on `port` and waits until it says that it serves.
    pub fn serve(self, port: u16) -> Running {
        let server = self.arg("--port").arg(port.to_string()).start();
        server.wait_for_stderr(&format!("serving on TCP port {port}"));
        server
    }

    fn line(&self) -> String {
        let env = self.env.iter().map(|(name, value)| format!("{name}={}", value.to_string_lossy()));
        let words = self.words.iter().map(|word| word.to_string_lossy().into_owned());
        env.chain(words).collect::<Vec<_>>().join(" ")
    }
}

/// A process that runs. It is killed when this goes, and tells its story if the test has failed.
pub struct Running {
    line: String,
    child: Child,
    stdout: Capture,
    stderr: Capture,
    status: Option<ExitStatus>,
}

impl Running {
    /// Waits until stderr contains `text`.
    ///
    /// # Panics
    /// Where the process ends or the deadline passes before.
    pub fn wait_for_stderr(&self, text: &str) {
        let said = self.stderr.wait_for(SOON, |stderr| stderr.contains(text));
        assert!(said, "{} did not say \"{text}\" on stderr", self.line);
    }

    /// Waits until stderr is as `condition` wants it; `what` says that in words.
    ///
    /// # Panics
    /// Where the process ends or the deadline passes before.
    pub fn wait_for_stderr_that(&self, what: &str, condition: impl Fn(&str) -> bool) {
        assert!(self.stderr.wait_for(SOON, condition), "no stderr of {} that {what}", self.line);
    }

    /// Waits until stdout has `count` lines.
    ///
    /// # Panics
    /// Where the process ends or the deadline passes before.
    pub fn wait_for_stdout_lines(&self, count: usize) -> Vec<String> {
        let enough = |stdout: &str| stdout.bytes().filter(|&byte| byte == b'\n').count() >= count;
        let said = self.stdout.wait_for(SOON, enough);
        assert!(said, "{} did not write {count} lines to stdout", self.line);
        self.stdout.text().lines().map(str::to_owned).collect()
    }

    /// What it has written to stdout so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it has written to stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// Where it has ended and was waited for, or can't be signalled.
    pub fn signal(&self, signal: Signal) {
        assert!(self.status.is_none(), "{} has ended", self.line);
        // Not yet waited for: the number can't be another process's.
        let pid = Pid::from_raw(self.child.id() as i32);
        kill(pid, signal).unwrap_or_else(|error| panic!("cannot send {signal} to {}: {error}", self.line));
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// Where it doesn't end in time.
    pub fn finish(self) -> Finished {
        self.finish_within(SOON * 3)
    }

    /// Waits for its end, `limit` at most.
    ///
    /// # Panics
    /// Where it doesn't end in time.
    pub fn finish_within(mut self, limit: Duration) -> Finished {
        let begin = Instant::now();
        let ended = self.stdout.wait_for_end(limit)
            && self.stderr.wait_for_end(limit.saturating_sub(begin.elapsed()))
            && self.reaped(begin + limit);
        assert!(ended, "{} did not end within {limit:?}", self.line);
        let status = self.status.expect("it was reaped");
        let (stdout, stderr) = (self.stdout.text(), self.stderr.text());
        Finished { line: self.line.clone(), status, stdout, stderr, took: begin.elapsed() }
    }

    /// The streams of a process close before it can be waited for.
    fn reaped(&mut self, deadline: Instant) -> bool {
        loop {
            self.status = self.child.try_wait().expect("a child can be waited for");
            if self.status.is_some() || Instant::now() >= deadline {
                return self.status.is_some();
            }
            std::thread::sleep(LOOK_AROUND);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.status.is_some() {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What was written before the kill is still on its way through the pipes.
        self.stdout.wait_for_end(Duration::from_secs(1));
        self.stderr.wait_for_end(Duration::from_secs(1));
        if std::thread::panicking() {
            tell(&self.line, "killed by the test", &self.stdout.text(), &self.stderr.text());
        }
    }
}

/// A process that has ended; tells its story if the test fails while this is there.
pub struct Finished {
    line: String,
    status: ExitStatus,
    /// All that it wrote to stdout.
    pub stdout: String,
    /// All that it wrote to stderr.
    pub stderr: String,
    /// How long the test waited for its end.
    pub took: Duration,
}

impl Finished {
    /// Checks the exit status.
    ///
    /// # Panics
    /// Where it is another, or a signal ended the process.
    pub fn exits(&self, code: i32) -> &Self {
        assert!(self.status.code() == Some(code), "{} should exit {code}: {}", self.line, self.how());
        self
    }

    /// Checks that stderr has every one of `texts`.
    ///
    /// # Panics
    /// Where one is missing.
    pub fn says(&self, texts: &[&str]) -> &Self {
        for text in texts {
            assert!(self.stderr.contains(text), "stderr of {} lacks \"{text}\"", self.line);
        }
        self
    }

    /// Checks that stdout is empty.
    ///
    /// # Panics
    /// Where it isn't.
    pub fn silent_on_stdout(&self) -> &Self {
        assert_eq!(self.stdout, "", "stdout of {} should be empty", self.line);
        self
    }

    /// The one document on stdout, which is valid and all that is there.
    ///
    /// # Panics
    /// Where stdout is anything else.
    pub fn document(&self) -> Value {
        schema::parse(&self.stdout)
    }

    /// The lines of the table: everything below the header with `#bytes`, split into columns.
    pub fn rows(&self) -> Vec<Vec<&str>> {
        let below = self.stdout.lines().skip_while(|line| !line.contains("#bytes")).skip(1);
        below
            .take_while(|line| !line.starts_with("---"))
            .map(|line| line.split_whitespace().collect())
            .collect()
    }

    fn how(&self) -> String {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exited {code}"),
            (None, signal) => format!("ended by signal {}", signal.unwrap_or(0)),
        }
    }
}

impl Drop for Finished {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tell(&self.line, &self.how(), &self.stdout, &self.stderr);
        }
    }
}

#[allow(clippy::print_stderr, reason = "the harness shows it with the failed test")]
fn tell(line: &str, how: &str, stdout: &str, stderr: &str) {
    eprintln!("--- {line}\n--- {how}; RDMA devices here: {:?}", rdma_devices());
    eprintln!("--- stdout:\n{stdout}--- stderr:\n{stderr}---");
}
