//! `coll-perf`: collectives, measured over the ranks of one machine or many.

use std::process::ExitCode;

fn main() -> ExitCode {
    coll_perf::app::main()
}
