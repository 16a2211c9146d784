//! `--arm` of the tools that measure a link: one server, and clients over RDMA and TCP in turn.

use linkproof_tests::{Finished, Tool, free_port, schema};
use serde_json::Value;

/// Clients of one server on a device in software, a fabric of their own.
fn arms(tool: &str, line: &str) -> Finished {
    let port = free_port();
    let soft = || {
        let fabric = format!("fabric=arms-{port}");
        Tool::new(tool).arg("--soft-device").env("LINKPROOF_SOFTNIC", fabric)
    };
    let _server = soft().serve(port);
    soft().args(&format!("127.0.0.1 -p {port} {line}")).run()
}

fn proofs(document: &Value) -> Vec<&str> {
    let arms = document["arms"].as_array().expect("arms").iter();
    arms.map(|arm| arm["proof"].as_str().unwrap_or("none")).collect()
}

#[test]
fn rdma_is_told_from_tcp_by_both_tools_and_judged() {
    let rdma = "RDMA, soft0, RoCE v2, a device in software: no link's speed";
    for tool in ["write-bw", "write-lat"] {
        let run = arms(tool, "-s 4K -n 400 --arm tcp --arm rdma --json");
        let document = schema::arms(&run.exits(0).stdout);
        assert_eq!(proofs(&document), ["TCP, lo", rdma]);
        assert_eq!(document["arms"][0]["runs"].as_array().map(Vec::len), Some(6));
        let primary = &document["comparison"]["comparisons"][0]["primary"];
        // What the verdict is hangs on what else this machine does meanwhile.
        assert_eq!(primary["paired"], true, "{tool}: {primary}");
        assert!(primary["verdict"].is_string(), "{tool}: {primary}");
        let differ = document["comparison"]["differences"].to_string();
        assert!(!differ.contains("link."), "{differ}");
    }
}

#[test]
fn an_arm_of_ones_own_has_options() {
    let port = free_port();
    let _server = Tool::write_bw_tcp().serve(port);
    let client = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {port} -n 100 --rounds 2 --arm default"));
    let run = client.arg("--arm").arg("wide:-q 4 -t 16").run();
    run.exits(0);
    for line in
        ["wide         : -q 4 -t 16 --transport tcp; 2 runs over TCP, lo", "plan.qps  default: 1; wide: 4"]
    {
        assert!(run.stdout.contains(line), "{line}\n{}", run.stdout);
    }
}

#[test]
fn a_server_has_no_arms() {
    Tool::new("write-lat")
        .args("--arm tcp --arm rdma")
        .run()
        .exits(2)
        .says(&["--arm is for the client, and no host is named", "hint: start the server as ever"]);
}

#[test]
fn what_has_no_end_or_one_file_for_all_is_no_arm() {
    for line in ["--run-infinitely", "--interval 1s"] {
        let line = format!("127.0.0.1 {line} --arm tcp --arm rdma");
        Tool::new("write-bw").args(&line).run().exits(2).says(&["cannot be used with"]);
    }
    let run = Tool::new("write-lat").args("127.0.0.1 -U /dev/null --arm tcp --arm rdma").run();
    run.exits(2).says(&["cannot be used with"]);
}
