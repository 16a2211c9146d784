//! `perf-compare`: is B really faster than A, and by how much.

use std::process::ExitCode;

fn main() -> ExitCode {
    perf_compare::app::main()
}
