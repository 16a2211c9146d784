//! What a pointer is.

use core::ffi::{c_int, c_uint, c_void};
use cuda_sys as sys;

use crate::driver::{Driver, put};
use crate::failure::{Failure, Result};

impl Driver {
    /// An attribute of the memory that `pointer` lies in.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for memory that the driver has no part in.
    ///
    /// # Safety
    /// `value` is NULL or has room for the attribute's type.
    pub(crate) unsafe fn attribute(&self, value: *mut c_void, which: c_uint, pointer: u64) -> Result<()> {
        let state = self.read();
        if let Some((found, _)) = state.allocation(pointer) {
            // SAFETY: the caller vouches for the room.
            return unsafe {
                match which {
                    sys::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => put(value.cast(), sys::CU_MEMORYTYPE_DEVICE),
                    sys::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => {
                        put(value.cast(), c_uint::from(found.sync_memops))
                    }
                    sys::CU_POINTER_ATTRIBUTE_BUFFER_ID => put(value.cast(), found.id),
                    sys::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put(value.cast(), found.gpu as c_int),
                    _ => Err(Failure::INVALID_VALUE),
                }
            };
        }
        let (found, _) = state.pinned(pointer).ok_or(Failure::INVALID_VALUE)?;
        // SAFETY: as above.
        unsafe {
            match which {
                sys::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => put(value.cast(), sys::CU_MEMORYTYPE_HOST),
                sys::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => put(value.cast(), found.gpu as c_int),
                _ => Err(Failure::INVALID_VALUE),
            }
        }
    }

    /// Keeps whether copies to and from the memory are to be complete when they return, which they are in any case.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for another attribute, or what is no device memory.
    ///
    /// # Safety
    /// `value` is NULL or leads to a value of the attribute's type.
    pub(crate) unsafe fn set_attribute(
        &self,
        value: *const c_void,
        which: c_uint,
        pointer: u64,
    ) -> Result<()> {
        if which != sys::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || value.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        // SAFETY: the caller vouches for the value.
        let on = unsafe { value.cast::<c_uint>().read_unaligned() } != 0;
        let mut state = self.write();
        let (found, _) = state.allocation(pointer).ok_or(Failure::INVALID_VALUE)?;
        let base = found.address();
        if let Some(found) = state.allocations.get_mut(&base) {
            found.sync_memops = on;
        }
        Ok(())
    }

    /// The allocation that `pointer` lies in: its address and its length.
    pub(crate) fn address_range(&self, pointer: u64) -> Result<(u64, usize)> {
        let state = self.read();
        let (found, _) = state.allocation(pointer).ok_or(Failure::INVALID_VALUE)?;
        Ok((found.address(), found.bytes as usize))
    }
}
