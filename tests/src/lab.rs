//! The Soft-RoCE lab as tests see it: two VMs, programs in them, and the faults that can be set up there.
//!
//! `ci/rxe-lab` does the work; this module calls it, with a deadline for everything.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a program in a VM may take: emulated, on a busy host, with another VM beside it.
pub const PROGRAM_LIMIT: Duration = Duration::from_secs(120);

/// Whether the lab is to measure as much as users do, and not as little as shows that it can: with `LINKPROOF_LAB_LONG`.
pub fn is_long() -> bool {
    std::env::var_os("LINKPROOF_LAB_LONG").is_some()
}

/// [`PROGRAM_LIMIT`], or what long measurements need.
pub fn program_limit() -> Duration {
    if is_long() { 5 * PROGRAM_LIMIT } else { PROGRAM_LIMIT }
}

/// How long a server may take until it says that it serves.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// The lab, up.
pub struct Lab {
    script: PathBuf,
}

/// One of its two VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vm {
    /// 10.77.0.1, fd77::1.
    A,
    /// 10.77.0.2, fd77::2.
    B,
}

impl Vm {
    /// Its name in the lab, which resolves in both VMs.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }
}

/// As whom a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Root, whose capabilities lift the locked-memory limit.
    Root,
    /// Nobody, without capabilities, with this locked-memory limit in bytes.
    Nobody {
        /// `RLIMIT_MEMLOCK`, soft and hard.
        memlock: u64,
    },
}

/// What a program in a VM left behind.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The command, for messages.
    pub command: String,
    /// The exit status.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// How long it ran, as seen from here.
    pub elapsed: Duration,
}

impl Outcome {
    /// Fails the test, showing everything, unless the status is `status`.
    #[track_caller]
    pub fn expect_status(self, status: i32) -> Self {
        assert!(self.status == status, "expected status {status}\n{}", self.show());
        self
    }

    /// Fails the test, showing everything, unless stderr has every one of `words`.
    #[track_caller]
    pub fn expect_stderr(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.stderr.contains(word), "stderr lacks \"{word}\"\n{}", self.show());
        }
        self
    }

    /// Fails the test, showing everything, unless stdout has every one of `words`.
    #[track_caller]
    pub fn expect_stdout(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.stdout.contains(word), "stdout lacks \"{word}\"\n{}", self.show());
        }
        self
    }

    /// The one JSON document on stdout.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("stdout is no JSON document: {error}\n{}", self.show()))
    }

    /// Everything, for a failed test.
    pub fn show(&self) -> String {
        format!(
            "command: {}\nstatus: {} after {:.1} s\nstdout:\n{}\nstderr:\n{}",
            self.command,
            self.status,
            self.elapsed.as_secs_f64(),
            self.stdout,
            self.stderr
        )
    }
}

impl Lab {
    /// The lab, brought up once for all tests of this process. `None`, with the reason printed, where the tests
    /// were not asked for it: it takes root, QEMU and half a minute.
    ///
    /// # Panics
    /// Where it was asked for and does not come up.
    pub fn get(test: &str) -> Option<&'static Self> {
        static LAB: OnceLock<Lab> = OnceLock::new();
        if std::env::var_os("LINKPROOF_LAB").is_none() {
            crate::skip(
                test,
                "set LINKPROOF_LAB=1 to run the tests that need the Soft-RoCE lab (ci/test does)",
            );
            return None;
        }
        Some(LAB.get_or_init(Self::up))
    }

    fn up() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ci/rxe-lab");
        let status =
            Command::new(&script).arg("up").stdin(Stdio::null()).status().expect("ci/rxe-lab can be run");
        assert!(status.success(), "ci/rxe-lab up failed: {status}");
        Self { script }
    }

    /// Starts `program` in `vm`.
    pub fn start(&self, vm: Vm, user: User, program: &[&str]) -> Running {
        self.start_over(&[], vm, user, program)
    }

    fn start_over(&self, connection: &[&str], vm: Vm, user: User, program: &[&str]) -> Running {
        let mut command = Command::new(&self.script);
        command.arg("exec").args(connection);
        if let User::Nobody { memlock } = user {
            command.args(["--user", "nobody", "--memlock", &memlock.to_string()]);
        }
        command.args([vm.name(), "--"]).args(program);
        Running::start(command, format!("in {}: {}", vm.name(), program.join(" ")))
    }

    /// Runs `program` in `vm` as root to its end, over the connection that is there already: it is not ended from here.
    pub fn run(&self, vm: Vm, program: &[&str]) -> Outcome {
        self.run_as(vm, User::Root, program)
    }

    /// The same as `user`.
    pub fn run_as(&self, vm: Vm, user: User, program: &[&str]) -> Outcome {
        self.start_over(&["--shared"], vm, user, program).finish()
    }

    /// Runs a shell script in `vm`; fails the test unless it succeeds. Gives its output.
    #[track_caller]
    pub fn shell(&self, vm: Vm, script: &str) -> String {
        self.run(vm, &["sh", "-ec", script]).expect_status(0).stdout
    }

    /// Starts a server in `vm` and returns when it serves.
    #[track_caller]
    pub fn server(&self, vm: Vm, user: User, program: &[&str]) -> Running {
        let mut server = self.start(vm, user, program);
        server.await_stderr("serving on TCP port", READY_LIMIT);
        server
    }
}

/// A program that runs in a VM; killed when dropped, in the VM as well.
pub struct Running {
    command: String,
    child: Child,
    begin: Instant,
    lines: Receiver<(Stream, String)>,
    stdout: String,
    stderr: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Out,
    Err,
}

impl Running {
    fn start(mut command: Command, shown: String) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ci/rxe-lab can be run");
        let (sender, lines) = channel();
        let follow = |stream, pipe: Box<dyn Read + Send>| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    if sender.send((stream, line)).is_err() {
                        return;
                    }
                }
            });
        };
        follow(Stream::Out, Box::new(child.stdout.take().expect("piped")));
        follow(Stream::Err, Box::new(child.stderr.take().expect("piped")));
        drop(sender);
        Self {
            command: shown,
            child,
            begin: Instant::now(),
            lines,
            stdout: String::new(),
            stderr: String::new(),
        }
    }

    /// Takes the next line; false where both streams have ended.
    fn next_line(&mut self, deadline: Instant) -> Option<bool> {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((stream, line)) => {
                let text = if stream == Stream::Out { &mut self.stdout } else { &mut self.stderr };
                text.push_str(&line);
                text.push('\n');
                Some(true)
            }
            Err(RecvTimeoutError::Disconnected) => Some(false),
            Err(RecvTimeoutError::Timeout) => None,
        }
    }

    /// Waits until stderr has `words`.
    #[track_caller]
    pub fn await_stderr(&mut self, words: &str, limit: Duration) {
        self.await_lines(limit, words, |running| running.stderr.contains(words));
    }

    /// Waits until stderr is as `condition` wants it; `what` says that in words.
    #[track_caller]
    pub fn await_stderr_that(&mut self, what: &str, limit: Duration, condition: impl Fn(&str) -> bool) {
        self.await_lines(limit, what, |running| condition(&running.stderr));
    }

    /// Waits until `count` lines on stdout begin with `{`: as many documents.
    #[track_caller]
    pub fn await_documents(&mut self, count: usize, limit: Duration) -> Vec<serde_json::Value> {
        let documents = |running: &Self| running.stdout.lines().filter(|line| line.starts_with('{')).count();
        self.await_lines(limit, "a document", |running| documents(running) >= count);
        let lines = self.stdout.lines().filter(|line| line.starts_with('{'));
        lines.map(|line| serde_json::from_str(line).expect("each line is a document")).collect()
    }

    #[track_caller]
    fn await_lines(&mut self, limit: Duration, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + limit;
        while !condition(self) {
            let more = self.next_line(deadline);
            assert!(more == Some(true), "no \"{what}\" within {limit:?}\n{}", self.show());
        }
    }

    fn show(&self) -> String {
        format!("command: {}\nstdout:\n{}\nstderr:\n{}", self.command, self.stdout, self.stderr)
    }

    /// Waits for the end, at most [`program_limit`].
    #[track_caller]
    pub fn finish(mut self) -> Outcome {
        let limit = program_limit();
        let deadline = Instant::now() + limit;
        while let Some(true) = self.next_line(deadline) {}
        assert!(Instant::now() < deadline, "still running after {limit:?}\n{}", self.show());
        let status = self.child.wait().expect("the child is ours");
        Outcome {
            command: std::mem::take(&mut self.command),
            // ssh and its wrapper always exit; a signal here would be a defect of the harness.
            status: status.code().unwrap_or(-1),
            stdout: std::mem::take(&mut self.stdout),
            stderr: std::mem::take(&mut self.stderr),
            elapsed: self.begin.elapsed(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The lab ends the program in the VM when this process goes.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Undoes a fault when dropped, so that a failed test does not fail the next ones.
pub struct Fault<'a> {
    lab: &'a Lab,
    vm: Vm,
    undo: &'static str,
}

impl<'a> Fault<'a> {
    /// Drops RoCE v2 (UDP port 4791) arriving in `vm`.
    pub fn drop_roce(lab: &'a Lab, vm: Vm) -> Self {
        lab.shell(
            vm,
            "nft add table inet fault; nft 'add chain inet fault in { type filter hook input priority 0; }'; \
             nft add rule inet fault in udp dport 4791 drop",
        );
        Self { lab, vm, undo: "nft delete table inet fault" }
    }

    /// Takes the RDMA device's network interface down in `vm`, and with it the port.
    pub fn link_down(lab: &'a Lab, vm: Vm) -> Self {
        lab.shell(vm, "ip link set eth1 down");
        Self {
            lab,
            vm,
            undo: "ip link set eth1 up; until rdma link show rxe0/1 | grep -q ACTIVE; do sleep 0.1; done",
        }
    }
}

impl Drop for Fault<'_> {
    fn drop(&mut self) {
        let outcome = self.lab.run(self.vm, &["sh", "-c", self.undo]);
        if outcome.status != 0 && !std::thread::panicking() {
            panic!("a fault could not be undone\n{}", outcome.show());
        }
    }
}
