//! `coll-perf --arm`: several ways of measuring in one command, each proven, and judged against the first.

use std::fs;
use std::time::Duration;

use linkproof_tests::{Finished, Ranks, Running, SOON, Tool, schema};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// Few and short iterations, over one point: what is tested is not time.
const SHORT: &str = "-b 4K -e 4K -n 3 -w 1 --placement out";

fn run(line: &str) -> Finished {
    Tool::new("coll-perf").args(&format!("--backend host --ranks 2 {line}")).run()
}

/// What is in `field` of each arm.
fn each<'a>(document: &'a Value, field: &str) -> Vec<&'a Value> {
    document["arms"].as_array().expect("arms").iter().map(|arm| &arm[field]).collect()
}

/// When each run of each arm began, with the arm's number, in the order of their times.
fn order(document: &Value) -> Vec<usize> {
    let mut begun = Vec::new();
    for (number, runs) in each(document, "runs").into_iter().enumerate() {
        let times = runs.as_array().expect("runs").iter();
        begun.extend(times.map(|run| (run["started"].as_str().expect("a time").to_owned(), number)));
    }
    begun.sort();
    begun.into_iter().map(|(_, number)| number).collect()
}

#[test]
fn six_runs_each_in_turn_proven_and_judged() {
    let run = run(&format!("{SHORT} --arm shm --arm tcp --json"));
    let document = schema::arms(&run.exits(0).stdout);
    assert_eq!(each(&document, "proof"), ["shm", "tcp"]);
    assert_eq!(order(&document), [0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0]);
    let primary = &document["comparison"]["comparisons"][0]["primary"];
    // What the verdict is hangs on what else this machine does meanwhile.
    assert_eq!(primary["paired"], true, "{primary}");
    assert!(primary["verdict"].is_string() && primary["change_percent"].is_number(), "{primary}");
    assert_eq!(document["verdict"]["ok"], true);
}

#[test]
fn the_table_names_what_each_arm_sets_and_ran_over() {
    let run = run(&format!("{SHORT} --rounds 2 --arm default --arm mine:X=a,b,Y=2 --arm tcp"));
    run.exits(0);
    for line in [
        "3 arms, 2 runs each, in turn",
        "default      : nothing set; 2 runs over shm",
        "mine         : X=a,b Y=2; 2 runs over shm",
        "tcp          : --transport tcp; 2 runs over tcp",
        "mine against default",
        "too few rounds",
    ] {
        assert!(run.stdout.contains(line), "{line}\n{}", run.stdout);
    }
}

#[test]
fn an_arm_that_fails_is_named_and_the_others_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    // No memory for a process of that arm: what its loader prints there is no document.
    let line = format!("{SHORT} --rounds 2 --arm default --arm tcp --arm odd:LD_DEBUG=help --json={{}}");
    let file = folder.path().join("arms.json");
    let run = run(&line.replace("{}", &file.display().to_string()));
    run.exits(3)
        .says(&["a run of arm odd ended with exit status 0 and left no result", "odd (LD_DEBUG=help)"]);
    assert!(run.stdout.contains("LD_DEBUG=help; failed: a run of arm odd"), "{}", run.stdout);
    assert!(run.stdout.contains("tcp against default"), "{}", run.stdout);
    let document = schema::arms(&fs::read_to_string(&file).expect("the document"));
    assert_eq!(document["verdict"]["failures"][0]["code"], "run-lost");
    assert_eq!(document["arms"][2]["runs"], json!([]));
    assert_eq!(document["comparison"]["arms"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_run_with_wrong_data_fails_its_arm_as_it_fails_a_run() {
    let run = run(&format!("{SHORT} --rounds 2 --arm default --arm tcp --inject-fault flip:1:2500 --json"));
    let document = schema::arms(&run.exits(1).stdout);
    assert_eq!(document["verdict"]["failures"][0]["code"], "wrong-data");
    assert!(document.get("comparison").is_none(), "{document:#}");
}

#[test]
fn what_can_not_be_arms_is_refused_before_any_run() {
    for (line, says) in [
        ("--arm gdr --arm tcp", "no arm is called gdr"),
        ("--arm tcp", "--arm tcp is the only arm"),
        ("--arm tcp --arm tcp", "--arm tcp is there twice"),
        ("--arm tcp --arm a:b", "b is no VARIABLE=VALUE"),
        ("--arm tcp --arm shm --raw-samples x", "--raw-samples"),
        ("--arm tcp --arm shm -i 0", "-i is 0 bytes"),
    ] {
        run(line).exits(2).says(&[says]).silent_on_stdout();
    }
    let document = schema::arms(&run("--arm tcp --json").exits(2).stdout);
    assert_eq!(document["arms"], json!([]));
}

#[test]
fn ranks_that_a_launcher_started_go_through_the_arms_together() {
    let ended = Ranks::of(3).run(&format!("{SHORT} --rounds 2 --arm default --arm tcp --json"));
    let document = schema::arms(&ended[0].exits(0).stdout);
    assert_eq!(each(&document, "proof"), ["tcp", "tcp"]);
    assert_eq!(document["arms"][0]["runs"][0]["plan"]["n_ranks"], 3);
    for other in &ended[1..] {
        other.exits(0).silent_on_stdout();
    }
}

#[test]
fn ranks_with_other_arms_are_refused_by_name() {
    let ranks = Ranks::of(2);
    let other = ranks.rank(1, &format!("{SHORT} --arm default --arm b:X=2")).start();
    let first = ranks.rank(0, &format!("{SHORT} --arm default --arm b:X=1")).run();
    first.exits(2).says(&["rank 1 was started with other arms than rank 0"]);
    other.finish().exits(2);
}

/// A run that does not end by itself while a test looks at it.
const LONG: &str = "-b 4K -e 4K -n 1000000 --placement out --arm default --arm same: --json";

/// The runs that `tool` has started and not waited for.
fn children(tool: &Running) -> String {
    let pid = tool.pid();
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !condition() {
        assert!(begin.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_wish_to_stop_reaches_the_run() {
    let tool = Tool::new("coll-perf").args(&format!("--backend host --ranks 2 {LONG}")).start();
    wait_until("a run", || !children(&tool).is_empty());
    let run: i32 = children(&tool).trim().parse().expect("one run");
    tool.signal(Signal::SIGINT);
    let ended = tool.finish_within(SOON);
    let document = schema::arms(&ended.exits(130).stdout);
    assert_eq!(document["verdict"]["failures"][0]["code"], "interrupted");
    assert!(!std::path::Path::new(&format!("/proc/{run}")).exists(), "the run is still there");
}

#[test]
fn a_run_does_not_outlive_a_killed_command() {
    let tool = Tool::new("coll-perf").args(&format!("--backend host --ranks 2 {LONG}")).start();
    wait_until("a run", || !children(&tool).is_empty());
    let run: i32 = children(&tool).trim().parse().expect("one run");
    tool.signal(Signal::SIGKILL);
    wait_until("the end of the run", || {
        // What init has not waited for yet is no longer a run.
        fs::read_to_string(format!("/proc/{run}/stat")).map_or(true, |stat| stat.contains(") Z "))
    });
}
