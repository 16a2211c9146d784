//! Which GPU is meant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Driver, Gpu};
use crate::error::{Error, ErrorKind, Result};

/// How a GPU is named on the command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum GpuName {
    /// By its number in this process: CUDA_VISIBLE_DEVICES decides.
    Ordinal(u32),
    /// By its PCI address, in lower case, the domain in four digits: `0000:17:00.0`.
    Pci(String),
    /// By its identity or the beginning of it: `GPU-8a5c`.
    Uuid(String),
}

impl fmt::Display for GpuName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordinal(ordinal) => write!(f, "{ordinal}"),
            Self::Pci(text) | Self::Uuid(text) => f.write_str(text),
        }
    }
}

impl From<GpuName> for String {
    fn from(name: GpuName) -> Self {
        name.to_string()
    }
}

impl TryFrom<String> for GpuName {
    type Error = String;
    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl FromStr for GpuName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if let Ok(ordinal) = text.parse() {
            return Ok(Self::Ordinal(ordinal));
        }
        if text.len() > 4 && text.starts_with("GPU-") {
            return Ok(Self::Uuid(text.to_ascii_lowercase().replacen("gpu-", "GPU-", 1)));
        }
        pci_address(text).map(Self::Pci).ok_or_else(|| {
            "a GPU's number (0), PCI address (0000:17:00.0) or identity (GPU-8a5c…), as nvidia-smi -L and -q show".to_owned()
        })
    }
}

/// In the form that the driver gives: nvidia-smi has eight digits of domain, lspci often none.
fn pci_address(text: &str) -> Option<String> {
    let (rest, function) = text.rsplit_once('.')?;
    let mut parts = rest.rsplit(':');
    let (device, bus) = (parts.next()?, parts.next()?);
    let domain = parts.next().unwrap_or("0");
    let number = |text: &str, most: u32| u32::from_str_radix(text, 16).ok().filter(|&it| it <= most);
    if parts.next().is_some() {
        return None;
    }
    Some(format!(
        "{:04x}:{:02x}:{:02x}.{:x}",
        number(domain, u32::MAX)?,
        number(bus, 0xff)?,
        number(device, 0x1f)?,
        number(function, 7)?
    ))
}

impl GpuName {
    fn names(&self, gpu: &Gpu) -> bool {
        match self {
            Self::Ordinal(ordinal) => gpu.ordinal == *ordinal,
            Self::Pci(address) => gpu.pci_address == *address,
            Self::Uuid(uuid) => gpu.uuid.starts_with(uuid.as_str()),
        }
    }
}

/// The GPU that is meant.
///
/// # Errors
/// [`ErrorKind::GpuNotFound`] with those that there are.
pub fn choose(driver: &Driver, name: &GpuName) -> Result<Gpu> {
    find(driver.gpus()?, name)
}

fn find(gpus: Vec<Gpu>, name: &GpuName) -> Result<Gpu> {
    let mut named = gpus.iter().filter(|gpu| name.names(gpu));
    let all = || gpus.iter().map(Gpu::describe).collect::<Vec<_>>().join("; ");
    match (named.next(), named.next()) {
        (Some(gpu), None) => Ok(gpu.clone()),
        (None, _) => Err(Error::new(ErrorKind::GpuNotFound, format!("this process sees no GPU {name}"))
            .fact("present", all())
            .fact_if("CUDA_VISIBLE_DEVICES", std::env::var("CUDA_VISIBLE_DEVICES").ok())
            .hint("choose one of those; numbers count within CUDA_VISIBLE_DEVICES")),
        (Some(_), Some(_)) => Err(Error::new(
            ErrorKind::GpuNotFound,
            format!("more than one GPU's identity begins with {name}"),
        )
        .fact("present", all())
        .hint("give more of it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(ordinal: u32, uuid: &str, pci_address: &str) -> Gpu {
        Gpu {
            ordinal,
            name: "NVIDIA H200".into(),
            uuid: uuid.into(),
            pci_address: pci_address.into(),
            memory_bytes: 1 << 37,
            compute_capability: "9.0".into(),
            multiprocessors: 132,
            dma_buf: true,
        }
    }

    #[test]
    fn a_gpu_has_three_names() {
        let gpus = vec![gpu(0, "GPU-8a5c01", "0000:17:00.0"), gpu(1, "GPU-8a5c02", "0001:3c:00.0")];
        let found = |name: &str| find(gpus.clone(), &name.parse().unwrap()).map(|gpu| gpu.ordinal);
        assert_eq!(found("1").unwrap(), 1);
        assert_eq!(found("00000000:17:00.0").unwrap(), 0);
        assert_eq!(found("17:00.0").unwrap(), 0);
        assert_eq!(found("0001:3C:00.0").unwrap(), 1);
        assert_eq!(found("GPU-8A5C02").unwrap(), 1);
        assert!(found("GPU-8a5c").unwrap_err().what.starts_with("more than one GPU"));
        let missing = found("7").unwrap_err();
        assert_eq!((missing.kind, missing.exit_status() as i32), (ErrorKind::GpuNotFound, 3));
        assert!(missing.facts[0].value.contains("GPU 1, NVIDIA H200, 0001:3c:00.0"));
    }

    #[test]
    fn other_words_are_refused_with_what_would_do() {
        for text in ["", "-1", "first", "GPU-", "1:2:3:4.0", "17:20.0", "17:00.9"] {
            assert!(text.parse::<GpuName>().unwrap_err().contains("nvidia-smi"), "{text}");
        }
    }
}
