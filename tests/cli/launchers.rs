//! `coll-perf` as launchers start it: the distribution's mpirun, and others by what they put into the environment.

use linkproof_tests::{Finished, Launcher, Ranks, Tool, binary, free_port, installed, schema, skip};
use serde_json::Value;

/// Every collective, with checks, in little time.
const LINE: &str = "--op all -b 1000 -e 100K -f 100 -n 3 -w 1 --rounds 2 --json";

/// Checks what rank 0 has shown of a run of `count` processes.
fn is_good(document: &Value, count: usize) {
    assert_eq!(document["backend"]["transport"], "tcp");
    let hosts = document["hosts"].as_array().expect("hosts");
    let processes: std::collections::BTreeSet<u64> =
        hosts.iter().filter_map(|host| host["pid"].as_u64()).collect();
    assert_eq!((hosts.len(), processes.len()), (count, count));
    let results = document["results"].as_array().expect("results");
    assert!(results.len() > 30, "{} results", results.len());
    for row in results {
        assert_eq!(row["wrong_elements"], 0, "{row}");
        assert!(row["checked_elements"].as_u64() > Some(0), "{row}");
    }
}

#[test]
fn processes_are_ranks_in_the_words_of_torchrun_and_slurm() {
    for launcher in [Launcher::Torchrun, Launcher::Slurm] {
        for count in [2, 4] {
            let ended = Ranks::by(launcher, count).run(LINE);
            for rank in &ended {
                rank.exits(0);
            }
            for rank in &ended[1..] {
                rank.silent_on_stdout();
            }
            is_good(&schema::parse(&ended[0].stdout), count as usize);
        }
    }
}

/// `mpirun` of so many processes of `coll-perf` on this machine, with fewer processors too.
fn mpirun(count: usize, line: &str) -> Tool {
    let wrapper = format!("mpirun --allow-run-as-root --oversubscribe -n {count}");
    let tool = Tool::program(&binary("coll-perf")).by_way_of(&wrapper);
    tool.args("--backend host").args(line).env("MASTER_PORT", free_port().to_string())
}

fn without_mpirun(test: &str) -> bool {
    let missing = !installed("mpirun");
    if missing {
        skip(test, "mpirun is not here (Debian: openmpi-bin)");
    }
    missing
}

#[test]
fn mpirun_starts_two_and_four() {
    if without_mpirun("mpirun_starts_two_and_four") {
        return;
    }
    for count in [2, 4] {
        let ended: Finished = mpirun(count, LINE).run();
        ended.exits(0);
        is_good(&schema::parse(&ended.stdout), count);
    }
}

#[test]
fn mpirun_gets_the_status_of_rank_0() {
    if without_mpirun("mpirun_gets_the_status_of_rank_0") {
        return;
    }
    let line = "--op alltoall -b 4K -e 4K -n 3 --rounds 1 --inject-fault flip:1:100";
    mpirun(2, line).run().exits(1).says(&["wrong elements in results: 1", "rank: 1 ("]);
}
