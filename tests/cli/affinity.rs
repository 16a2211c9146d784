//! `--cores` and `--numa` over TCP on the loopback: what was got is told, and what can't be had is refused.

use std::fs;
use std::path::Path;
use std::time::Instant;

use linkproof_tests::{Finished, SOON, Tool, free_port, schema, skip, works};
use serde_json::Value;

/// The cores that a thread of a process may run on, as the kernel lists them.
fn allowed(process: &str, thread: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).ok()?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

/// The cores that this test may run on, and the last of them.
fn own_cores() -> (String, String) {
    let list = allowed("self", &std::process::id().to_string()).expect("the kernel lists them");
    let last = list.rsplit([',', '-']).next().expect("there is one").to_owned();
    (list, last)
}

fn conditions(run: &Finished) -> Vec<Value> {
    let document = run.exits(0).document();
    document["conditions"].as_array().expect("both ends").clone()
}

#[test]
fn each_end_measures_on_its_own_cores_and_says_so() {
    let port = free_port();
    let (all, last) = own_cores();
    let server = Tool::write_bw_tcp().args(&format!("--json --cores {last}")).serve(port);
    let run = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {port} -n 20 --json")).run();
    let ends = conditions(&run);
    assert_eq!((&ends[0]["role"], &ends[1]["role"]), (&"client".into(), &"server".into()));
    assert_eq!(
        (&ends[0]["threads"]["cores"], &ends[0]["threads"]["bound_by"]),
        (&all.into(), &"none".into())
    );
    assert_eq!(ends[0]["threads"]["why_not"], "no_device");
    assert_eq!(
        (&ends[1]["threads"]["cores"], &ends[1]["threads"]["bound_by"]),
        (&last.into(), &"option".into())
    );
    let theirs = server.wait_for_stdout_lines(1);
    assert_eq!(schema::parse(&theirs[0])["conditions"], Value::from(ends), "both ends hold the same");
}

#[test]
fn the_header_says_who_was_bound_where() {
    for tool in ["write-bw", "write-lat"] {
        let port = free_port();
        let (_, last) = own_cores();
        let _server = Tool::tcp(tool).serve(port);
        let run = Tool::tcp(tool).args(&format!("127.0.0.1 -p {port} -n 20 --cores {last}")).run();
        run.exits(0);
        let line = run.stdout.lines().find(|line| line.starts_with(" Bound")).expect("a line");
        assert!(line.contains(&format!("client to core {last} (")), "{line}");
        assert!(line.ends_with("server not bound (no RDMA device)"), "{line}");
    }
}

#[test]
fn the_thread_that_measures_is_bound_and_the_one_that_watches_is_not() {
    let port = free_port();
    let (all, last) = own_cores();
    let _server = Tool::write_bw_tcp().serve(port);
    let line = format!("127.0.0.1 -p {port} -D 2 --rounds 1 --cores {last}");
    let client = Tool::write_bw_tcp().args(&line).start();
    let process = client.pid().to_string();
    let threads = || -> Vec<String> {
        let Ok(folder) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
        folder.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < SOON, "no such moment in the whole run");
        let others: Vec<String> = threads().into_iter().filter(|thread| *thread != process).collect();
        let watching = others.iter().any(|thread| allowed(&process, thread).as_ref() == Some(&all));
        if watching && allowed(&process, &process).as_ref() == Some(&last) {
            break;
        }
        std::thread::yield_now();
    }
    client.finish().exits(0);
}

#[test]
fn a_core_or_node_that_is_not_there_exits_3_on_either_end_and_is_named() {
    let cases = [
        ("--cores 8191", "core 8191, which this machine does not have"),
        ("--cores 0,8190-8191", "cores 8190-8191, which this machine does not have"),
        ("--numa 8191", "no NUMA node 8191"),
    ];
    for (options, named) in cases {
        for end in ["", "127.0.0.1"] {
            let refused = Tool::write_bw_tcp().args(&format!("{end} {options}")).run();
            refused.exits(3).silent_on_stdout().says(&[named, "hint: "]);
        }
        let json = Tool::tcp("write-lat").args(&format!("127.0.0.1 {options} --json")).run();
        assert_eq!(json.exits(3).document()["verdict"]["failures"][0]["code"], "affinity");
    }
}

#[test]
fn a_core_that_another_task_wants_is_warned_of_with_its_figures() {
    const NAME: &str = "a_core_that_another_task_wants_is_warned_of_with_its_figures";
    if !works("taskset --version") {
        return skip(NAME, "taskset is not here");
    }
    let (_, last) = own_cores();
    let busy = Tool::program(Path::new("sh")).arg("-c").arg("while :; do :; done");
    let _busy = busy.by_way_of(&format!("taskset -c {last}")).start();
    let port = free_port();
    let _server = Tool::write_bw_tcp().serve(port);
    let line = format!("127.0.0.1 -p {port} -D 2 --rounds 1 --json --cores {last}");
    let run = Tool::write_bw_tcp().args(&line).run();
    run.exits(0).says(&[&format!("on the client, other tasks ran on core {last}: ")]);
    let document = run.document();
    let client = &document["conditions"][0]["contention"];
    let figure = |name: &str| client[name].as_u64().unwrap_or_else(|| panic!("no {name} in {client}"));
    assert!(figure("thread_time_ns") >= 2_000_000_000 && figure("involuntary_switches") > 0);
    let codes = document["warnings"].as_array().expect("warnings").iter().map(|warning| &warning["code"]);
    assert!(codes.into_iter().any(|code| code == "cores-shared"), "{}", document["warnings"]);
}

#[test]
fn the_clock_is_named_with_its_reason() {
    for (tool, options) in [("write-bw", "-b"), ("write-lat", "")] {
        let port = free_port();
        let _server = Tool::tcp(tool).serve(port);
        let line = format!("127.0.0.1 -p {port} -n 50 {options}");
        let shown = Tool::tcp(tool).args(&line).run();
        assert!(shown.stdout.contains(" Clock        : client "), "{}", shown.stdout);
        let ends = conditions(&Tool::tcp(tool).args(&line).arg("--json").run());
        match tool {
            "write-bw" => assert!(ends.iter().all(|end| end["clock"]["source"] == "clock_monotonic")),
            // Which one depends on the machine; the server takes no times.
            _ => {
                let chosen = ends[0]["clock"]["source"] == "tsc";
                assert_eq!(chosen, ends[0]["clock"]["tick_hz"].as_f64().is_some(), "{}", ends[0]);
                assert!(ends[1].get("clock").is_none(), "{}", ends[1]);
            }
        }
    }
}

#[test]
fn numa_none_binds_nothing() {
    let port = free_port();
    let (all, _) = own_cores();
    let _server = Tool::write_bw_tcp().args("--numa none").serve(port);
    let run = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {port} -n 20 --numa none --json")).run();
    for end in conditions(&run) {
        assert_eq!(
            (&end["threads"]["cores"], &end["threads"]["why_not"]),
            (&all.clone().into(), &"asked".into())
        );
        assert_eq!(end["memory"]["why_not"], "asked");
    }
}
