//! Runs with GPU memory: softnic's device, softgpu's GPU. What a device pointer leads to can't be reached by the processor,
//! so that a byte that arrives has gone the way that the header names.

use linkproof_tests::{Finished, Tool, free_port, schema, softgpu};
use serde_json::Value;

/// The two ends of a run.
struct Ends {
    tool: &'static str,
    /// softnic's description; `None`: over TCP.
    devices: Option<&'static str>,
    /// softgpu's.
    gpus: &'static str,
}

/// Both ways to a GPU open.
const REACHABLE: &str = "";

impl Ends {
    fn soft(tool: &'static str, devices: &'static str) -> Self {
        Self { tool, devices: Some(devices), gpus: "" }
    }

    fn tcp(tool: &'static str) -> Self {
        Self { tool, devices: None, gpus: "" }
    }

    fn end(&self, port: u16) -> Tool {
        let tool = match self.devices {
            Some(devices) => Tool::soft(self.tool, &format!("gpu-{port}"), devices),
            None => Tool::tcp(self.tool),
        };
        tool.env("LINKPROOF_CUDA", softgpu()).env("LINKPROOF_SOFTGPU", self.gpus)
    }

    /// A client's run with `options`, against a server of its own.
    fn run(&self, options: &str) -> Finished {
        let port = free_port();
        let _server = self.end(port).serve(port);
        self.end(port).args("127.0.0.1 --port").arg(port.to_string()).args(options).arg("--json").run()
    }

    /// The document of a run that is right to the last byte.
    fn right(&self, options: &str) -> Value {
        let document = self.run(options).exits(0).document();
        for result in document["results"].as_array().expect("a result has rows") {
            assert_eq!(result["wrong_bytes"], 0, "{result}");
            assert!(result["checked_bytes"].as_u64() >= result["size_bytes"].as_u64(), "{result}");
        }
        document
    }
}

fn path_of(document: &Value, end: &str) -> Value {
    document["memory"][format!("{end}_gpu")]["path"].clone()
}

#[test]
fn gpu_direct_takes_dma_bufs_first_and_says_so() {
    let document = Ends::soft("write-bw", REACHABLE).right("--use-cuda 0 -s 8,4K,100000 -n 40 --validate");
    assert_eq!(
        (path_of(&document, "client"), path_of(&document, "server")),
        ("dmabuf".into(), "dmabuf".into())
    );
    assert_eq!(document["memory"]["kind"], "cuda");
    assert_eq!(document["memory"]["registration"], "ibv_reg_dmabuf_mr, strict ordering");
    assert_eq!(document["memory"]["client_gpu"]["name"], "Softgpu (host memory)");
    assert_eq!(document["link"]["client"]["device_kind"], "software");
}

#[test]
fn bandwidth_asks_for_no_order_where_nobody_looks_for_one() {
    let document = Ends::soft("write-bw", REACHABLE).run("--use-cuda 0 -s 4K -n 40").exits(0).document();
    assert_eq!(document["memory"]["registration"], "ibv_reg_dmabuf_mr, relaxed ordering allowed");
    let document = Ends::soft("write-lat", REACHABLE).run("--use-cuda 0 -s 4K -n 40").exits(0).document();
    assert_eq!(document["memory"]["registration"], "ibv_reg_dmabuf_mr, strict ordering");
}

#[test]
fn both_directions_over_peer_memory_and_a_region_for_each_queue_pair() {
    let options = "--use-cuda 0 --cuda-path peermem -b -q 3 --mr-per-qp -s 64,64K -n 40 --validate";
    let document = Ends::soft("write-bw", REACHABLE).right(options);
    assert_eq!(path_of(&document, "server"), "peermem");
    assert_eq!(document["memory"]["regions"], 3);
    // Three rounds, two directions, three queue pairs.
    assert_eq!(document["results"][1]["checked_bytes"], 3 * 2 * 3 * 65536);
}

#[test]
fn one_end_alone_may_have_gpu_memory() {
    for (options, client, server) in
        [("--memory cuda:0", "cuda", "host"), ("--peer-memory cuda --memory host", "host", "cuda")]
    {
        for (tool, rest) in [("write-bw", "-s 4K -n 40 --validate"), ("write-lat", "-s 64 -n 40 --validate")]
        {
            let document = Ends::soft(tool, REACHABLE).right(&format!("{options} {rest}"));
            let memory = &document["memory"];
            assert_eq!((&memory["client_kind"], &memory["server_kind"]), (&client.into(), &server.into()));
        }
    }
}

#[test]
fn in_turn_each_message_in_gpu_memory_is_checked_whichever_way_it_came() {
    for path in ["dmabuf", "peermem", "staged"] {
        let options = format!("--use-cuda 0 --cuda-path {path} -s 2,64,4K,70000 -n 30 --validate");
        let document = Ends::soft("write-lat", REACHABLE).right(&options);
        assert_eq!(path_of(&document, "client"), path);
        // Both ends, three rounds.
        assert_eq!(document["results"][1]["checked_bytes"], 2 * 3 * 30 * 64);
    }
    let document = Ends::tcp("write-lat").right("--use-cuda 0 -s 2,64,70000 -n 30 --validate");
    assert_eq!(path_of(&document, "server"), "staged");
}

#[test]
fn staged_writes_are_complete_when_the_gpu_has_them() {
    for options in [
        "--use-cuda 0 --cuda-path staged -s 64,4K,300000 -n 150",
        "--use-cuda 0 --cuda-path staged -s 64K -n 150 -q 4 --threads 2 -l 4",
        "--peer-memory cuda:0 --cuda-path staged -s 64K -n 150",
        "--memory cuda:0 --cuda-path staged -s 64K -n 150",
    ] {
        Ends::soft("write-bw", REACHABLE).right(&format!("{options} --validate"));
    }
}

/// What is checked is what each place of a queue pair got last, so the places can be counted.
#[test]
fn messages_take_turns_in_the_working_set_whatever_the_way() {
    let places = |document: &Value| {
        let result = &document["results"][0];
        result["checked_bytes"].as_u64().unwrap() / result["size_bytes"].as_u64().unwrap()
    };
    let options = "-s 20000 -n 70 -q 2 --rounds 2 --validate --working-set 1M";
    for (devices, memory) in [
        (Some(REACHABLE), "--memory host"),
        (Some(REACHABLE), "--use-cuda 0"),
        (Some(REACHABLE), "--use-cuda 0 --cuda-path staged"),
        (None, "--memory host"),
        (None, "--use-cuda 0"),
    ] {
        let document = Ends { tool: "write-bw", devices, gpus: "" }.right(&format!("{options} {memory}"));
        assert_eq!(document["plan"]["working_set_bytes"], 1 << 20);
        // 1 MiB has 52 places of 20032 bytes; of each of two queue pairs, in two rounds.
        assert_eq!(places(&document), 2 * 2 * 52, "{devices:?} {memory}");
    }
}

#[test]
fn over_tcp_gpu_memory_is_staged() {
    let document = Ends::tcp("write-bw").right("--use-cuda 0 -b -q 5 -s 2,4K,600000 -n 40 --validate");
    assert_eq!(
        (path_of(&document, "client"), path_of(&document, "server")),
        ("staged".into(), "staged".into())
    );
    Ends::tcp("write-bw").right("--memory cuda:0 -s 64K -n 40 --validate");
    Ends::tcp("write-bw").right("--peer-memory cuda:0 -s 64K -n 40 --validate");
}

/// What stands in the report of the end that failed, whichever that was.
fn refusals(finished: &Finished) -> Vec<(String, String)> {
    let document = finished.document();
    let facts = document["verdict"]["failures"][0]["facts"].as_array().expect("a failure has facts").clone();
    let text = |value: &Value| value.as_str().expect("facts are texts").replace(" (there)", "");
    facts.iter().map(|fact| (text(&fact["label"]), text(&fact["value"]))).collect()
}

#[test]
fn a_device_without_dma_bufs_is_reached_by_peer_memory_and_the_answer_is_kept() {
    let document = Ends::soft("write-bw", "soft0 dma_buf=off").right("--use-cuda 0 -n 40 --validate");
    let gpu = &document["memory"]["client_gpu"];
    assert_eq!((&gpu["path"], &gpu["refused"][0]["path"]), (&"peermem".into(), &"dmabuf".into()));
    assert!(gpu["refused"][0]["why"].as_str().unwrap().contains("ibv_reg_dmabuf_mr: EOPNOTSUPP"), "{gpu}");
}

#[test]
fn without_a_way_it_is_an_error_with_every_answer_and_never_a_detour() {
    let nothing = Ends::soft("write-bw", "soft0 dma_buf=off peer_memory=off");
    let finished = nothing.run("--use-cuda 0 -n 40");
    let refused = refusals(&finished);
    assert!(refused[0].0 == "dmabuf" && refused[0].1.contains("EOPNOTSUPP"), "{refused:?}");
    assert!(refused[1].0 == "peermem" && refused[1].1.contains("EFAULT"), "{refused:?}");
    assert_eq!(finished.document()["verdict"]["failures"][0]["code"], "registration");
    let allowed = nothing.right("--use-cuda 0 --allow-staged -n 40 --validate");
    assert_eq!(path_of(&allowed, "client"), "staged");
    assert_eq!(allowed["memory"]["client_gpu"]["refused"].as_array().unwrap().len(), 2);
}

#[test]
fn the_only_way_allowed_is_the_only_one_tried() {
    for (devices, path, errno) in [
        ("soft0 dma_buf=off", "dmabuf", "EOPNOTSUPP"),
        ("soft0 peer_memory=off", "peermem", "EFAULT"),
        ("soft0 fault=reg_dmabuf_mr@1+:ENOMEM", "dmabuf", "ENOMEM"),
    ] {
        let finished = Ends::soft("write-bw", devices).run(&format!("--use-cuda 0 --cuda-path {path} -n 40"));
        let refused = refusals(&finished);
        assert_eq!(
            refused.iter().filter(|(label, _)| ["dmabuf", "peermem"].contains(&label.as_str())).count(),
            1
        );
        assert!(refused[0].0 == path && refused[0].1.contains(errno), "{devices}: {refused:?}");
    }
}

#[test]
fn what_the_driver_can_not_export_is_told_in_its_words() {
    let ends = Ends { gpus: "dma_buf off", ..Ends::soft("write-bw", REACHABLE) };
    let document = ends.right("--use-cuda 0 -n 40 --validate");
    let gpu = &document["memory"]["client_gpu"];
    assert_eq!(gpu["path"], "peermem");
    let why = gpu["refused"][0]["why"].as_str().unwrap();
    assert!(why.contains("cuMemGetHandleForAddressRange: CUDA_ERROR_NOT_SUPPORTED"), "{why}");
}

#[test]
fn a_dma_buf_may_be_asked_for_that_is_mapped_over_pcie() {
    let options = "--use-cuda 0 --cuda-path dmabuf-pcie -n 40 --validate";
    let document = Ends::soft("write-bw", REACHABLE).right(options);
    assert_eq!(path_of(&document, "server"), "dmabuf_pcie");
    assert_eq!(document["memory"]["registration"], "ibv_reg_dmabuf_mr, strict ordering");
    // A driver that does not know the flag: had it not been passed, this would go well.
    let old = Ends { gpus: "pcie_mapping off", ..Ends::soft("write-bw", REACHABLE) };
    let refused = refusals(&old.run(options));
    assert!(
        refused[0].0 == "dmabuf-pcie" && refused[0].1.contains("CUDA_ERROR_INVALID_VALUE"),
        "{refused:?}"
    );
    old.right("--use-cuda 0 --cuda-path dmabuf -n 40 --validate");
}

/// Runs that end before the server is asked for anything.
#[test]
fn a_gpu_that_can_not_be_had_is_named() {
    let client = |gpus: &str, options: &str| {
        let tool = Tool::tcp("write-bw").env("LINKPROOF_CUDA", softgpu()).env("LINKPROOF_SOFTGPU", gpus);
        tool.args("127.0.0.1 --port").arg(free_port().to_string()).args(options).run()
    };
    client("gpus 2", "--memory cuda:5").exits(3).says(&["no GPU 5", "GPU 1, Softgpu"]);
    client("gpus 0", "--use-cuda 0").exits(3).says(&["finds no GPU", "CUDA_VISIBLE_DEVICES"]);
    client("memory 1M", "--use-cuda 0 -s 8M").exits(3).says(&["8 MiB", "of GPU memory"]);
    Tool::tcp("write-bw")
        .env("LINKPROOF_CUDA", "libcuda-not-here.so.1")
        .args("127.0.0.1 --use-cuda 0")
        .run()
        .exits(3)
        .says(&["libcuda-not-here.so.1", "install NVIDIA's driver"]);
}

#[test]
fn a_gpu_that_fails_is_told_by_the_end_that_has_it() {
    for (gpus, words) in [
        ("exclusive 0", "cuDevicePrimaryCtxRetain: CUDA_ERROR_DEVICE_UNAVAILABLE"),
        ("fail cuMemAlloc_v2@1 CUDA_ERROR_OUT_OF_MEMORY", "has no room for"),
        (
            "fail cuMemcpyDtoHAsync_v2@20 CUDA_ERROR_INVALID_VALUE",
            "cuMemcpyDtoHAsync: CUDA_ERROR_INVALID_VALUE",
        ),
    ] {
        let ends = Ends { gpus, ..Ends::tcp("write-bw") };
        let port = free_port();
        // Only the client's GPU is bad.
        let good = Ends::tcp("write-bw");
        let _server = good.end(port).serve(port);
        let client = ends.end(port).args("127.0.0.1 --port").arg(port.to_string());
        let finished = client.args("--use-cuda 0 -n 100 -s 64K").run();
        finished.exits(3).says(&[words]);
    }
}

#[test]
fn contradictions_are_refused_with_the_way_out() {
    let refused = |options: &str| Tool::tcp("write-bw").args("127.0.0.1").args(options).run();
    refused("--use-cuda 0 --cuda-path dmabuf").exits(2).says(&["over TCP", "staged"]);
    refused("--use-cuda 0 --hugepages").exits(2).says(&["--hugepages"]);
    refused("--use-cuda 0 --memory host").exits(2).says(&["cannot be used with"]);
    refused("--cuda-path staged").exits(2).says(&["no end has any"]);
    refused("--use-cuda first").exits(2).says(&["nvidia-smi"]);
    Tool::soft("write-bw", "gpu-usage", "")
        .args("127.0.0.1 --use-cuda 0 --cuda-path staged -b")
        .run()
        .exits(2)
        .says(&["one direction"]);
}

#[test]
fn a_node_check_tries_the_registration_that_a_run_would_make() {
    let check = |devices: &str, command: &str| {
        let tool = Tool::new("rdma-check").env("LINKPROOF_CUDA", softgpu()).env("LINKPROOF_SOFTNIC", devices);
        tool.args("--json --for").arg(command).run()
    };
    let run = |devices: &str, command: &str| schema::check(&check(devices, command).stdout)["run"].clone();
    let good = run("", "write-bw --soft-device --use-cuda 0 node-b");
    assert_eq!(
        (&good["gpu"]["path"], good["failures"].as_array().map(Vec::len)),
        (&"dmabuf".into(), Some(0))
    );
    let older = run("soft0 dma_buf=off", "write-lat --soft-device --memory cuda:0 node-b");
    assert_eq!(older["gpu"]["path"], "peermem");
    let bad = run("soft0 dma_buf=off peer_memory=off", "write-bw --soft-device --use-cuda 0 node-b");
    assert_eq!(bad["failures"][0]["code"], "registration", "{bad:#}");
    let tcp = run("", "write-bw --transport tcp --use-cuda 0 node-b");
    assert_eq!(tcp["gpu"]["path"], "staged");
    let missing = run("", "write-bw --transport tcp --use-cuda 7 node-b");
    assert_eq!(missing["failures"][0]["code"], "gpu-not-found");
    assert_eq!(run("", "write-bw --transport tcp --peer-memory cuda:7 node-b")["failures"][0], Value::Null);
}
