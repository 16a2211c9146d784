//! The matrix of what goes wrong between two hosts: limits, addresses, MTU, and a path that loses, delays or mixes up. Rows that
//! have a story of their own stand in `addressing`, `limits`, `failures` and `check`. Compared are exit statuses and codes.

use linkproof_tests::lab::{Lab, Outcome, User, Vm};
use linkproof_tests::schema;
use serde_json::{Value, json};

use crate::{port, server_in_a};

/// A client in `b` against `host`, whose document is valid.
fn measure(lab: &Lab, user: User, port: &str, host: &str, options: &[&str]) -> (Outcome, Value) {
    let mut program = vec!["write-bw", "-d", "rxe0", "-p", port, "--json", host];
    program.extend(["-n", "3", "--rounds", "1", "--warmup", "0"]);
    program.extend(options);
    let outcome = lab.run_as(Vm::B, user, &program);
    let document = schema::parse(&outcome.stdout);
    (outcome, document)
}

fn code(document: &Value) -> &Value {
    &document["verdict"]["failures"][0]["code"]
}

/// A change in a VM, undone when dropped.
struct Change<'a> {
    lab: &'a Lab,
    vm: Vm,
    undo: &'static str,
}

impl<'a> Change<'a> {
    fn make(lab: &'a Lab, vm: Vm, script: &str, undo: &'static str) -> Self {
        lab.shell(vm, script);
        Self { lab, vm, undo }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let outcome = self.lab.run(self.vm, &["sh", "-ec", self.undo]);
        if outcome.status != 0 && !std::thread::panicking() {
            panic!("a change could not be undone\n{}", outcome.show());
        }
    }
}

#[test]
fn the_locked_memory_limit_decides_for_a_user_and_not_for_root() {
    let Some(lab) = Lab::get("the_locked_memory_limit_decides_for_a_user_and_not_for_root") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    // Each limit with each message: the message fits, or it does not.
    let rows = [
        ("65536", "4K", true),
        ("65536", "1M", false),
        ("1048576", "4K", true),
        ("1048576", "1M", true),
        ("8388608", "4K", true),
        ("8388608", "1M", true),
    ];
    for (limit, size, fits) in rows {
        let user = User::Nobody { memlock: limit.parse().expect("a number") };
        let (outcome, document) = measure(lab, user, &port, "a", &["-s", size]);
        assert_eq!(outcome.status, if fits { 0 } else { 3 }, "{limit} {size}\n{}", outcome.show());
        assert_eq!(*code(&document), if fits { Value::Null } else { json!("memlock") });
        // rdma-check says the same beforehand.
        let asked = format!("write-bw -d rxe0 -s {size} a");
        let outcome = lab.run_as(Vm::B, user, &["rdma-check", "--json", "--for", &asked]);
        let run = schema::check(&outcome.expect_status(if fits { 0 } else { 3 }).stdout)["run"].clone();
        assert_eq!(run["failures"][0]["code"], *code(&document), "{limit} {size}");
    }
    let as_root = rows.map(|(limit, size, _)| {
        let kib = limit.parse::<u64>().expect("a number") >> 10;
        format!("(ulimit -l {kib}; write-bw -d rxe0 -p {port} -n 3 --rounds 1 --warmup 0 -s {size} a); ")
    });
    lab.run(Vm::B, &["sh", "-exc", &as_root.concat()]).expect_status(0);
}

#[test]
fn the_same_index_of_each_family_on_both_ends_works() {
    let Some(lab) = Lab::get("the_same_index_of_each_family_on_both_ends_works") else { return };
    // Link-local, IPv4-mapped, IPv6.
    for (index, prefix) in [("0", "fe80::"), ("1", "::ffff:10.77."), ("2", "fd77::")] {
        let port = port();
        let _server = server_in_a(lab, &port, &["-x", index]);
        let (outcome, document) = measure(lab, User::Root, &port, "a", &["-x", index, "--validate"]);
        assert_eq!(outcome.status, 0, "{}", outcome.show());
        for end in ["client", "server"] {
            let gid = document["link"][end]["gid"]["gid"].as_str().expect("a GID");
            assert!(gid.starts_with(prefix), "{end} {index}: {gid}");
        }
    }
}

const MTU_BACK: &str = "ip link set eth1 mtu 1500";

fn mtu(lab: &Lab, vm: Vm, mtu: u32) -> Change<'_> {
    Change::make(lab, vm, &format!("ip link set eth1 mtu {mtu}"), MTU_BACK)
}

/// What `rdma-check` says in `b` with that MTU, which stays: each connection to a VM takes its time.
fn look_with_mtu(lab: &Lab, mtu: u32) -> Value {
    let script = format!("ip link set eth1 mtu {mtu}; exec rdma-check --json");
    schema::check(&lab.run(Vm::B, &["sh", "-ec", &script]).stdout)
}

fn active_mtu(look: &Value) -> &Value {
    &look["node"]["devices"][0]["ports"][0]["active_mtu_bytes"]
}

#[test]
fn each_ethernet_mtu_yields_its_active_mtu_and_the_smaller_end_decides() {
    let Some(lab) = Lab::get("each_ethernet_mtu_yields_its_active_mtu_and_the_smaller_end_decides") else {
        return;
    };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let _of_b = mtu(lab, Vm::B, 1500);
    for (ethernet, active) in [(1500, 1024), (9000, 4096), (4200, 4096)] {
        assert_eq!(*active_mtu(&look_with_mtu(lab, ethernet)), json!(active), "{ethernet}");
    }
    // The ends differ: the path has what both can.
    let (outcome, document) = measure(lab, User::Root, &port, "a", &["--validate"]);
    assert_eq!(
        (outcome.status, &document["link"]["path_mtu_bytes"]),
        (0, &json!(1024)),
        "{}",
        outcome.show()
    );
    let (outcome, document) = measure(lab, User::Root, &port, "a", &["-m", "4096"]);
    assert_eq!((outcome.status, code(&document)), (4, &json!("device-limit")), "{}", outcome.show());
    let _of_a = mtu(lab, Vm::A, 4200);
    let (outcome, document) = measure(lab, User::Root, &port, "a", &["--validate"]);
    assert_eq!(
        (outcome.status, &document["link"]["path_mtu_bytes"]),
        (0, &json!(4096)),
        "{}",
        outcome.show()
    );
}

/// The words of a finding.
fn found(document: &Value, code: &str) -> Option<String> {
    let findings = document["findings"].as_array().expect("a list").iter();
    let finding = findings.into_iter().find(|finding| finding["code"] == code)?;
    Some(finding["seen"].as_str().expect("words").to_owned())
}

#[test]
fn what_an_ethernet_mtu_makes_of_the_ports_is_found_and_told() {
    let Some(lab) = Lab::get("what_an_ethernet_mtu_makes_of_the_ports_is_found_and_told") else { return };
    let _of_b = mtu(lab, Vm::B, 1500);
    // 4096 bytes and 96 of headers; what is left of 9000 can't be used.
    for (ethernet, active) in
        [(1500, Some(1024)), (2200, Some(2048)), (4191, Some(2048)), (4192, None), (9000, None)]
    {
        let document = look_with_mtu(lab, ethernet);
        let seen = found(&document, "mtu-small");
        let words =
            active.map(|active| format!("the interface's MTU is {ethernet}, so the port's is {active}"));
        assert_eq!(seen.is_some(), words.is_some(), "{ethernet}: {seen:?}");
        assert!(seen.unwrap_or_default().contains(&words.unwrap_or_default()), "{ethernet}");
        assert_eq!(found(&document, "mtu-stale"), None, "{ethernet}");
    }
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    // What was tried last stands: 9000.
    let peer = ["rdma-check", "--peer", "a", "-p", &port, "--json"];
    let with_peer = || schema::check(&lab.run(Vm::B, &peer).stdout);
    let seen = found(&with_peer(), "peer-mtu-differs").expect("the ends differ");
    assert_eq!(seen, "the active MTU is 4096 on b and 1024 on a");
    let _of_a = mtu(lab, Vm::A, 9000);
    assert_eq!(found(&with_peer(), "peer-mtu-differs"), None);
    let (outcome, document) = measure(lab, User::Root, &port, "a", &["-s", "64K", "--validate"]);
    assert_eq!(
        (outcome.status, &document["link"]["path_mtu_bytes"]),
        (0, &json!(4096)),
        "{}",
        outcome.show()
    );
}

#[test]
fn a_path_that_delays_damages_or_mixes_up_is_survived_and_the_data_is_right() {
    let Some(lab) = Lab::get("a_path_that_delays_damages_or_mixes_up_is_survived_and_the_data_is_right")
    else {
        return;
    };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    for fault in ["delay 20ms", "corrupt 1%", "delay 5ms reorder 25% 50%"] {
        let _change = Change::make(
            lab,
            Vm::A,
            &format!("modprobe sch_netem; tc qdisc replace dev eth1 root netem {fault}"),
            "tc qdisc del dev eth1 root",
        );
        let (outcome, document) =
            measure(lab, User::Root, &port, "a", &["-s", "16K", "-u", "16", "--validate"]);
        assert_eq!(outcome.status, 0, "{fault}\n{}", outcome.show());
        assert_eq!(document["results"][0]["wrong_bytes"], json!(0), "{fault}");
    }
}

#[test]
fn a_neighbour_that_is_a_black_hole_fails_at_the_first_write() {
    let Some(lab) = Lab::get("a_neighbour_that_is_a_black_hole_fails_at_the_first_write") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    // The control channel goes over IPv6, the data to an IPv4 address whose hardware address is nobody's.
    let _change = Change::make(
        lab,
        Vm::B,
        "ip neigh replace 10.77.0.1 lladdr 02:00:00:00:00:99 dev eth1 nud permanent",
        "ip neigh del 10.77.0.1 dev eth1",
    );
    let options = ["-x", "1", "-u", "12", "--retry-count", "1"];
    let (outcome, document) = measure(lab, User::Root, &port, "fd77::1", &options);
    assert_eq!((outcome.status, code(&document)), (4, &json!("completion")), "{}", outcome.show());
}

#[test]
fn a_port_that_goes_down_in_mid_run_is_suggested_as_the_cause() {
    let Some(lab) = Lab::get("a_port_that_goes_down_in_mid_run_is_suggested_as_the_cause") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let program =
        ["write-bw", "-d", "rxe0", "-p", &port, "--run-infinitely", "--interval", "500ms", "--json", "a"];
    // By default giving up takes 7 s.
    let program = [&program[..], &["-u", "15", "--retry-count", "3"]].concat();
    let mut client = lab.start(Vm::B, User::Root, &program);
    client.await_documents(1, linkproof_tests::lab::PROGRAM_LIMIT);
    let _fault = linkproof_tests::lab::Fault::link_down(lab, Vm::B);
    let outcome = client.finish().expect_status(4);
    // A line an interval, and then the document.
    let document = schema::parse(outcome.stdout.lines().last().unwrap_or_default());
    assert_eq!(
        document["verdict"]["failures"][0]["findings"][0],
        json!("port-not-active"),
        "{}",
        outcome.show()
    );
}
