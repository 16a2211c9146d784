//! What `--help` says after the options: examples, environment, exit status. `-h` has the short of it.

/// The exit statuses of a tool that measures between two ends (see [`crate::error::ExitStatus`]).
pub const EXIT_STATUSES: &str = "Exit status:
  0  measured, and good
  1  measured, but the data that arrived was wrong, or a requirement was not met
  2  the command line
  3  this machine: device, GID, limit, library
  4  the peer or the path to it
  130  interrupted; what was measured until then is printed and marked";

/// What a tool that measures between two ends reads from the environment.
const ENVIRONMENT: &str = "Environment:
  LINKPROOF_IBVERBS  library to load in place of libibverbs.so.1
  LINKPROOF_SOFTNIC  devices that --soft-device offers, or @FILE with them; docs/softnic.md";

const MORE: &str = "More:
  docs/measuring.md        each column: definition, formula, clock, what is left out
  docs/compatibility.md    perftest's options, one by one
  docs/troubleshooting.md  each message: cause, and what to do";

/// A command line that `--help` shows, and what it is for.
#[derive(Clone, Copy, Debug)]
pub struct Example {
    /// In a few words.
    pub what: &'static str,
    /// As typed.
    pub line: &'static str,
}

/// What follows the options in `--help` of a tool that measures between two ends.
pub fn after_long_help(examples: &[Example]) -> String {
    long_help(examples, &[ENVIRONMENT, EXIT_STATUSES, MORE])
}

/// What follows the options in `--help`: the examples, then the `parts`, each with its heading.
pub fn long_help(examples: &[Example], parts: &[&str]) -> String {
    let shown = |example: &Example| format!("  {}:\n      {}", example.what, example.line);
    let examples: Vec<_> = examples.iter().map(shown).collect();
    format!("Examples:\n{}\n\n{}", examples.join("\n"), parts.join("\n\n"))
}

/// What follows the options in `-h`.
pub const AFTER_HELP: &str = "--help shows examples, the environment and the exit statuses";
