//! `kill -9` of either end at any moment of a run: the other one is not stuck and says why, the next run is clean, and
//! nothing is left behind.
//!
//! Eight kills; `LINKPROOF_KILLS=100` has a hundred of them, and `--nocapture` shows the figures.
#![allow(clippy::print_stderr, reason = "the figures, for whoever runs it with --nocapture")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use linkproof_tests::{Random, Running, SOON, Tool, free_port, softgpu};
use nix::sys::signal::Signal;

/// A killed process's sockets close at once; the rest is for a busy machine, and for a client that has no server yet.
const NOTICED_WITHIN: Duration = Duration::from_secs(15);
/// A run takes some 30 ms to be brought up; the square of a number in 0 to 1 puts a third of the kills there.
const LATEST: Duration = Duration::from_millis(400);
/// What a client has to say whose server was killed: it saw the connection close, or a write fail first, or there was
/// no server to begin with.
const DOCUMENTED: [&str; 4] = [
    "closed the connection",
    "a write did not complete: RETRY_EXC_ERR (12)",
    "nothing listens at",
    "ECONNRESET",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Client,
    Server,
}

/// Both ends of one fabric, port and folder for temporary files, again and again.
struct Place {
    tool: &'static str,
    fabric: String,
    port: u16,
    temporary: tempfile::TempDir,
}

impl Place {
    fn new(tool: &'static str) -> Self {
        let port = free_port();
        let temporary = tempfile::tempdir().expect("a folder");
        Self { tool, fabric: format!("kills-{port}"), port, temporary }
    }

    fn end(&self) -> Tool {
        let tool = Tool::soft(self.tool, &self.fabric, "").env("TMPDIR", self.temporary.path());
        tool.env("LINKPROOF_CUDA", softgpu())
    }

    fn server(&self) -> Running {
        self.end().serve(self.port)
    }

    fn client(&self, options: &str) -> Tool {
        self.end().args(&format!("127.0.0.1 --port {} {options}", self.port))
    }

    /// A whole run, with all bytes checked; how long it took.
    fn clean_run(&self) -> Duration {
        let run = self.client("-s 4K -n 100 --rounds 1 --validate").run();
        run.exits(0);
        assert!(run.stdout.contains("all as sent"), "{}", run.stdout);
        run.took
    }

    /// Kills one end of a long run after `delay`. How long the other one took to notice, or to serve the next client;
    /// and what it said.
    fn kill(
        &self,
        server: &mut Running,
        victim: Victim,
        options: &str,
        delay: Duration,
    ) -> (Duration, String) {
        let client = self.client(&format!("-D 60 --rounds 1 {options}")).start();
        std::thread::sleep(delay);
        match victim {
            Victim::Client => {
                client.signal(Signal::SIGKILL);
                let killed = Instant::now();
                client.finish();
                self.clean_run();
                (killed.elapsed(), "served the next client".to_owned())
            }
            Victim::Server => {
                server.signal(Signal::SIGKILL);
                let survivor = client.finish_within(NOTICED_WITHIN);
                survivor.exits(4).silent_on_stdout();
                let said = DOCUMENTED.into_iter().find(|words| survivor.stderr.contains(words));
                let said = said.unwrap_or_else(|| panic!("{} says something else", survivor.stderr));
                *server = self.server();
                self.clean_run();
                (survivor.took, said.to_owned())
            }
        }
    }

    /// Names that processes of this place have taken in the kernel.
    fn names(&self) -> usize {
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        sockets.lines().filter(|line| line.contains(&format!("/{}/", self.fabric))).count()
    }
}

/// What a process holds: file descriptors, and mappings of shared memory.
fn held(process: &Running) -> (usize, usize) {
    let proc = Path::new("/proc").join(process.pid().to_string());
    let descriptors = proc.join("fd").read_dir().expect("the server lives").count();
    let maps = std::fs::read_to_string(proc.join("maps")).expect("the server lives");
    (descriptors, maps.lines().filter(|line| line.contains("/memfd:")).count())
}

/// Files in the folders of shared memory and of temporary files that are named as ours would be, and System V segments.
fn left_behind() -> Vec<String> {
    let entries = |folder: &str| Path::new(folder).read_dir().into_iter().flatten().flatten();
    let names = ["/dev/shm", "/tmp", "/run"].into_iter().flat_map(entries);
    let names = names.map(|entry| entry.path().to_string_lossy().into_owned());
    let mut left: Vec<_> = names.filter(|path| path.contains("softnic")).collect();
    let segments = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    left.extend(segments.lines().skip(1).map(str::to_owned));
    left
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Kills `count` times in runs with one of `options` after the other, and what became of it.
fn rounds(tool: &'static str, options: &[&str], victim: Victim, count: usize, random: &mut Random) {
    let place = Place::new(tool);
    let before = left_behind();
    let mut server = place.server();
    place.clean_run();
    let at_first = held(&server);
    let (mut longest, mut said) = (Duration::ZERO, BTreeMap::new());
    for number in 0..count {
        let part = random.below(1 << 20) as f64 / f64::from(1 << 20);
        let delay = LATEST.mul_f64(part * part);
        let (took, words) = place.kill(&mut server, victim, options[number % options.len()], delay);
        assert!(took < NOTICED_WITHIN, "{took:?} for kill {number} of the {victim:?} after {delay:?}");
        longest = longest.max(took);
        *said.entry(words).or_insert(0) += 1;
    }
    let is_as_at_first = || {
        let (descriptors, mappings) = held(&server);
        descriptors <= at_first.0 && mappings <= at_first.1
    };
    until("the server holds more descriptors or mappings than after its first client", is_as_at_first);
    drop(server);
    until("a name in the kernel is left", || place.names() == 0);
    let temporary = place.temporary.path().read_dir().expect("the folder is there").count();
    assert_eq!(temporary, 0, "files are left in the folder for temporary ones");
    until("shared memory is left", || left_behind().iter().all(|name| before.contains(name)));
    let said: Vec<_> = said.iter().map(|(words, times)| format!("{words}: {times}")).collect();
    eprintln!("| {tool} | {victim:?} | {count} | {:.2} | {} |", longest.as_secs_f64(), said.join("; "));
}

#[test]
fn either_end_may_be_killed_at_any_moment() {
    let kills = std::env::var("LINKPROOF_KILLS").map_or(8, |kills| kills.parse().expect("a number of kills"));
    let mut random = Random::new(5);
    let bandwidth = ["", "-b -q 4", "-s 8 -l 16", "-s 1M --validate"];
    let latency = ["", "-s 4K", "--validate", "-s 64K"];
    for (tool, options) in [("write-bw", bandwidth), ("write-lat", latency)] {
        for victim in [Victim::Client, Victim::Server] {
            rounds(tool, &options, victim, usize::div_ceil(kills, 4), &mut random);
        }
    }
}

#[test]
fn with_memory_of_a_gpu_too() {
    let mut random = Random::new(6);
    for victim in [Victim::Client, Victim::Server] {
        rounds("write-bw", &["--use-cuda=0", "--use-cuda=0 -b -q 4"], victim, 2, &mut random);
    }
}
