//! What this machine lacks: exit status 3, and the way out.

use std::path::{Path, PathBuf};
use std::process::Command;

use linkproof_tests::{
    Finished, Tool, binary, built_programs, free_port, is_root, rdma_devices, skip, works,
};

fn device_is_present(test: &str) -> bool {
    let devices = rdma_devices();
    if !devices.is_empty() {
        skip(test, &format!("this host has RDMA devices: {}", devices.join(" ")));
    }
    !devices.is_empty()
}

/// The library may be missing on this host, and the message then says so instead.
fn names_what_is_missing(refused: &Finished) {
    refused.exits(3).silent_on_stdout().says(&["hint: ", "--transport tcp"]);
    let no_device = refused.stderr.contains("RDMA device");
    assert!(no_device || refused.stderr.contains("libibverbs.so.1"), "it names what is missing");
}

#[test]
fn without_a_device_client_and_server_exit_3_and_name_tcp() {
    if device_is_present("without_a_device_client_and_server_exit_3_and_name_tcp") {
        return;
    }
    for line in ["", "host", "-d mlx5_0", "-d mlx5_0 host", "--once"] {
        names_what_is_missing(&Tool::new("write-bw").args(line).run());
    }
}

#[test]
fn without_a_device_the_named_one_is_in_the_message() {
    if device_is_present("without_a_device_the_named_one_is_in_the_message") {
        return;
    }
    let refused = Tool::new("write-bw").args("-d mlx5_0 host").run();
    if !refused.stderr.contains("libibverbs") {
        refused.says(&["no RDMA device is called mlx5_0"]);
    }
    let document = Tool::new("write-bw").args("-d mlx5_0 host --json").run().document();
    let code = document["verdict"]["failures"][0]["code"].as_str().expect("a code");
    assert!(["device-not-found", "no-rdma-device", "library-missing"].contains(&code), "{code}");
}

#[test]
fn a_missing_library_exits_3_and_is_named() {
    for line in ["", "host", "-d mlx5_0 host"] {
        let refused = Tool::new("write-bw").args(line).env("LINKPROOF_IBVERBS", "/nonexistent.so").run();
        refused.exits(3).silent_on_stdout().says(&["/nonexistent.so", "hint: ", "--transport tcp"]);
    }
    let json = Tool::new("write-bw").args("host --json").env("LINKPROOF_IBVERBS", "/nonexistent.so").run();
    assert_eq!(json.document()["verdict"]["failures"][0]["code"], "library-missing");
}

#[test]
fn tcp_needs_no_library() {
    let port = free_port();
    let _server = Tool::write_bw_tcp().env("LINKPROOF_IBVERBS", "/nonexistent.so").serve(port);
    let client = Tool::write_bw_tcp().env("LINKPROOF_IBVERBS", "/nonexistent.so");
    client.args(&format!("127.0.0.1 -p {port} -s 64 -n 5")).run().exits(0);
}

/// The files that the dynamic loader opens for `program`, from ldd.
fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

fn copy_below(root: &Path, file: &Path) {
    let to = root.join(file.strip_prefix("/").expect("an absolute path"));
    std::fs::create_dir_all(to.parent().expect("it is in a folder")).expect("the folder can be made");
    std::fs::copy(file, to).expect("the file can be copied");
}

#[test]
fn on_a_node_with_nothing_but_libc_it_starts_and_names_the_library() {
    const NAME: &str = "on_a_node_with_nothing_but_libc_it_starts_and_names_the_library";
    if !is_root() {
        return skip(NAME, "chroot needs root");
    }
    if !works("ldd --version") || !works("chroot / true") {
        return skip(NAME, "ldd or chroot can't be run here");
    }
    let root = tempfile::tempdir().expect("a temporary folder");
    let program = binary("write-bw");
    libraries_of(&program).iter().for_each(|library| copy_below(root.path(), library));
    std::fs::copy(&program, root.path().join("write-bw")).expect("the tool can be copied");
    let chroot = format!("chroot {}", root.path().display());
    let run = |line: &str| Tool::program(Path::new("/write-bw")).by_way_of(&chroot).args(line).run();
    run("-d mlx5_0 host").exits(3).silent_on_stdout().says(&["libibverbs.so.1", "hint: "]);
    run("--version").exits(0);
}

#[test]
fn no_tool_is_linked_with_the_verbs_library() {
    if !works("readelf --version") {
        return skip("no_tool_is_linked_with_the_verbs_library", "readelf is not here");
    }
    let programs = built_programs();
    assert!(programs.contains(&binary("write-bw")));
    for program in programs {
        let output = Command::new("readelf").arg("-d").arg(&program).output().expect("readelf runs");
        let needs = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(needs.contains("NEEDED"), "readelf says nothing of {}", program.display());
        assert!(!needs.contains("ibverbs"), "{} needs libibverbs to start:\n{needs}", program.display());
    }
}

#[test]
fn a_run_larger_than_memory_is_refused_before_any_connection() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port of 127.0.0.1");
    server.set_nonblocking(true).expect("it can be polled");
    let port = server.local_addr().expect("it has an address").port();
    let refused = Tool::write_bw_tcp().args(&format!("127.0.0.1 -p {port} -s 2G -q 1000")).run();
    refused.exits(3).silent_on_stdout().says(&["2000 GiB", "available", "hint: "]);
    assert!(server.accept().is_err(), "the client connected before it looked at its memory");
}

#[test]
fn a_port_that_is_taken_exits_3_and_names_it() {
    let port = free_port();
    let _first = Tool::write_bw_tcp().serve(port);
    let second = Tool::write_bw_tcp().args(&format!("-p {port}")).run();
    second.exits(3).silent_on_stdout().says(&[&format!("cannot listen on TCP port {port}"), "EADDRINUSE"]);
    let json = Tool::write_bw_tcp().args(&format!("-p {port} --json")).run();
    assert_eq!(json.exits(3).document()["verdict"]["failures"][0]["code"], "listen");
}

#[test]
fn a_result_that_cannot_be_written_exits_3_and_names_the_file() {
    let port = free_port();
    let _server = Tool::write_bw_tcp().serve(port);
    let line = format!("127.0.0.1 -p {port} -s 64 -n 5 --json=/nonexistent/result.json");
    Tool::write_bw_tcp()
        .args(&line)
        .run()
        .exits(3)
        .says(&["cannot write /nonexistent/result.json", "ENOENT"]);
}

#[test]
fn more_huge_pages_than_any_machine_has_are_refused_with_the_pools_counts() {
    let refused = Tool::write_bw_tcp().args("127.0.0.1 --hugepages -s 2G -q 16384").run();
    refused.exits(3).silent_on_stdout().says(&[
        "--hugepages needs 16777216 pages of 2 MiB and ",
        "  /sys/kernel/mm/hugepages/hugepages-2048kB: ",
        "hint: as root: echo ",
    ]);
}

/// Whether this machine has huge pages set aside; otherwise none can be had.
fn has_huge_pages() -> bool {
    let pool = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    pool.is_ok_and(|free| free.trim() != "0")
}

#[test]
fn huge_pages_that_are_only_tried_for_give_way_and_both_ends_say_so() {
    if has_huge_pages() {
        return skip(
            "huge_pages_that_are_only_tried_for_give_way_and_both_ends_say_so",
            "this machine has huge pages, so they are used",
        );
    }
    for tool in ["write-bw", "write-lat"] {
        let port = free_port();
        let server = Tool::tcp(tool).args("--once --json").serve(port);
        let line = format!("127.0.0.1 -p {port} -n 10 --json --hugepages=try");
        let client = Tool::tcp(tool).args(&line).run();
        client.exits(0).says(&["warning: both ends have memory in pages of the base size"]);
        let document = client.document();
        let memory = &document["memory"];
        assert_eq!((&memory["client_kind"], &memory["server_kind"]), (&"host".into(), &"host".into()));
        assert_eq!(document["plan"]["memory"], "host_huge_if_any");
        let warned = document["warnings"].as_array().expect("a list");
        assert!(warned.iter().any(|warning| warning["code"] == "base-pages"), "{warned:?}");
        assert_eq!(server.finish().document(), document);
    }
}
