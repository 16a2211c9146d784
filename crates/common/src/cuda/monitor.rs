//! What NVIDIA's management library says of a GPU: who uses it, and over what it reaches another. A witness more: where
//! there is none, what it would say is unknown, and nothing fails.

use std::ffi::CString;
use std::sync::OnceLock;

use nvml_sys as sys;
use nvml_sys::Nvml;

/// The library, ready for use.
#[derive(Debug)]
pub struct Monitor(Nvml);

/// A GPU that it knows.
#[derive(Clone, Copy, Debug)]
pub struct Monitored {
    nvml: &'static Nvml,
    device: sys::nvmlDevice_t,
}

impl Monitor {
    /// The process's library, loaded by the first call; `None` where there is none, or it does not begin.
    pub fn load() -> Option<&'static Self> {
        static LOADED: OnceLock<Option<Monitor>> = OnceLock::new();
        LOADED.get_or_init(Self::open).as_ref()
    }

    fn open() -> Option<Self> {
        let name = std::env::var_os(sys::LIBRARY_VARIABLE).filter(|name| !name.is_empty());
        let nvml = Nvml::open(name.unwrap_or_else(|| sys::DEFAULT_LIBRARY.into())).ok()?;
        // SAFETY: it takes nothing, and comes before any other call.
        (unsafe { (nvml.nvmlInit_v2)() } == sys::NVML_SUCCESS).then_some(Self(nvml))
    }

    /// The GPU at `pci_address`, as `0000:17:00.0`.
    pub fn gpu(&'static self, pci_address: &str) -> Option<Monitored> {
        let address = CString::new(pci_address).ok()?;
        let mut device = std::ptr::null_mut();
        // SAFETY: the string and the device are ours.
        let result = unsafe { (self.0.nvmlDeviceGetHandleByPciBusId_v2)(address.as_ptr(), &mut device) };
        (result == sys::NVML_SUCCESS).then_some(Monitored { nvml: &self.0, device })
    }
}

impl Monitored {
    /// Whether this GPU and `other` reach each other over NVLink, directly or by switches.
    pub fn has_nvlink_to(&self, other: &Self) -> Option<bool> {
        let ask = self.nvml.nvmlDeviceGetP2PStatus?;
        let mut status = 0;
        // SAFETY: both devices are the library's, the status is ours.
        let result = unsafe { ask(self.device, other.device, sys::NVML_P2P_CAPS_INDEX_NVLINK, &mut status) };
        (result == sys::NVML_SUCCESS).then_some(status == sys::NVML_P2P_STATUS_OK)
    }

    /// Its NVLinks that are up.
    pub fn nvlinks(&self) -> Option<u32> {
        let ask = self.nvml.nvmlDeviceGetNvLinkState?;
        let up = |link: &u32| {
            let mut active = 0;
            // SAFETY: the device is the library's, the answer is ours.
            let result = unsafe { ask(self.device, *link, &mut active) };
            result == sys::NVML_SUCCESS && active != 0
        };
        Some((0..sys::NVML_NVLINK_MAX_LINKS).filter(up).count() as u32)
    }

    /// In how much of the last moments (up to a second) a kernel ran on it, in percent.
    pub fn busy_percent(&self) -> Option<u32> {
        let ask = self.nvml.nvmlDeviceGetUtilizationRates?;
        let mut rates = sys::nvmlUtilization_t::default();
        // SAFETY: the device is the library's, the rates are ours.
        (unsafe { ask(self.device, &mut rates) } == sys::NVML_SUCCESS).then_some(rates.gpu)
    }

    /// The processes that have a context on it, by their numbers as the host has them.
    pub fn processes(&self) -> Option<Vec<u32>> {
        const MOST: usize = 64;
        let ask = self.nvml.nvmlDeviceGetComputeRunningProcesses_v3?;
        let mut list = [sys::nvmlProcessInfo_t::default(); MOST];
        let mut count = MOST as u32;
        // SAFETY: the device is the library's; the list has room for as many as `count` says.
        let result = unsafe { ask(self.device, &mut count, list.as_mut_ptr()) };
        // Of more than there is room for, the first are there.
        let told = [sys::NVML_SUCCESS, sys::NVML_ERROR_INSUFFICIENT_SIZE].contains(&result);
        told.then(|| list.iter().take(count as usize).map(|process| process.pid).collect())
    }

    /// Bytes that it has sent over NVLink since the driver began to count, without overhead.
    pub fn nvlink_sent_bytes(&self) -> Option<u64> {
        let ask = self.nvml.nvmlDeviceGetFieldValues?;
        let mut field = sys::nvmlFieldValue_t {
            fieldId: sys::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
            scopeId: sys::NVML_ALL_LINKS,
            ..Default::default()
        };
        // SAFETY: the device is the library's, the one field is ours.
        let result = unsafe { ask(self.device, 1, &mut field) };
        let told = result == sys::NVML_SUCCESS
            && field.nvmlReturn == sys::NVML_SUCCESS
            && field.valueType == sys::NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        told.then_some(field.value.saturating_mul(1024))
    }
}

// SAFETY: the library may be asked by any thread, and a device stays what it is.
unsafe impl Send for Monitored {}
// SAFETY: as above.
unsafe impl Sync for Monitored {}
