//! Running facts, each in a process of its own, so that a crash or a hang is that fact's alone.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::alarm;

use crate::differences;
use crate::fact::{Fact, Notes};
use crate::objects::{Bench, DeviceKind, memory_arguments};
use crate::verdict::{Verdict, judge};

/// Seconds that the process of a fact may take: each of its own waits is shorter, and there are few in one.
pub(crate) const LIMIT: u32 = 45;

/// What the process of a fact ends with; any other status is not its own.
const OK: u8 = 10;
const DIFFERS: u8 = 11;
const FAILED: u8 = 12;

/// Runs `facts` on the device `name`, one line each, with indented ones below; whether none failed.
pub(crate) fn all(name: &str, facts: &[&Fact]) -> io::Result<bool> {
    let (mut ok, mut differ, mut failed) = (0, 0, 0);
    let program = std::env::current_exe()?;
    for fact in facts {
        let full_name = fact.full_name();
        let arguments = ["-d", name, "--establish", &full_name];
        let mut command = Command::new(&program);
        command.args(arguments).args(memory_arguments(0)).stdin(Stdio::null());
        let status = command.status()?;
        match status.code().and_then(|code| u8::try_from(code).ok()) {
            Some(OK) => ok += 1,
            Some(DIFFERS) => differ += 1,
            Some(FAILED) => failed += 1,
            _ => {
                failed += 1;
                tell("FAILED  ", fact, &[ended(status)])?;
            }
        }
    }
    let count = facts.len();
    let mut out = io::stdout();
    writeln!(out, "{count} facts of {name}: {ok} ok, {differ} differ as listed, {failed} failed")?;
    Ok(failed == 0)
}

/// How a process ended that did not come to its end.
fn ended(status: ExitStatus) -> String {
    match status.signal().map(Signal::try_from) {
        Some(Ok(Signal::SIGALRM)) => format!("its process still ran after {LIMIT} s"),
        Some(Ok(signal)) => format!("its process was ended by {signal}"),
        _ => format!("its process ended by itself: {status}"),
    }
}

/// Establishes `fact` here, says how it went, and gives this process's status.
pub(crate) fn establish(name: &str, fact: &Fact) -> io::Result<u8> {
    // The default action of its signal is the end, also of a verb that doesn't return.
    alarm::set(LIMIT);
    let mut notes = Notes::default();
    let opened = Bench::open(name);
    let kind = opened.as_ref().map_or(DeviceKind::Other, |bench| bench.device().kind());
    let outcome = opened.and_then(|bench| (fact.establish)(&bench, &mut notes));
    let listed = differences::of(kind, &fact.full_name());
    Ok(match judge(&notes, &outcome, listed) {
        Verdict::Good => {
            tell("ok      ", fact, &[])?;
            OK
        }
        Verdict::Differs(differences) => {
            tell("differs ", fact, &differences)?;
            DIFFERS
        }
        Verdict::Failed(failures) => {
            tell("FAILED  ", fact, &failures)?;
            FAILED
        }
    })
}

fn tell(word: &str, fact: &Fact, paragraphs: &[String]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{word} {}", fact.full_name())?;
    paragraphs.iter().flat_map(|text| text.lines()).try_for_each(|line| writeln!(out, "         {line}"))?;
    out.flush()
}
