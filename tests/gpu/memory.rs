//! Real memory of a GPU on softnic, the software device: what an adapter's user would see, without the adapter.

use cuda_sys as sys;
use cuda_sys::Cuda;
use linkproof_tests::{Tool, free_port, skip};

use crate::ranks::{LIMIT, has_gpu};

/// Facts about bytes on their way, within a process and between two; each begins with a CUDA context of its own.
const FACTS: &str = "writes:: messages:: processes::";

/// Those facts hold where memory is of `kinds`, in turn.
fn facts_hold_on(test: &str, kinds: &str) {
    if !has_gpu(test) {
        return;
    }
    let fabric = format!("gpu-{}", free_port());
    let tool = Tool::soft("verbs-facts", &fabric, "").args("--memory").args(kinds).args(FACTS);
    let run = tool.start().finish_within(LIMIT);
    assert!(run.exits(0).stdout.contains("0 differ as listed, 0 failed"), "{}", run.stdout);
}

#[test]
fn messages_between_memory_registered_by_its_address_arrive() {
    facts_hold_on("messages_between_memory_registered_by_its_address_arrive", "gpu");
}

#[test]
fn messages_from_a_gpu_to_the_host_arrive() {
    facts_hold_on("messages_from_a_gpu_to_the_host_arrive", "gpu,host");
}

#[test]
fn messages_from_the_host_to_a_gpu_arrive() {
    facts_hold_on("messages_from_the_host_to_a_gpu_arrive", "host,gpu");
}

#[test]
fn messages_between_dma_bufs_arrive() {
    const TEST: &str = "messages_between_dma_bufs_arrive";
    match has_dma_bufs() {
        Ok(()) => facts_hold_on(TEST, "dma-buf"),
        Err(why) => skip(TEST, &why),
    }
}

/// Whether the first GPU's driver gives out dma-bufs, which it does with open kernel modules.
#[allow(unsafe_code, reason = "the driver's interface is C's")]
fn has_dma_bufs() -> Result<(), String> {
    let name = std::env::var_os(sys::LIBRARY_VARIABLE);
    let cuda =
        Cuda::open(name.unwrap_or_else(|| sys::DEFAULT_LIBRARY.into())).map_err(|error| error.to_string())?;
    let mut has = 0;
    // SAFETY: the flags are 0, and `has` is ours.
    let result = unsafe {
        match (cuda.cuInit)(0) {
            sys::CUDA_SUCCESS => {
                (cuda.cuDeviceGetAttribute)(&mut has, sys::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0)
            }
            failure => failure,
        }
    };
    match (result, has) {
        (sys::CUDA_SUCCESS, 1) => Ok(()),
        (sys::CUDA_SUCCESS, _) => Err("the driver gives out no dma-bufs".to_owned()),
        (failure, _) => Err(cuda.describe(failure)),
    }
}
