//! Which device, port and GID: chosen, asked for, and refused.

use linkproof_tests::lab::{Fault, Lab, User, Vm};

use crate::{client_in_b, port, server_in_a};

#[test]
fn an_unknown_device_is_answered_with_those_present() {
    let Some(lab) = Lab::get("an_unknown_device_is_answered_with_those_present") else { return };
    let outcome = lab.run(Vm::B, &["write-bw", "-d", "mlx5_9", "a"]).expect_status(3).expect_stderr(&[
        "write-bw: no RDMA device is called mlx5_9",
        "present: rxe0 (port 1 ACTIVE, Ethernet",
        "hint: choose one with --ib-dev",
    ]);
    assert_eq!(outcome.stdout, "");
}

#[test]
fn a_port_that_the_device_does_not_have() {
    let Some(lab) = Lab::get("a_port_that_the_device_does_not_have") else { return };
    lab.run(Vm::B, &["write-bw", "-d", "rxe0", "-i", "2", "a"])
        .expect_status(3)
        .expect_stderr(&["rxe0 has no port 2", "present: port 1 ACTIVE"]);
}

#[test]
fn a_port_that_is_down_is_named_with_its_state() {
    let Some(lab) = Lab::get("a_port_that_is_down_is_named_with_its_state") else { return };
    let fault = Fault::link_down(lab, Vm::B);
    for options in [&["-d", "rxe0"][..], &[]] {
        let mut program = vec!["write-bw"];
        program.extend(options);
        program.push("10.77.0.1");
        lab.run(Vm::B, &program)
            .expect_status(3)
            .expect_stderr(&["port 1 of rxe0 is DOWN, not ACTIVE", "hint: "]);
    }
    drop(fault);
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    client_in_b(lab, &port, &["-n", "5"]).expect_status(0);
}

#[test]
fn a_gid_index_outside_the_table_or_unused() {
    let Some(lab) = Lab::get("a_gid_index_outside_the_table_or_unused") else { return };
    lab.run(Vm::B, &["write-bw", "-d", "rxe0", "-x", "100000", "a"]).expect_status(3).expect_stderr(&[
        "GID index 100000 is outside the table of rxe0 port 1",
        "in use: 0 fe80::",
        "hint: omit --gid-index",
    ]);
    lab.run(Vm::B, &["write-bw", "-d", "rxe0", "-x", "9", "a"]).expect_status(3).expect_stderr(&[
        "GID index 9 of rxe0 port 1 is an unused entry",
        "1 ::ffff:10.77.0.2 (RoCE v2, eth1)",
    ]);
}

#[test]
fn an_index_on_one_end_makes_the_other_follow() {
    let Some(lab) = Lab::get("an_index_on_one_end_makes_the_other_follow") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    client_in_b(lab, &port, &["-x", "2", "-n", "5", "--validate"]).expect_status(0).expect_stdout(&[
        "GID 2 fd77::2 (RoCE v2, eth1)",
        "GID 2 fd77::1 (RoCE v2, eth1)",
        "GID choice   : --gid-index on the client, and on the server the entry that fits it best (RoCE v2 IPv6)",
    ]);
}

#[test]
fn different_indexes_of_one_family_work() {
    let Some(lab) = Lab::get("different_indexes_of_one_family_work") else { return };
    // A second address in a, so that the same family stands at another index there.
    lab.shell(Vm::A, "ip addr add 10.77.0.9/24 dev eth1");
    let index = lab.shell(
        Vm::A,
        "cd /sys/class/infiniband/rxe0/ports/1/gids; i=0; \
         until grep -ls 0000:0000:0000:0000:0000:ffff:0a4d:0009 *; do i=$((i + 1)); [ $i -lt 50 ]; sleep 0.1; done",
    );
    let port = port();
    let server = server_in_a(lab, &port, &["-x", index.trim()]);
    let outcome = client_in_b(lab, &port, &["-x", "1", "-n", "5", "--validate"]);
    drop(server);
    lab.shell(Vm::A, "ip addr del 10.77.0.9/24 dev eth1");
    assert_ne!(index.trim(), "1");
    outcome.expect_status(0).expect_stdout(&["::ffff:10.77.0.9", "GID choice   : --gid-index on both ends"]);
}

#[test]
fn gids_of_different_families_are_refused_before_the_queue_pair_is_touched() {
    let Some(lab) = Lab::get("gids_of_different_families_are_refused_before_the_queue_pair_is_touched")
    else {
        return;
    };
    let port = port();
    let server = server_in_a(lab, &port, &["-x", "0", "--once"]);
    let outcome = client_in_b(lab, &port, &["-x", "1", "-n", "5"]).expect_status(4).expect_stderr(&[
        "the client's GID is RoCE v2 IPv4-mapped and the server's is RoCE v2 link-local IPv6",
        "client: 1 ::ffff:10.77.0.2 (RoCE v2, eth1)",
        "server: 0 fe80::",
        "hint: omit --gid-index on both ends",
    ]);
    assert!(!outcome.stderr.contains("QP 0x"), "{}", outcome.show());
    server.finish().expect_status(4).expect_stderr(&["they cannot talk to each other"]);
}

#[test]
fn a_path_mtu_beyond_the_ports_is_refused() {
    let Some(lab) = Lab::get("a_path_mtu_beyond_the_ports_is_refused") else { return };
    lab.run(Vm::B, &["write-bw", "-d", "rxe0", "-m", "4096", "a"]).expect_status(3).expect_stderr(&[
        "--mtu asks for a path MTU of 4096 and the active MTU of port 1 of rxe0 is 1024",
        "hint: omit --mtu",
    ]);
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    client_in_b(lab, &port, &["-m", "512", "-n", "5"])
        .expect_status(0)
        .expect_stdout(&["Path MTU     : 512 B"]);
}

#[test]
fn a_user_without_access_to_the_device_is_told_so() {
    let Some(lab) = Lab::get("a_user_without_access_to_the_device_is_told_so") else { return };
    lab.shell(Vm::B, "chmod 600 /dev/infiniband/uverbs0");
    let outcome = lab.run_as(Vm::B, User::Nobody { memlock: 1 << 20 }, &["write-bw", "-d", "rxe0", "a"]);
    lab.shell(Vm::B, "chmod 666 /dev/infiniband/uverbs0");
    outcome.expect_status(3).expect_stderr(&[
        "cannot open rxe0: ibv_open_device: ",
        "device node: /dev/infiniband/uverbs0: EACCES (13)",
        "this user needs read and write access",
    ]);
}
