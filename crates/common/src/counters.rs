//! A port's hardware counters, before and after: the adapter's own word on what went over the wire.

use std::collections::BTreeMap;

use crate::host::HostFiles;

/// The counters of one port at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// All that the kernel shows for port `port_num` of `device`; empty where it shows none.
    pub fn read(device: &str, port_num: u8, files: &HostFiles) -> Self {
        let mut counters = BTreeMap::new();
        for folder in ["counters", "hw_counters"] {
            let folder = format!("/sys/class/infiniband/{device}/ports/{port_num}/{folder}");
            for name in files.names(&folder) {
                // "lifespan" is a setting (how long the driver caches the others), not a count.
                if name == "lifespan" {
                    continue;
                }
                if let Some(value) = files.number(&format!("{folder}/{name}")) {
                    counters.insert(name, value);
                }
            }
        }
        Self(counters)
    }

    /// The counters that have grown since `before`, and by how much.
    pub fn grown_since(&self, before: &Self) -> BTreeMap<String, u64> {
        let growth = |(name, now): (&String, &u64)| {
            let then = before.0.get(name).copied().unwrap_or(0);
            now.checked_sub(then).filter(|&more| more > 0).map(|more| (name.clone(), more))
        };
        self.0.iter().filter_map(growth).collect()
    }
}

/// Growth in words: `retry_exceeded_err 1, sent_pkts 40`.
pub fn describe(growth: &BTreeMap<String, u64>) -> String {
    if growth.is_empty() {
        return "none moved".to_owned();
    }
    growth.iter().map(|(name, more)| format!("{name} {more}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_what_has_grown_is_told() {
        let tree = tempfile::tempdir().unwrap();
        let folder = tree.path().join("sys/class/infiniband/rxe0/ports/1/hw_counters");
        fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, value: u64| fs::write(folder.join(name), format!("{value}\n")).unwrap();
        let files = HostFiles::below(tree.path());
        write("sent_pkts", 5);
        write("retry_exceeded_err", 0);
        write("lifespan", 10);
        let before = Counters::read("rxe0", 1, &files);
        write("sent_pkts", 9);
        write("lifespan", 12);
        let after = Counters::read("rxe0", 1, &files);
        assert_eq!(describe(&after.grown_since(&before)), "sent_pkts 4");
        assert_eq!(describe(&after.grown_since(&after)), "none moved");
        assert!(Counters::read("none", 1, &files).0.is_empty());
    }
}
