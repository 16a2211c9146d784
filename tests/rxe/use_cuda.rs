//! GPU memory on VMs that have no GPU: the driver that is missing is named, and with a stand-in for it Soft-RoCE's kernel driver
//! gives its own answers.

use linkproof_tests::lab::{Lab, Outcome, Running, User, Vm};

use crate::port;

/// The stand-in, where the lab puts it.
const WITH_GPU: [&str; 2] = ["env", "LINKPROOF_CUDA=/share/bin/libsoftgpu.so"];

fn server(lab: &Lab, tool: &str, port: &str) -> Running {
    lab.server(Vm::A, User::Root, &[&WITH_GPU[..], &[tool, "-d", "rxe0", "-p", port]].concat())
}

fn client(lab: &Lab, tool: &str, port: &str, options: &[&str]) -> Outcome {
    lab.run(Vm::B, &[&WITH_GPU[..], &[tool, "-d", "rxe0", "-p", port, "a"], options].concat())
}

#[test]
fn a_missing_cuda_driver_is_named() {
    let Some(lab) = Lab::get("a_missing_cuda_driver_is_named") else { return };
    for transport in ["rdma", "tcp"] {
        let program = ["write-bw", "--transport", transport, "-p", &port(), "a", "--use-cuda", "0"];
        lab.run(Vm::B, &program)
            .expect_status(3)
            .expect_stderr(&["cannot open the CUDA driver libcuda.so.1", "install NVIDIA's driver"]);
    }
}

#[test]
fn soft_roce_has_no_way_to_a_gpu_and_says_so_in_the_kernels_words() {
    let Some(lab) = Lab::get("soft_roce_has_no_way_to_a_gpu_and_says_so_in_the_kernels_words") else {
        return;
    };
    let port = port();
    let _server = server(lab, "write-bw", &port);
    // Only the client's memory, so that it is the client who fails, whichever end would come first.
    let dmabuf = ["--memory", "cuda:0", "--cuda-path", "dmabuf", "-n", "20"];
    client(lab, "write-bw", &port, &dmabuf).expect_status(3).expect_stderr(&[
        "rxe0 can't reach the memory of GPU 0",
        "ibv_reg_dmabuf_mr: EOPNOTSUPP",
        "rxe has no way to a GPU's memory",
        "--cuda-path staged",
    ]);
    let both = ["--memory", "cuda:0", "-n", "20"];
    client(lab, "write-bw", &port, &both).expect_status(3).expect_stderr(&[
        "dmabuf: ",
        "EOPNOTSUPP",
        "peermem: ",
        "EFAULT",
    ]);
}

#[test]
fn staged_bytes_of_a_gpu_cross_soft_roce() {
    let Some(lab) = Lab::get("staged_bytes_of_a_gpu_cross_soft_roce") else { return };
    for (tool, sizes) in [("write-bw", "64,4K,100000"), ("write-lat", "8,4K")] {
        let port = port();
        let _server = server(lab, tool, &port);
        let options = [
            "--use-cuda",
            "0",
            "--allow-staged",
            "-s",
            sizes,
            "-n",
            "30",
            "--rounds",
            "2",
            "--validate",
            "--json",
        ];
        let document = client(lab, tool, &port, &options).expect_status(0).json();
        let gpu = &document["memory"]["server_gpu"];
        assert_eq!(gpu["path"], "staged");
        assert_eq!(gpu["refused"].as_array().map(Vec::len), Some(2), "{gpu}");
        for result in document["results"].as_array().expect("a result has rows") {
            assert_eq!(result["wrong_bytes"], 0, "{result}");
            assert!(result["checked_bytes"].as_u64() >= result["size_bytes"].as_u64(), "{result}");
        }
    }
}
