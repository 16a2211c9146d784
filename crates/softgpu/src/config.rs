//! Which GPUs there are, as [`VARIABLE`] describes them.
//!
//! A description is a list of clauses separated by `;`, each a word and what it is about:
//!
//! ```text
//! gpus 2; memory 1G; dma_buf off; exclusive 1; fail cuMemAlloc_v2@2 CUDA_ERROR_OUT_OF_MEMORY
//! ```
//!
//! Parsing is strict: whatever is not understood is an error, and `cuInit` fails then.

use crate::failure::Failure;

/// The environment variable that holds the description.
pub(crate) const VARIABLE: &str = "LINKPROOF_SOFTGPU";

/// The most GPUs that there can be: what one PCI bus has places for.
pub(crate) const MOST_GPUS: usize = 32;

/// All that a description says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) gpus: usize,
    /// Of each GPU, in bytes.
    pub(crate) memory: u64,
    /// The name of each GPU.
    pub(crate) name: String,
    /// Their PCI addresses, in order; those that are missing are made up.
    pub(crate) pci: Vec<String>,
    /// Whether dma-bufs are given out.
    pub(crate) dma_buf: bool,
    /// Whether dma-bufs may be asked to be mapped over PCIe, which drivers before CUDA 12.8 don't know.
    pub(crate) pcie_mapping: bool,
    /// The GPUs that another process has for itself.
    pub(crate) exclusive: Vec<usize>,
    pub(crate) faults: Vec<FaultDescription>,
}

/// A call that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FaultDescription {
    /// One of the driver's functions.
    pub(crate) call: &'static str,
    pub(crate) when: When,
    pub(crate) with: Failure,
}

/// Which of the calls, counted from 1 in each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Once(u64),
    From(u64),
}

impl Default for Config {
    /// One GPU. Its memory is the host's, and taken as it is used.
    fn default() -> Self {
        Self {
            gpus: 1,
            memory: 1 << 30,
            name: "Softgpu (host memory)".to_owned(),
            pci: Vec::new(),
            dma_buf: true,
            pcie_mapping: true,
            exclusive: Vec::new(),
            faults: Vec::new(),
        }
    }
}

impl Config {
    /// The description in the environment, or the default.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(crate) fn from_environment() -> Result<Self, String> {
        let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
            return Ok(Self::default());
        };
        let text = value.to_str().ok_or_else(|| format!("{VARIABLE} is not UTF-8"))?;
        Self::parse(text).map_err(|what| format!("{VARIABLE}: {what}"))
    }
}
