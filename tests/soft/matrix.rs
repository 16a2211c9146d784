//! The rows of `tests/rxe/matrix.rs` that a device without a network can tell as well: limits, addresses, MTU, and messages that
//! are lost, late or damaged. Compared are exit statuses and codes.

use linkproof_tests::{is_root, skip, works};
use serde_json::{Value, json};

use crate::runs::Server;

/// The exit status's code and the document of a client with `options`.
fn measure(server: &Server, device: &str, wrapped: &str, options: &str, exit: i32) -> (Value, Value) {
    let client = server.client(device).by_way_of(wrapped).args("-n 20 --rounds 1 --json").args(options);
    let run = client.run();
    let document = run.exits(exit).document();
    (document["verdict"]["failures"][0]["code"].clone(), document)
}

#[test]
fn the_locked_memory_limit_decides_for_a_user_and_not_for_root() {
    let name = "the_locked_memory_limit_decides_for_a_user_and_not_for_root";
    let without_right = "setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock";
    if !works(&format!("prlimit --memlock=65536:65536 {without_right} true")) {
        return skip(
            name,
            "prlimit and setpriv can't take the capability here (ci/setup installs util-linux)",
        );
    }
    let server = Server::start("write-bw", "soft0");
    for limit in [64 << 10, 1 << 20, 8 << 20] {
        for (size, bytes) in [("4K", 4 << 10), ("1M", 1 << 20)] {
            let limited = format!("prlimit --memlock={limit}:{limit}");
            let fits = bytes <= limit;
            let (exit, expected) = if fits { (0, Value::Null) } else { (3, json!("memlock")) };
            let as_user = format!("{limited} {without_right}");
            let (code, _) = measure(&server, "soft0", &as_user, &format!("-s {size}"), exit);
            assert_eq!(code, expected, "{limit} {size}");
            if is_root() {
                measure(&server, "soft0", &limited, &format!("-s {size}"), 0);
            }
        }
    }
}

#[test]
fn the_same_index_of_each_family_on_both_ends_works() {
    // Link-local, IPv4-mapped, IPv6.
    let table =
        |end: u8| format!("soft0 gid=roce2:fe80::{end} gid=roce2:10.77.0.{end} gid=roce2:fd77::{end}");
    for (index, prefix) in [(0, "fe80::"), (1, "::ffff:10.77."), (2, "fd77::")] {
        let server = Server::start_with("write-bw", &table(1), &format!("-x {index}"));
        let (_, document) = measure(&server, &table(2), "", &format!("-x {index} --validate"), 0);
        for end in ["client", "server"] {
            let gid = document["link"][end]["gid"]["gid"].as_str().expect("a GID");
            assert!(gid.starts_with(prefix), "{end} {index}: {gid}");
        }
    }
    let server = Server::start_with("write-bw", &table(1), "-x 1");
    assert_eq!(measure(&server, &table(2), "", "-x 9", 3).0, json!("gid-index"));
    assert_eq!(measure(&server, &table(2), "", "-x 0", 4).0, json!("gid-family"));
}

#[test]
fn the_smaller_active_mtu_decides_and_more_is_refused() {
    for (ours, theirs) in [(4096, 1024), (1024, 4096), (2048, 2048)] {
        let server = Server::start("write-bw", &format!("soft0 mtu={theirs}"));
        let device = format!("soft0 mtu={ours}");
        let smaller = ours.min(theirs);
        let (_, document) = measure(&server, &device, "", "--validate", 0);
        assert_eq!(document["link"]["path_mtu_bytes"], json!(smaller));
        // What this end's port has not is this machine's, what the other's has not the peer's.
        let exit = if ours < 4096 { 3 } else { 4 };
        assert_eq!(measure(&server, &device, "", "-m 4096", exit).0, json!("device-limit"));
    }
}

#[test]
fn messages_that_are_late_arrive_and_damaged_or_lost_ones_are_told() {
    let server = Server::start("write-bw", "soft0");
    let with = |fault: &str, options: &str, exit| {
        measure(&server, &format!("soft0 fault={fault}"), "", options, exit)
    };
    let (_, document) = with("send@3+:delay=20ms", "--warmup 0 --validate", 0);
    assert_eq!(document["results"][0]["wrong_bytes"], json!(0));
    assert_eq!(with("send@10+:corrupt", "--warmup 0 --validate", 1).0, json!("wrong-data"));
    assert_eq!(with("send@10+:lost", "-u 10 --retry-count 1", 4).0, json!("completion"));
    assert_eq!(with("port@10:down", "-u 10 --retry-count 1", 4).0, json!("completion"));
}
