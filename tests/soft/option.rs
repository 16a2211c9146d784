//! `--soft-device`: the software device without a word about its library.

use linkproof_tests::{Tool, binary, free_port};

fn soft_device(tool: &str, fabric: &str) -> Tool {
    Tool::new(tool).arg("--soft-device").env("LINKPROOF_SOFTNIC", format!("fabric={fabric}"))
}

#[test]
fn both_tools_run_on_a_machine_without_any_rdma() {
    for tool in ["write-bw", "write-lat"] {
        let port = free_port();
        let fabric = format!("option-{port}");
        let _server = soft_device(tool, &fabric).serve(port);
        let client = soft_device(tool, &fabric).args(&format!("127.0.0.1 -p {port} -n 50 --json"));
        let run = client.run();
        let document = run.exits(0).document();
        for end in ["client", "server"] {
            let end = &document["link"][end];
            assert_eq!((&end["device"], &end["device_kind"]), (&"soft0".into(), &"software".into()));
        }
    }
}

#[test]
fn the_header_says_what_the_speed_is_not() {
    let port = free_port();
    let fabric = format!("option-{port}");
    let _server = soft_device("write-bw", &fabric).serve(port);
    let run = soft_device("write-bw", &fabric).args(&format!("127.0.0.1 -p {port} -n 50")).run();
    run.exits(0).says(&["soft0 is emulated in software (softnic)"]);
    assert!(run.stdout.contains(" Device kind  : software: no speed below is a link's\n"));
}

#[test]
fn with_tcp_it_is_refused() {
    for host in ["", "127.0.0.1"] {
        let run = Tool::tcp("write-bw").arg("--soft-device").args(host).run();
        run.exits(2).says(&["--soft-device is an RDMA device, and --transport tcp uses none"]);
    }
}

#[test]
fn without_its_library_it_says_where_that_was_looked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let alone = folder.path().join("write-bw");
    std::fs::copy(binary("write-bw"), &alone).expect("the tool can be copied");
    // cargo names the build's folders to the dynamic loader, for the tests it runs.
    let run = Tool::program(&alone).args("--soft-device 127.0.0.1").env("LD_LIBRARY_PATH", "").run();
    run.exits(3).says(&[
        "the software device can't be used: cannot open the verbs library libsoftnic.so",
        &format!("looked in: {}", folder.path().display()),
        "hint: put libsoftnic.so beside the executable",
    ]);
}

#[test]
fn a_description_with_an_error_is_told_with_its_place_and_there_is_no_device() {
    let run =
        Tool::new("write-bw").args("--soft-device 127.0.0.1").env("LINKPROOF_SOFTNIC", "soft0 mtu=1500");
    let run = run.run();
    run.exits(3).says(&[
        "softnic: cannot use the description of the devices: LINKPROOF_SOFTNIC, line 1, column 11: an MTU is 256,",
        "write-bw: this machine has no RDMA device",
    ]);
}

#[test]
fn a_port_that_is_down_is_not_used() {
    let down =
        Tool::new("write-bw").args("--soft-device 127.0.0.1").env("LINKPROOF_SOFTNIC", "soft0 state=down");
    down.run().exits(3).says(&["port 1 of soft0 is DOWN, not ACTIVE"]);
}

#[test]
fn infiniband_is_addressed_by_lid() {
    let port = free_port();
    let tool = |lid: u32| {
        let description = format!("fabric=option-{port}; ib0 link=infiniband lid={lid}");
        Tool::new("write-bw").arg("--soft-device").env("LINKPROOF_SOFTNIC", description)
    };
    let _server = tool(4).serve(port);
    let run = tool(5).args(&format!("127.0.0.1 -p {port} -n 50 --validate --json")).run();
    let document = run.exits(0).document();
    assert_eq!(document["link"]["addressing"], "InfiniBand in one subnet: addressed by LID");
    assert_eq!(
        (&document["link"]["client"]["lid"], &document["link"]["server"]["lid"]),
        (&5.into(), &4.into())
    );
}

#[test]
fn ends_of_two_fabrics_do_not_reach_each_other() {
    let port = free_port();
    let _server = soft_device("write-bw", &format!("one-{port}")).serve(port);
    let client = soft_device("write-bw", &format!("other-{port}"));
    let run = client.args(&format!("127.0.0.1 -p {port} -u 10 --retry-count 1")).run();
    run.exits(4)
        .says(&["a write did not complete: RETRY_EXC_ERR (12)", "and of one fabric (docs/softnic.md)"]);
}
