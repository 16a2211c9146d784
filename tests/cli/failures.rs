//! Servers that can't be reached: exit status 4, with the address and the way out. Nothing leaves this machine.

use linkproof_tests::{Finished, Tool, free_port, skip, works};

fn failed(line: &str, code: &str) -> Finished {
    let failed = Tool::write_bw_tcp().args(line).run();
    failed.exits(4).silent_on_stdout().says(&["hint: "]);
    let document = Tool::write_bw_tcp().args(line).args("--json").run().document();
    assert_eq!(document["verdict"]["failures"][0]["code"], code);
    failed
}

#[test]
fn a_port_where_nothing_listens_is_named() {
    let port = free_port();
    failed(&format!("127.0.0.1 -p {port}"), "connection-refused").says(&[
        &format!("127.0.0.1:{port}"),
        "ECONNREFUSED",
        "start the server there first",
    ]);
}

#[test]
fn a_name_without_an_address_is_named() {
    // RFC 6761: no name below .invalid ever resolves.
    failed("no-such-host.invalid", "resolve").says(&["no-such-host.invalid"]);
}

#[test]
fn a_host_without_a_route_is_named() {
    if !works("unshare -n true") {
        return skip("a_host_without_a_route_is_named", "a network namespace can't be made here");
    }
    let run = |line: &str| Tool::write_bw_tcp().args(line).by_way_of("unshare -n").run();
    // RFC 5737: an address for documentation, and the namespace has no interface at all.
    let failed = run("192.0.2.1");
    failed.exits(4).silent_on_stdout().says(&["cannot reach 192.0.2.1:18515", "ENETUNREACH", "hint: "]);
    assert_eq!(run("192.0.2.1 --json").document()["verdict"]["failures"][0]["code"], "unreachable");
}

#[test]
fn a_host_that_never_answers_is_given_up_on() {
    // In a namespace of its own, behind a tunnel that nobody reads: every packet is lost.
    const NAME: &str = "a_host_that_never_answers_is_given_up_on";
    const HOLE: &str =
        "ip tuntap add dev hole mode tun && ip link set hole up && ip route add 192.0.2.0/24 dev hole";
    let set_up = |then: &str| format!("{HOLE} && ip addr add 192.0.2.1/24 dev hole && {then}");
    let possible = std::process::Command::new("unshare").args(["-n", "sh", "-c", &set_up("true")]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        return skip(NAME, "a network namespace with a tunnel can't be made here");
    }
    let client = format!("{} --transport tcp 192.0.2.9", linkproof_tests::binary("write-bw").display());
    let shell = Tool::program(std::path::Path::new("unshare"))
        .args("-n sh -c")
        .arg(set_up(&format!("exec {client}")));
    let failed = shell.run();
    failed.exits(4).silent_on_stdout().says(&["cannot reach 192.0.2.9:18515", "no answer within", "hint: "]);
}
