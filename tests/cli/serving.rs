//! The server: it stays, and serves one client after another.

use linkproof_tests::{Relay, SOON, Sender, Tool, free_port, skip};
use nix::sys::signal::Signal;

fn served(host: &str, port: u16) {
    Tool::write_bw_tcp().args(&format!("{host} -p {port} -n 10")).run().exits(0);
}

#[test]
fn one_server_serves_clients_over_ipv4_by_name_and_in_turn() {
    let port = free_port();
    let server = Tool::write_bw_tcp().serve(port);
    for host in ["127.0.0.1", "localhost", "127.0.0.1"] {
        served(host, port);
    }
    server.signal(Signal::SIGINT);
    let stopped = server.finish_within(SOON);
    stopped.exits(0);
    assert_eq!(stopped.stdout.matches("#bytes").count(), 3, "one table a client");
}

#[test]
fn the_same_server_serves_ipv6() {
    if std::net::TcpListener::bind(("::1", 0)).is_err() {
        return skip("the_same_server_serves_ipv6", "this host has no IPv6");
    }
    let port = free_port();
    let _server = Tool::write_bw_tcp().serve(port);
    served("::1", port);
    served("127.0.0.1", port);
}

#[test]
fn a_host_without_ipv6_serves_over_ipv4() {
    const NAME: &str = "a_host_without_ipv6_serves_over_ipv4";
    const OFF: &str = "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 && ip link set lo up";
    let possible = std::process::Command::new("unshare").args(["-n", "sh", "-c", OFF]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        return skip(NAME, "a network namespace without IPv6 can't be made here");
    }
    // In a namespace of its own the port is free whatever runs here.
    let port = 18515;
    let tool = linkproof_tests::binary("write-bw").display().to_string();
    let server = Tool::program(std::path::Path::new("unshare"))
        .args("-n sh -c")
        .arg(format!("{OFF} && exec {tool} --transport tcp --once --port {port}"))
        .start();
    server.wait_for_stderr(&format!("serving on TCP port {port}"));
    let inside = format!("nsenter --target {} --net", server.pid());
    Tool::write_bw_tcp().by_way_of(&inside).args(&format!("127.0.0.1 -p {port} -n 10")).run().exits(0);
    server.finish_within(SOON).exits(0);
}

#[test]
fn clients_that_come_together_are_served_one_after_the_other() {
    let port = free_port();
    let _server = Tool::write_bw_tcp().serve(port);
    let client = || Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {port} -D 0.3")).start();
    let clients = [client(), client(), client()];
    for client in clients {
        client.finish().exits(0);
    }
}

#[test]
fn a_client_that_has_to_wait_says_for_whom_and_once_only() {
    let port = free_port();
    let _server = Tool::write_bw_tcp().serve(port);
    let relay = Relay::to(port);
    let first = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {} -D 60 --rounds 1", relay.port)).start();
    relay.wait_for_progress_of(Sender::Client);
    let second = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {port} -n 10")).start();
    let words = "waiting for this client's turn: the server 127.0.0.1 serves 127.0.0.1:";
    second.wait_for_stderr(words);
    first.signal(Signal::SIGINT);
    first.finish().exits(130);
    let served = second.finish();
    served.exits(0);
    assert_eq!(served.stderr.matches(words).count(), 1);
}

#[test]
fn once_serves_one_client_and_exits_0() {
    let port = free_port();
    let server = Tool::write_bw_tcp().args("--once --json").serve(port);
    let client = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {port} -n 10 --json")).run();
    client.exits(0);
    let served = server.finish_within(SOON);
    served.exits(0);
    assert_eq!(served.document(), client.document());
}

#[test]
fn ctrl_c_ends_an_idle_server_with_0() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let server = Tool::write_bw_tcp().serve(free_port());
        server.signal(signal);
        server.finish_within(SOON).exits(0).silent_on_stdout();
    }
}

#[test]
fn a_server_over_tcp_refuses_a_client_that_wants_rdma_only_for_want_of_a_device() {
    // The client is refused by its own machine here; on a host with a device the server's reason is the same story.
    let port = free_port();
    let _server = Tool::write_bw_tcp().serve(port);
    let refused = Tool::new("write-bw").args(&format!("127.0.0.1 -p {port}")).run();
    refused.silent_on_stdout().says(&["--transport tcp"]);
    served("127.0.0.1", port);
}
