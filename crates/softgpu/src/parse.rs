//! From text to a [`Config`].

use std::collections::BTreeSet;

use cuda_sys::Cuda;

use crate::config::{Config, FaultDescription, MOST_GPUS, When};
use crate::failure;

impl Config {
    /// # Errors
    /// The first clause that is not understood, and what would be.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut config = Self::default();
        let mut seen = BTreeSet::new();
        for clause in text.split(';').map(str::trim).filter(|clause| !clause.is_empty()) {
            let (key, value) = clause.split_once(char::is_whitespace).unwrap_or((clause, ""));
            if !seen.insert(key) && key != "fail" {
                return Err(format!("{key} is set twice"));
            }
            config.set(key, value.trim()).map_err(|what| format!("\"{clause}\": {what}"))?;
        }
        match config.exclusive.iter().find(|&&gpu| gpu >= config.gpus) {
            Some(gpu) => Err(format!("exclusive: there is no GPU {gpu}")),
            None => Ok(config),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "gpus" => self.gpus = gpus(value)?,
            "memory" => self.memory = size(value).ok_or("memory is bytes, for instance 512M or 1G")?,
            "name" => self.name = name(value)?,
            "pci" => {
                self.pci = list(value, pci, "a PCI address is DOMAIN:BUS:DEVICE.FUNCTION, as 0000:17:00.0")?
            }
            "dma_buf" => self.dma_buf = on_or_off(value)?,
            "pcie_mapping" => self.pcie_mapping = on_or_off(value)?,
            "exclusive" => {
                self.exclusive = list(value, |word| word.parse().ok(), "GPUs are numbered from 0")?
            }
            "fail" => self.faults.push(fault(value)?),
            _ => {
                return Err("there are gpus, memory, name, pci, dma_buf, pcie_mapping, exclusive, and fail"
                    .to_owned());
            }
        }
        Ok(())
    }
}

fn gpus(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|&number| number <= MOST_GPUS);
    number.ok_or_else(|| format!("a number of GPUs is from 0 to {MOST_GPUS}"))
}

fn name(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("a name has at least one letter".to_owned()) } else { Ok(text.to_owned()) }
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("it is on or off".to_owned()),
    }
}

/// At least one word, separated by spaces.
fn list<T>(text: &str, parse: impl Fn(&str) -> Option<T>, what: &str) -> Result<Vec<T>, String> {
    let items: Option<Vec<T>> = text.split_whitespace().map(parse).collect();
    items.filter(|items| !items.is_empty()).ok_or_else(|| what.to_owned())
}

fn pci(text: &str) -> Option<String> {
    let hex = |text: &str, digits| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (rest, function) = text.split_once('.')?;
    let [domain, bus, device] = rest.split(':').collect::<Vec<_>>()[..] else { return None };
    (hex(domain, 4) && hex(bus, 2) && hex(device, 2) && hex(function, 1)).then(|| text.to_ascii_uppercase())
}

/// A whole number of bytes, with K, M or G for powers of 1024; at least one.
fn size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|&bytes| bytes > 0)
}

fn fault(text: &str) -> Result<FaultDescription, String> {
    let mut words = text.split_whitespace();
    let (Some(place), Some(with), None) = (words.next(), words.next(), words.next()) else {
        return Err("it is CALL RESULT, CALL@N RESULT or CALL@N+ RESULT".to_owned());
    };
    let (call, when) = match place.split_once('@') {
        None => (place, When::Always),
        Some((call, when)) => {
            (call, which(when).ok_or("calls are counted from 1: @2, or @2+ for all from there on")?)
        }
    };
    let known = Cuda::REQUIRED.iter().chain(Cuda::OPTIONAL).find(|&&known| known == call);
    let call =
        known.ok_or_else(|| format!("{call} is none of the driver's functions: cuMemAlloc_v2 is one"))?;
    if ["cuGetErrorName", "cuGetErrorString"].contains(call) {
        return Err(format!("{call} does not fail"));
    }
    let with = failure::named(with)
        .ok_or("a result is a name, for instance CUDA_ERROR_OUT_OF_MEMORY, or a number that is not 0")?;
    Ok(FaultDescription { call, when, with })
}

fn which(text: &str) -> Option<When> {
    let number = |text: &str| text.parse().ok().filter(|&number: &u64| number > 0);
    match text.strip_suffix('+') {
        Some(from) => number(from).map(When::From),
        None => number(text).map(When::Once),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    #[test]
    fn every_setting_reaches_its_place() {
        let text = "gpus 2; memory 512M; name A GPU; pci 0000:3b:00.0 0001:17:00.0; dma_buf off; exclusive 1; \
                    pcie_mapping off; fail cuMemAlloc_v2@2 CUDA_ERROR_OUT_OF_MEMORY; fail cuMemFree_v2 719;";
        let config = Config::parse(text).unwrap();
        assert_eq!((config.gpus, config.memory, config.name.as_str()), (2, 512 << 20, "A GPU"));
        assert_eq!(config.pci, ["0000:3B:00.0", "0001:17:00.0"]);
        assert_eq!((config.dma_buf, config.pcie_mapping, &config.exclusive[..]), (false, false, &[1][..]));
        let once = When::Once(2);
        assert_eq!(
            config.faults[0],
            FaultDescription { call: "cuMemAlloc_v2", when: once, with: Failure::OUT_OF_MEMORY }
        );
        assert_eq!((config.faults[1].when, config.faults[1].with), (When::Always, Failure(719)));
        assert_eq!(Config::parse(" ;; ").unwrap(), Config::default());
    }

    #[test]
    fn what_is_not_understood_is_refused_with_what_would_be() {
        let wrong = |text: &str| Config::parse(text).unwrap_err();
        assert!(wrong("gpus two").contains("\"gpus two\": a number of GPUs is from 0 to 32"));
        assert!(wrong("gpus").contains("from 0 to 32") && wrong("gpus 33").contains("from 0 to 32"));
        assert!(wrong("gpus=2").contains("there are gpus, memory"));
        assert!(wrong("gpus 1; gpus 2").contains("gpus is set twice"));
        for bad in ["", "1T", "0", "-1", "1.5G", "99999999999G"] {
            assert!(wrong(&format!("memory {bad}")).contains("memory is bytes"), "{bad}");
        }
        assert!(wrong("dma_buf no").contains("on or off"));
        assert!(wrong("pci 3b:00.0").contains("DOMAIN:BUS:DEVICE.FUNCTION"));
        assert!(wrong("exclusive 1").contains("there is no GPU 1") && wrong("exclusive").contains("from 0"));
        assert!(wrong("name").contains("at least one letter"));
    }

    #[test]
    fn a_fault_names_a_call_that_there_is() {
        let wrong = |text: &str| Config::parse(&format!("fail {text}")).unwrap_err();
        assert!(wrong("").contains("CALL RESULT") && wrong("cuInit 1 2").contains("CALL RESULT"));
        assert!(wrong("cuMemAlloc 2").contains("none of the driver's functions"));
        assert!(wrong("cuInit 0").contains("a number that is not 0"));
        assert!(wrong("cuInit@0 1").contains("from 1") && wrong("cuInit@x+ 1").contains("from 1"));
        assert!(wrong("cuGetErrorName 1").contains("does not fail"));
    }
}
