//! Device memory of another process.

use cuda_sys as sys;

use super::{Driver, Other, alone, say, wait, with_other};

/// Before the handle in the other process's output, among the lines of the test harness.
const MARK: &str = "HANDLE ";

#[test]
fn both_processes_see_the_same_bytes_until_the_owner_frees_them() {
    with_other("driver::peers::both_processes_see_the_same_bytes_until_the_owner_frees_them", opener, owner);
}

fn opener(driver: &Driver, owner: &mut Other) {
    let handle = parse(&owner.says(MARK));
    let pointer = open(driver, handle).expect("the owner has it");
    assert_eq!(open(driver, handle), Ok(pointer), "the same each time");
    assert_eq!(driver.get(pointer + 100, 4), [1, 2, 3, 4]);
    driver.good(driver.put(pointer + 9_000, &[9]));
    let mut bytes = [0_u8; 10_001];
    // SAFETY: the array has that many bytes.
    let beyond = unsafe { (driver.cuMemcpyDtoH_v2)(bytes.as_mut_ptr().cast(), pointer, bytes.len()) };
    assert_eq!(beyond, sys::CUDA_ERROR_INVALID_VALUE, "the length is the owner's");
    assert_eq!(driver.free(pointer), sys::CUDA_ERROR_INVALID_VALUE, "it is not ours to free");
    assert_eq!(handle_of(driver, pointer).map(drop), Err(sys::CUDA_ERROR_INVALID_VALUE), "or to give away");
    // SAFETY: any address may be closed.
    let close = || unsafe { (driver.cuIpcCloseMemHandle)(pointer) };
    driver.good(close());
    assert_eq!(driver.get(pointer + 9_000, 1), [9], "it was opened twice");
    driver.good(close());
    assert_eq!(close(), sys::CUDA_ERROR_INVALID_VALUE);
    owner.go_on();
    owner.says("FREED");
    assert_eq!(open(driver, handle), Err(sys::CUDA_ERROR_MAP_FAILED), "it is gone");
}

fn owner(driver: &Driver) {
    let pointer = driver.alloc(10_000).expect("there is room");
    driver.good(driver.put(pointer + 100, &[1, 2, 3, 4]));
    // A pointer into the allocation stands for all of it.
    let handle = handle_of(driver, pointer + 4096).expect("it can be shared");
    say(&format!("{MARK}{}", handle.reserved.map(|byte| format!("{:02x}", byte as u8)).join("")));
    wait();
    assert_eq!(driver.get(pointer + 9_000, 1), [9]);
    driver.good(driver.free(pointer));
    say("FREED");
    wait();
}

#[test]
fn a_process_does_not_open_its_own_memory_or_nonsense() {
    alone("driver::peers::a_process_does_not_open_its_own_memory_or_nonsense", "", |driver| {
        let mut handle = handle_of(driver, driver.alloc(4096).unwrap()).unwrap();
        assert_eq!(open(driver, handle), Err(sys::CUDA_ERROR_INVALID_CONTEXT));
        handle.reserved = [1; 64];
        assert_eq!(open(driver, handle), Err(sys::CUDA_ERROR_INVALID_VALUE));
    });
}

fn handle_of(driver: &Driver, pointer: u64) -> Result<sys::CUipcMemHandle, sys::CUresult> {
    let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
    // SAFETY: `handle` is ours.
    match unsafe { (driver.cuIpcGetMemHandle)(&mut handle, pointer) } {
        sys::CUDA_SUCCESS => Ok(handle),
        failure => Err(failure),
    }
}

fn open(driver: &Driver, handle: sys::CUipcMemHandle) -> Result<u64, sys::CUresult> {
    let mut pointer = 0;
    let flags = sys::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    // SAFETY: `pointer` is ours.
    match unsafe { (driver.cuIpcOpenMemHandle_v2)(&mut pointer, handle, flags) } {
        sys::CUDA_SUCCESS => Ok(pointer),
        failure => Err(failure),
    }
}

fn parse(hex: &str) -> sys::CUipcMemHandle {
    let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("it is hexadecimal") as _;
    sys::CUipcMemHandle { reserved: std::array::from_fn(byte) }
}
