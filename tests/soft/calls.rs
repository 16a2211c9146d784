//! Calls that fail: each has its message and its exit status, on the end where it fails and on the other.

use linkproof_tests::{Tool, free_port, library};

use crate::runs::Server;

/// What a client says whose device has `fault`.
fn client_says(fault: &str, options: &str, code: i32, words: &[&str]) {
    let server = Server::start("write-bw", "soft0");
    server.client(&format!("soft0 fault={fault}")).args("-n 50").args(options).run().exits(code).says(words);
}

#[test]
fn on_the_clients_machine_it_is_this_machine() {
    for (fault, words) in [
        ("open_device@1+:ENODEV", "cannot open soft0: ibv_open_device: ENODEV (19)"),
        ("query_device@1+:EIO", "cannot query soft0: ibv_query_device: EIO (5)"),
        ("query_port@1+:EIO", "cannot query soft0: ibv_query_port 1: EIO (5)"),
        ("alloc_pd@1:ENOMEM", "cannot create a protection domain on soft0: ibv_alloc_pd: ENOMEM (12)"),
        ("reg_mr@1:ENOMEM fault=reg_mr@2:ENOMEM", "on soft0: ibv_reg_mr: ENOMEM (12)"),
        ("reg_mr@1+:EFAULT", "of host memory on soft0: ibv_reg_mr: EFAULT (14), Bad address"),
        ("reg_mr@1+:EOPNOTSUPP", "of host memory on soft0: ibv_reg_mr: EOPNOTSUPP (95)"),
        ("create_cq@1:ENOMEM", "cannot create a completion queue of"),
        (
            "create_qp_ex@1+:ENOMEM fault=create_qp@1+:ENOMEM",
            "cannot create a queue pair for 128 outstanding writes",
        ),
        ("modify_qp@1:EINVAL", "stayed in RESET, wanted INIT: ibv_modify_qp: EINVAL (22)"),
    ] {
        client_says(fault, "", 3, &[words]);
    }
}

#[test]
fn on_the_way_to_the_peer_it_is_the_path() {
    let words = [
        "stayed in INIT, wanted RTR: ibv_modify_qp: ETIMEDOUT (110)",
        "hint: the peer's address does not answer on the way there: see ip neigh show 127.0.0.1",
    ];
    client_says("modify_qp@2:ETIMEDOUT", "", 4, &words);
}

#[test]
fn at_the_other_steps_the_same_errno_is_the_adapters() {
    for (fault, exit, words) in [
        ("modify_qp@1:ETIMEDOUT", 3, "hint: soft0 does not answer its driver"),
        ("modify_qp@3:ETIMEDOUT", 4, "hint: soft0 does not answer its driver"),
        ("modify_qp@3:ENODEV", 4, "hint: soft0 is gone, or is being reset"),
        ("modify_qp@3:EINVAL", 4, "hint: the driver does not take the time-out or the retries"),
        ("modify_qp@2:EAGAIN", 4, "hint: the adapter or its driver was busy, or out of objects"),
    ] {
        client_says(fault, "", exit, &["ibv_modify_qp: ", words]);
    }
}

#[test]
fn no_way_to_the_peers_address_names_the_errno_the_address_and_what_to_ask() {
    for (errno, hint) in [
        (
            "ENETUNREACH (101)",
            "hint: see whether the kernel has a route to the peer's address: ip route get 127.0.0.1",
        ),
        (
            "EHOSTUNREACH (113)",
            "hint: see whether the kernel has a route to the peer's address: ip route get 127.0.0.1",
        ),
        ("ENODEV (19)", "hint: the network interface of this end's GID 127.0.0.1 is gone or down"),
    ] {
        let name = errno.split(' ').next().unwrap_or_default();
        let stayed = format!("on soft0 stayed in INIT, wanted RTR: ibv_modify_qp: {errno}");
        client_says(&format!("modify_qp@2:{name}"), "", 4, &[stayed.as_str(), "  path: ", hint]);
    }
}

#[test]
fn queues_without_room_point_to_the_locked_memory_limit() {
    let hint = "hint: the device or the locked-memory limit has no room for the queues";
    for (fault, queue) in [
        ("create_cq@1:ENOMEM", "cannot create a completion queue of"),
        ("create_qp_ex@1+:ENOMEM fault=create_qp@1+:ENOMEM", "cannot create a queue pair for"),
    ] {
        client_says(fault, "", 3, &[queue, "ENOMEM (12)", "  memlock: soft ", hint]);
    }
}

#[test]
fn on_the_data_path_it_is_a_completion() {
    client_says("post_send@60:ENOMEM", "--warmup 0", 4, &["cannot post a write on QP 0x", "ENOMEM (12)"]);
    client_says("poll_cq@3:EIO", "", 4, &["cannot poll the completion queue on soft0: ibv_poll_cq: -5"]);
}

#[test]
fn on_the_servers_machine_both_ends_hear_of_it() {
    let server = Server::start("write-bw", "soft0 fault=reg_mr@1:EFAULT fault=reg_mr@2:EFAULT");
    let run = server.client("soft0").args("-n 50").run();
    run.exits(4).says(&["could not go on: cannot register", "ibv_reg_mr: EFAULT (14)", "memlock (there): "]);
    server.process.wait_for_stderr("write-bw: cannot register");
    // The third registration succeeds: the server has gone on.
    server.client("soft0").args("-n 50").run().exits(0);
}

#[test]
fn relaxed_ordering_is_done_without_where_it_is_refused() {
    let server = Server::start("write-bw", "soft0");
    let registration = |device: &str| {
        let document = server.client(device).args("-n 50 --json").run().exits(0).document();
        document["memory"]["registration"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(registration("soft0"), "ibv_reg_mr, relaxed ordering allowed");
    assert_eq!(registration("soft0 fault=reg_mr@1:EOPNOTSUPP"), "ibv_reg_mr, strict ordering");
}

#[test]
fn extended_posting_is_done_without_where_it_is_refused() {
    let server = Server::start("write-bw", "soft0");
    let run = server.client("soft0 fault=create_qp_ex@1+:EOPNOTSUPP").args("-n 50 --validate --json").run();
    let document = run.exits(0).document();
    assert_eq!(document["link"]["client"]["posting"], "ibv_post_send");
    assert_eq!(document["link"]["server"]["posting"], "ibv_wr");
    assert_eq!(document["results"][0]["wrong_bytes"], 0);
}

/// A copy of the library in which nothing is called `symbol` any more, in `folder`.
fn without(symbol: &str, folder: &std::path::Path) -> std::path::PathBuf {
    let mut bytes = std::fs::read(library("softnic")).expect("the library can be read");
    let name = format!("\0{symbol}\0").into_bytes();
    let places: Vec<_> = (0..bytes.len() - name.len()).filter(|&at| bytes[at..].starts_with(&name)).collect();
    assert!(!places.is_empty(), "the library has no {symbol}");
    places.into_iter().for_each(|at| bytes[at + 1] = b'X');
    let path = folder.join("libolder.so");
    std::fs::write(&path, bytes).expect("the copy can be written");
    path
}

#[test]
fn a_library_that_lacks_a_function_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = Tool::new("write-bw")
        .args("127.0.0.1")
        .env("LINKPROOF_IBVERBS", without("ibv_modify_qp", folder.path()))
        .run();
    run.exits(3).says(&["the RDMA library can't be used: ", "it has no ibv_modify_qp"]);
}

#[test]
fn a_library_without_the_newer_functions_will_do() {
    let folder = tempfile::tempdir().expect("a folder");
    for symbol in ["ibv_qp_to_qp_ex", "ibv_reg_mr_iova2"] {
        let port = free_port();
        let older = without(symbol, folder.path());
        let tool = || {
            Tool::new("write-bw")
                .args("-d soft0")
                .env("LINKPROOF_IBVERBS", older.clone())
                .env("LINKPROOF_SOFTNIC", format!("fabric=calls-{port}"))
        };
        let _server = tool().serve(port);
        let run = tool().args(&format!("127.0.0.1 -p {port} -n 50 --validate")).run();
        run.exits(0);
        assert!(run.stdout.contains("all as sent"), "{symbol}");
    }
}
