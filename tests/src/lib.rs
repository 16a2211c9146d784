//! What the black-box tests share: the built tools as processes with deadlines, ports of their own, peers that are
//! not what they should be, and the schema of the result.
//!
//! A test never sleeps and hopes: it waits for something that it can see, each wait has a deadline, and when one
//! passes or a check fails, every process of the test shows its command line, its exit status and its output.

mod binary;
mod capture;
mod corruptor;
pub mod imports;
pub mod lab;
mod ports;
mod process;
mod random;
mod ranks;
mod relay;
pub mod schema;
mod strangers;

pub use binary::{bin_dir, binary, built_programs, library, softgpu};
pub use corruptor::{Corruptor, FLIP};
pub use ports::{free_port, wait_for_listener};
pub use process::{Finished, Running, Tool};
pub use random::Random;
pub use ranks::{Launcher, Ranks, rank_name};
pub use relay::{Frame, Relay, Sender};
pub use strangers::{FakeServer, StrangeClient};

use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// The deadline of everything that should take a second or two: long enough for two slow, busy processors.
pub const SOON: Duration = Duration::from_secs(20);

/// Says that the test `name` proves nothing on this machine, and why. `ci/test` collects these lines and compares
/// them with what it expects of the machine.
pub fn skip(name: &str, reason: &str) {
    // Not eprintln!: the test harness keeps that to itself unless the test fails. In one write, so that a line of
    // the harness does not fall into the middle.
    let _ = std::io::stderr().lock().write_all(format!("\nSKIP {name}: {reason}\n").as_bytes());
}

/// The RDMA devices that the kernel shows.
pub fn rdma_devices() -> Vec<String> {
    let entries = Path::new("/sys/class/infiniband").read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Whether the shell would find `program`.
pub fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Whether `program` (with arguments, split at spaces) can be run here and succeeds.
pub fn works(program: &str) -> bool {
    let mut words = program.split_whitespace();
    let Some(name) = words.next() else { return false };
    std::process::Command::new(name).args(words).output().is_ok_and(|output| output.status.success())
}
