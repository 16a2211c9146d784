//! Limits of a device, and ends that don't fit together: refused before anything is written.

use linkproof_tests::{Tool, free_port, skip, works};

use crate::runs::Server;

fn client_says(server: &str, client: &str, options: &str, code: i32, words: &[&str]) {
    let server = Server::start("write-bw", server);
    server.client(client).args("-n 50").args(options).run().exits(code).says(words);
}

#[test]
fn what_the_clients_device_has_no_room_for_is_this_machine() {
    for (device, options, words) in [
        ("max_qp=3", "-q 4", "--qp asks for 4 queue pairs and soft0 allows 3"),
        ("max_qp_wr=64", "-t 65", "--tx-depth asks for 65 outstanding writes and soft0 allows 64"),
        ("max_inline=60", "-I 61", "--inline-size asks for 61 bytes of inline data and soft0 allows 60"),
        ("max_cqe=100", "-q 64", "completion queue entries and soft0 allows 100"),
        ("max_mr_size=4K", "-s 1M", "ibv_reg_mr: EINVAL (22)"),
        ("gid=none", "", "the GID table of soft0 port 1 is empty"),
        (
            "mtu=1024",
            "-m 4096",
            "--mtu asks for a path MTU of 4096 and the active MTU of port 1 of soft0 is 1024",
        ),
        ("", "-x 7", "GID index 7 is outside the table of soft0 port 1, which has 2 entries"),
        ("gid=none gid=roce2:192.0.2.1", "-x 0", "GID index 0 of soft0 port 1 is an unused entry"),
    ] {
        client_says("soft0", &format!("soft0 {device}"), options, 3, &[words]);
    }
}

#[test]
fn what_the_servers_device_has_no_room_for_is_the_peer() {
    client_says(
        "soft0 max_qp=3",
        "soft0",
        "-q 4",
        4,
        &["could not go on: --qp asks for 4 queue pairs and soft0 allows 3"],
    );
}

#[test]
fn ends_that_do_not_fit_are_told_apart() {
    let no_pair = ["no pair of", "192.0.2.1", "fe80::7"];
    client_says("soft0 gid=roce2:192.0.2.1", "soft0 gid=roce2:fe80::7", "", 4, &no_pair[1..]);
    let fabric = "they are not on one fabric";
    client_says("soft0 link=infiniband", "soft0", "", 4, &[fabric]);
}

#[test]
fn the_smaller_mtu_of_the_ends_is_the_paths() {
    let server = Server::start("write-bw", "soft0 mtu=1024");
    let run = server.client("soft0").args("-n 50 --validate --json").run();
    assert_eq!(run.exits(0).document()["link"]["path_mtu_bytes"], 1024);
}

#[test]
fn a_gid_in_another_place_is_found_by_what_it_is() {
    let server = Server::start("write-bw", "soft0 gid=none gid=roce1:192.0.2.1 gid=roce2:192.0.2.1");
    let run = server.client("soft0 gid=roce2:192.0.2.2").args("-n 50 --validate --json").run();
    let document = run.exits(0).document();
    assert_eq!(
        (&document["link"]["client"]["gid"]["index"], &document["link"]["server"]["gid"]["index"]),
        (&0.into(), &2.into())
    );
}

#[test]
fn the_limit_on_locked_memory_holds() {
    let name = "the_limit_on_locked_memory_holds";
    let limited = "prlimit --memlock=65536:65536 setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock";
    if !works(&format!("{limited} true")) {
        return skip(
            name,
            "prlimit and setpriv can't take the capability here (ci/setup installs util-linux)",
        );
    }
    let server = Server::start("write-bw", "soft0");
    let run = server.client("soft0").by_way_of(limited).args("-n 50 -s 1M").run();
    run.exits(3).says(&["memlock", "64 KiB"]);
    let client = |options: &str| server.client("soft0").by_way_of(limited).args("-n 50").args(options).run();
    client("-s 4K").exits(0);
    // The largest of all sizes counts, before the first of them is measured.
    let all = client("-a");
    all.exits(3)
        .silent_on_stdout()
        .says(&["cannot register 8 MiB of host memory on soft0: the locked-memory limit is 64 KiB"]);
    // What one direction may pin, two may not.
    let both = client("-b -s 64K");
    both.exits(3)
        .silent_on_stdout()
        .says(&["cannot register 128 KiB", "this run pins: 128 KiB (2 of 64 KiB)"]);
}

#[test]
fn a_device_that_cannot_be_opened_leaves_the_others() {
    let port = free_port();
    let description = format!("fabric=limits-{port}; soft0 fault=open_device@1+:ENODEV; soft1");
    let tool = || Tool::new("write-bw").arg("--soft-device").env("LINKPROOF_SOFTNIC", description.clone());
    let _server = tool().serve(port);
    let run = tool().args(&format!("127.0.0.1 -p {port} -n 50 --json")).run();
    let link = &run.exits(0).document()["link"];
    assert_eq!((&link["client"]["device"], &link["server"]["device"]), (&"soft1".into(), &"soft1".into()));
    let run = tool().args("-d soft0 127.0.0.1").run();
    run.exits(3).says(&["cannot open soft0: ibv_open_device: ENODEV (19)"]);
}

#[test]
fn a_second_device_is_chosen_by_name() {
    let port = free_port();
    let description = format!("fabric=limits-{port}; soft0 state=down; soft1 gid=roce2:192.0.2.1");
    let tool = || Tool::new("write-bw").arg("--soft-device").env("LINKPROOF_SOFTNIC", description.clone());
    let _server = tool().args("-d soft1").serve(port);
    // The first with an ACTIVE port.
    let run = tool().args(&format!("127.0.0.1 -p {port} -n 50 --json")).run();
    assert_eq!(run.exits(0).document()["link"]["client"]["device"], "soft1");
    let run = tool().args("-d soft9 127.0.0.1").run();
    run.exits(3).says(&["no RDMA device is called soft9", "soft0 (port 1 DOWN", "soft1 (port 1 ACTIVE"]);
}
