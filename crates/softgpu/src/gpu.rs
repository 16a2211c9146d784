//! The GPUs, and what they say of themselves.

use core::ffi::{CStr, c_char, c_int};
use cuda_sys as sys;

use crate::driver::Driver;
use crate::failure::{Failure, Result};

/// The CUDA that the driver says it knows: the newest whose interface it follows.
pub(crate) const VERSION: c_int = 12_080;

impl Driver {
    /// A GPU by its number.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` where there is none.
    pub(crate) fn gpu(&self, number: c_int) -> Result<usize> {
        usize::try_from(number).ok().filter(|&gpu| gpu < self.config.gpus).ok_or(Failure::INVALID_DEVICE)
    }

    /// Its PCI address; where none is given, one in a domain that no machine has.
    pub(crate) fn pci_address(&self, gpu: usize) -> String {
        self.config.pci.get(gpu).cloned().unwrap_or_else(|| format!("FFFF:00:{gpu:02X}.0"))
    }

    /// A GPU by its PCI address.
    pub(crate) fn gpu_at(&self, address: &CStr) -> Result<usize> {
        let address = address.to_str().map_err(|_| Failure::INVALID_VALUE)?;
        let is_it = |&gpu: &usize| self.pci_address(gpu).eq_ignore_ascii_case(address);
        (0..self.config.gpus).find(is_it).ok_or(Failure::INVALID_DEVICE)
    }

    /// Made of its number: the same in each process.
    pub(crate) fn uuid(&self, gpu: usize) -> sys::CUuuid {
        let mut bytes = *b"softgpu\0\0\0\0\0\0\0\0\0";
        bytes[15] = gpu as u8;
        sys::CUuuid { bytes }
    }

    /// One of its attributes.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for one that is not known.
    pub(crate) fn gpu_attribute(&self, gpu: usize, which: sys::CUdevice_attribute) -> Result<c_int> {
        match which {
            // It has no processors.
            sys::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
            | sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
            | sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => Ok(0),
            sys::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE if self.config.exclusive.contains(&gpu) => {
                Ok(sys::CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
            }
            sys::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE => Ok(sys::CU_COMPUTEMODE_DEFAULT),
            sys::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED => Ok(1),
            sys::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED => Ok(self.config.dma_buf.into()),
            _ => Err(Failure::INVALID_VALUE),
        }
    }
}

/// Puts `text` and a 0 into the caller's `length` bytes, cut to their size.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` where there is no room at all.
///
/// # Safety
/// `place` is NULL or has room for `length` bytes.
pub(crate) unsafe fn put_text(place: *mut c_char, length: c_int, text: &str) -> Result<()> {
    let room = usize::try_from(length).ok().and_then(|length| length.checked_sub(1));
    let room = room.filter(|_| !place.is_null()).ok_or(Failure::INVALID_VALUE)?;
    let len = text.len().min(room);
    // SAFETY: at most `room` bytes and the 0 are written.
    unsafe {
        core::ptr::copy_nonoverlapping(text.as_ptr().cast(), place, len);
        place.add(len).write(0);
    }
    Ok(())
}
