//! GPUs, through the CUDA driver that is there or not: which there are, a context on one, and what can be made in it.
//!
//! [`Driver::load`] is the probe: without a driver it is an ordinary error, and nothing here is reached. Everything made
//! in a [`GpuContext`] holds it, and is used by threads that have made it theirs ([`GpuContext::bind`]).
#![allow(unsafe_code, reason = "GPUs are the driver's objects")]

mod choose;
mod context;
mod kernel;
mod memory;
mod monitor;
mod stream;

pub use choose::{GpuName, choose};
pub use context::GpuContext;
pub use kernel::{Kernel, Module};
pub use memory::{DeviceBuffer, PinnedBuffer};
pub use monitor::{Monitor, Monitored};
pub use stream::{Event, Graph, Stream};

use std::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;

use cuda_sys as sys;
use cuda_sys::Cuda;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// The driver, ready for use.
#[derive(Debug)]
pub struct Driver {
    table: Cuda,
    /// The newest CUDA that it knows, as `(major, minor)`.
    cuda_version: (i32, i32),
}

/// A GPU, as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its number in this process, from 0.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its identity, as `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
    pub uuid: String,
    /// Its PCI address, as `0000:17:00.0`.
    pub pci_address: String,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Its compute capability, as `9.0`.
    pub compute_capability: String,
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// Whether the driver gives out dma-bufs of its memory.
    pub dma_buf: bool,
}

impl Gpu {
    /// In words, for headers: `GPU 0, NVIDIA H200, 0000:3c:00.0`.
    pub fn describe(&self) -> String {
        format!("GPU {}, {}, {}", self.ordinal, self.name, self.pci_address)
    }
}

/// How the memory of a dma-buf is mapped for whoever takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum DmabufMapping {
    /// As the driver sees fit.
    Drivers = 0,
    /// Over PCIe, where the GPU has another link to the host's memory as well; from CUDA 12.8 on.
    Pcie = sys::CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE,
}

impl Driver {
    /// The process's driver, loaded and initialised by the first call; later calls give the same, or the same failure.
    ///
    /// # Errors
    /// [`ErrorKind::GpuDriver`] where there is none, [`ErrorKind::NoGpu`] where it finds no GPU, both with what to do.
    pub fn load() -> Result<&'static Self> {
        static LOADED: OnceLock<Result<Driver>> = OnceLock::new();
        LOADED.get_or_init(Self::open).as_ref().map_err(Error::clone)
    }

    fn open() -> Result<Self> {
        let name = std::env::var_os(sys::LIBRARY_VARIABLE).filter(|name| !name.is_empty());
        let table = Cuda::open(name.unwrap_or_else(|| sys::DEFAULT_LIBRARY.into())).map_err(no_driver)?;
        // SAFETY: the flags are 0, as they must be.
        let result = unsafe { (table.cuInit)(0) };
        if result != sys::CUDA_SUCCESS {
            return Err(not_initialised(&table, result));
        }
        let mut version = 0;
        // SAFETY: `version` is ours. A failure leaves 0, an unknown version.
        unsafe { (table.cuDriverGetVersion)(&mut version) };
        Ok(Self { table, cuda_version: (version / 1000, version % 1000 / 10) })
    }

    /// The table.
    pub fn table(&self) -> &Cuda {
        &self.table
    }

    /// The newest CUDA that the driver knows, in words: `13.0`.
    pub fn cuda_version(&self) -> String {
        format!("{}.{}", self.cuda_version.0, self.cuda_version.1)
    }

    /// What a call returned, as a failure that names the call.
    ///
    /// # Errors
    /// [`ErrorKind::Memory`] where GPU memory ran out, otherwise [`ErrorKind::GpuFailed`].
    pub fn check(&self, result: sys::CUresult, call: &str) -> Result<()> {
        if result == sys::CUDA_SUCCESS { Ok(()) } else { Err(self.failed(result, call)) }
    }

    #[cold]
    fn failed(&self, result: sys::CUresult, call: &str) -> Error {
        let kind = match result {
            sys::CUDA_ERROR_OUT_OF_MEMORY => ErrorKind::Memory,
            _ => ErrorKind::GpuFailed,
        };
        let error = Error::new(kind, format!("{call}: {}", self.table.describe(result)));
        match result {
            sys::CUDA_ERROR_OUT_OF_MEMORY => {
                error.hint("see who holds the GPU's memory (nvidia-smi), or measure smaller messages")
            }
            sys::CUDA_ERROR_DEVICE_UNAVAILABLE => error.hint(
                "another process may have the GPU in exclusive mode: nvidia-smi shows its compute mode and processes",
            ),
            _ => error,
        }
    }

    /// A dma-buf of `bytes` bytes of device memory at `address`, both whole pages of the host. The context that has the
    /// memory is this thread's.
    ///
    /// # Errors
    /// [`ErrorKind::GpuDriver`] where the driver is older than CUDA 11.7, and the driver's refusal.
    pub fn export_dmabuf(&self, address: u64, bytes: u64, mapping: DmabufMapping) -> Result<OwnedFd> {
        const CALL: &str = "cuMemGetHandleForAddressRange";
        let export = self.table.cuMemGetHandleForAddressRange.ok_or_else(|| {
            Error::new(ErrorKind::GpuDriver, format!("the CUDA driver has no {CALL}"))
                .fact("driver", format!("CUDA {}", self.cuda_version()))
                .hint("dma-bufs of GPU memory need a driver for CUDA 11.7 or newer and Linux 5.12 or newer")
        })?;
        let mut fd = -1;
        let kind = sys::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
        // SAFETY: a handle of that type is written as an int, which `fd` is.
        let result = unsafe { export((&raw mut fd).cast(), address, bytes as usize, kind, mapping as u64) };
        self.check(result, CALL)?;
        // SAFETY: the driver has made it for the caller, who closes it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// The GPUs that this process may use.
    ///
    /// # Errors
    /// A query that failed.
    pub fn gpus(&self) -> Result<Vec<Gpu>> {
        let mut count = 0;
        // SAFETY: `count` is ours.
        self.check(unsafe { (self.table.cuDeviceGetCount)(&mut count) }, "cuDeviceGetCount")?;
        (0..count).map(|ordinal| self.gpu(ordinal)).collect()
    }

    fn device(&self, ordinal: i32) -> Result<sys::CUdevice> {
        let mut device = 0;
        // SAFETY: `device` is ours.
        self.check(unsafe { (self.table.cuDeviceGet)(&mut device, ordinal) }, "cuDeviceGet")?;
        Ok(device)
    }

    fn gpu(&self, ordinal: i32) -> Result<Gpu> {
        let device = self.device(ordinal)?;
        let (mut uuid, mut memory_bytes) = (sys::CUuuid::default(), 0);
        // SAFETY: both are ours.
        self.check(unsafe { (self.table.cuDeviceGetUuid)(&mut uuid, device) }, "cuDeviceGetUuid")?;
        // SAFETY: as above.
        let result = unsafe { (self.table.cuDeviceTotalMem_v2)(&mut memory_bytes, device) };
        self.check(result, "cuDeviceTotalMem")?;
        let attribute = |which| self.attribute(which, device).unwrap_or(0);
        Ok(Gpu {
            ordinal: ordinal.unsigned_abs(),
            name: self.text(device, self.table.cuDeviceGetName, "cuDeviceGetName")?,
            uuid: show_uuid(uuid),
            pci_address: self.pci_address(device)?,
            memory_bytes: memory_bytes as u64,
            compute_capability: format!(
                "{}.{}",
                attribute(sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                attribute(sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
            ),
            multiprocessors: attribute(sys::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).unsigned_abs(),
            dma_buf: attribute(sys::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) == 1,
        })
    }

    /// `None` where the driver does not know the attribute.
    fn attribute(&self, which: sys::CUdevice_attribute, device: sys::CUdevice) -> Option<i32> {
        let mut value = 0;
        // SAFETY: `value` is ours.
        let result = unsafe { (self.table.cuDeviceGetAttribute)(&mut value, which, device) };
        (result == sys::CUDA_SUCCESS).then_some(value)
    }

    fn pci_address(&self, device: sys::CUdevice) -> Result<String> {
        let text = self.text(device, self.table.cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId")?;
        Ok(text.to_ascii_lowercase())
    }

    fn text(
        &self,
        device: sys::CUdevice,
        query: unsafe extern "C" fn(*mut core::ffi::c_char, i32, sys::CUdevice) -> sys::CUresult,
        call: &str,
    ) -> Result<String> {
        let mut text = [0_u8; 256];
        // SAFETY: the text has as many bytes as the call is told, and ends with a zero after it.
        self.check(unsafe { query(text.as_mut_ptr().cast(), text.len() as i32, device) }, call)?;
        let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }
}

fn no_driver(error: sys::LoadError) -> Error {
    Error::new(ErrorKind::GpuDriver, error.to_string()).hint(
        "install NVIDIA's driver; in a container, start it with the GPUs passed in (--gpus all), which brings libcuda.so.1",
    )
}

fn not_initialised(table: &Cuda, result: sys::CUresult) -> Error {
    let words = format!("cuInit: {}", table.describe(result));
    match result {
        sys::CUDA_ERROR_NO_DEVICE => {
            Error::new(ErrorKind::NoGpu, "the CUDA driver finds no GPU").fact("call", words).hint(
                "see nvidia-smi -L and CUDA_VISIBLE_DEVICES; in a container, see that the GPUs are passed in",
            )
        }
        sys::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            Error::new(ErrorKind::GpuDriver, "the CUDA driver does not fit the kernel's")
                .fact("call", words)
                .hint(
                    "reboot after a driver update, or install the libcuda.so.1 of the running kernel module",
                )
        }
        _ => Error::new(ErrorKind::GpuDriver, "the CUDA driver can't be used").fact("call", words),
    }
}

fn show_uuid(uuid: sys::CUuuid) -> String {
    let hex: String = uuid.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_reads_as_nvidia_smi_shows_it() {
        let bytes: [u8; 16] = std::array::from_fn(|i| i as u8 * 17);
        assert_eq!(show_uuid(sys::CUuuid { bytes }), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn a_missing_driver_says_what_to_install() {
        let error = no_driver(Cuda::open("libcuda-not-here.so.1").unwrap_err());
        assert_eq!((error.kind, error.exit_status() as i32), (ErrorKind::GpuDriver, 3));
        assert!(error.what.contains("libcuda-not-here.so.1"));
    }
}
