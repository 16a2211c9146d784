//! `rdma-check` from outside: on the machine that runs the tests, whatever it has, and on recorded nodes.

use std::time::{Duration, Instant};

use linkproof_common::node::fixture::{self, Tree};
use linkproof_tests::{Finished, Tool, schema};
use serde_json::{Value, json};

fn check(args: &str) -> Finished {
    Tool::new("rdma-check").args(args).run()
}

/// A look at a recorded node.
fn look(tree: &Tree, args: &str) -> Finished {
    let folder = tempfile::tempdir_in(fixture::quick_folder()).expect("a folder");
    tree.write_to(folder.path()).expect("a tree");
    check(&format!("{args} --root {}", folder.path().display()))
}

/// The codes of the findings that are worse than a note.
fn troubles(document: &Value) -> Vec<&str> {
    let findings = document["findings"].as_array().expect("a list");
    let bad = findings
        .iter()
        .filter(|finding| ["warning", "unfit"].iter().any(|word| finding["severity"] == *word));
    bad.filter_map(|finding| finding["code"].as_str()).collect()
}

#[test]
fn help_of_rdma_check() {
    let help = check("--help");
    help.exits(0);
    insta::assert_snapshot!(help.stdout);
}

#[test]
fn this_machine_is_looked_at_in_less_than_a_second_and_validly() {
    for view in ["", "gids", "topo", "limits", "counters"] {
        let began = Instant::now();
        let run = check(&format!("{view} --json"));
        assert!(began.elapsed() < Duration::from_secs(1), "{view}: {:?}", began.elapsed());
        let document = schema::check(&run.stdout);
        let expected = match (&document["verdict"]["ok"], &document["verdict"]["worst"]) {
            (Value::Bool(true), _) => 0,
            (_, worst) => {
                if worst == "unfit" {
                    3
                } else {
                    1
                }
            }
        };
        run.exits(expected);
        assert!(document["node"]["system"]["kernel"].is_string(), "{}", run.stdout);
    }
}

#[test]
fn the_exit_status_is_the_verdicts() {
    let cases = [
        (fixture::infiniband(), "", 0),
        (fixture::infiniband(), "--strict", 0),
        (fixture::degraded_link(), "", 0),
        (fixture::degraded_link(), "--strict", 1),
        (fixture::degraded_link(), "limits --strict", 0),
        (fixture::pod_without_node(), "", 3),
        (fixture::bare(), "", 3),
        (fixture::bare(), "counters", 3),
    ];
    for (tree, args, status) in cases {
        look(&tree, args).exits(status);
    }
}

#[test]
fn the_document_has_the_cause_first_and_goes_beside_the_text_into_a_file() {
    let run = look(&fixture::pod_without_node(), "--json");
    let document = schema::check(&run.stdout);
    assert_eq!(troubles(&document), ["device-node-missing", "memlock-low"]);
    assert_eq!(document["node"]["devices"][0]["node_file"], json!("missing"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("check.json");
    let run = look(&fixture::roce(), &format!("gids --json={}", file.display()));
    assert!(run.stdout.contains("<- chosen"), "{}", run.stdout);
    let document = schema::check(&std::fs::read_to_string(file).expect("a file"));
    assert_eq!(document["node"]["devices"][0]["ports"][0]["chosen_gid"]["index"], json!(3));
}

#[test]
fn two_looks_at_a_still_node_find_nothing_more() {
    look(&fixture::infiniband(), "counters --watch 0.05 --strict").exits(0);
}

#[test]
fn a_folder_that_is_none_and_an_unknown_option_are_usage_errors() {
    let run = check("--root /does/not/exist --json");
    run.exits(2);
    assert_eq!(schema::check(&run.stdout)["verdict"]["failures"][0]["code"], json!("usage"));
    check("--no-such-option").exits(2);
    check("nonsense").exits(2);
}

#[test]
fn a_run_is_judged_by_its_command_line() {
    let folder = tempfile::tempdir_in(fixture::quick_folder()).expect("a folder");
    fixture::roce().write_to(folder.path()).expect("a tree");
    let root = folder.path().display().to_string();
    let asked = |command: &str| {
        Tool::new("rdma-check").arg("--for").arg(command).args(&format!("--json --root {root}")).run()
    };
    let run = asked("write-bw -d mlx5_0 -s 1M node-b");
    run.exits(0);
    assert_eq!(schema::check(&run.stdout)["run"]["pins_bytes"], json!(1 << 20));
    let run = asked("write-lat -x 9 node-b");
    run.exits(3);
    let document = schema::check(&run.stdout);
    assert_eq!(document["run"]["failures"][0]["code"], json!("gid-index"));
    assert_eq!(document["findings"][0]["section"], json!("gid-index"));
    asked("write-bw -s 2Q").exits(2);
    // TCP needs no device, and softnic brings its own.
    let bare = |command: &str| Tool::new("rdma-check").arg("--for").arg(command).run();
    bare("write-bw --transport tcp node-b").exits(0);
    bare("write-bw --soft-device 127.0.0.1").exits(0);
}

#[test]
fn metrics_go_to_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rdma.prom");
    look(&fixture::infiniband(), &format!("--metrics {}", file.display())).exits(0);
    let text = std::fs::read_to_string(&file).expect("a file");
    assert!(text.contains("linkproof_port_active{device=\"mlx5_0\",port=\"1\"} 1"), "{text}");
    look(&fixture::infiniband(), "--metrics /does/not/exist/x").exits(3);
}

#[test]
fn a_server_shows_its_machine_and_goes_on_serving() {
    let port = linkproof_tests::free_port();
    let _server = Tool::write_bw_tcp().serve(port);
    let run = check(&format!("--peer 127.0.0.1 -p {port} --json"));
    let document = schema::check(&run.stdout);
    assert_eq!(document["peer"]["tool"], json!("write-bw"), "{}", run.stdout);
    // Both are this machine.
    assert_eq!(document["peer"]["node"]["system"], document["node"]["system"]);
    assert_eq!(document["peer"]["node"]["nccl"]["settings"], json!({}));
    let client = Tool::new("write-bw").args(&format!("--transport tcp -p {port} -n 5 127.0.0.1")).run();
    client.exits(0);
    let run = check(&format!("--peer 127.0.0.1 -p {} --json", linkproof_tests::free_port()));
    run.exits(4);
    assert_eq!(schema::check(&run.stdout)["verdict"]["failures"][0]["code"], json!("connection-refused"));
}

/// coll-perf's ranks meet by a protocol of their own.
#[test]
fn who_does_not_show_its_machine_is_told_from_who_does() {
    let port = linkproof_tests::free_port();
    let place = format!("--transport tcp --rank 0 --world-size 2 --rendezvous 127.0.0.1:{port} -T 20");
    let _rank = Tool::new("coll-perf").args(&place).start();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(15);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(std::time::Instant::now() < deadline, "rank 0 does not listen");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let run = check(&format!("--peer 127.0.0.1 -p {port}"));
    run.exits(4).says(&["hint: servers of write-bw and write-lat answer", "the ranks of coll-perf"]);
}
