//! How much the last caches before the memory hold.

use std::collections::BTreeSet;

use linkproof_common::affinity::Cores;
use linkproof_common::host::HostFiles;

/// Bytes of the last-level caches of `cores`, each counted once; `None` where the kernel does not say.
pub(super) fn last_level_bytes(files: &HostFiles, cores: &Cores) -> Option<u64> {
    let caches: BTreeSet<(String, u64)> =
        cores.numbers().iter().filter_map(|core| last_of(files, *core)).collect();
    (!caches.is_empty()).then(|| caches.iter().map(|(_, bytes)| bytes).sum())
}

/// The cache of `core` with the highest level: who shares it, and its size.
fn last_of(files: &HostFiles, core: u32) -> Option<(String, u64)> {
    let folder = format!("/sys/devices/system/cpu/cpu{core}/cache");
    let indices = files.names(&folder).into_iter().filter(|name| name.starts_with("index"));
    let last = indices.max_by_key(|index| files.number(&format!("{folder}/{index}/level")))?;
    let size = files.text(&format!("{folder}/{last}/size"))?;
    let kib: u64 = size.strip_suffix('K')?.parse().ok()?;
    Some((files.text(&format!("{folder}/{last}/shared_cpu_list"))?, kib << 10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn caches_that_cores_share_count_once() {
        let tree = tempfile::tempdir().unwrap();
        let write = |core: u32, index: u32, level: u32, size: &str, shared: &str| {
            let folder = tree.path().join(format!("sys/devices/system/cpu/cpu{core}/cache/index{index}"));
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in
                [("level", level.to_string()), ("size", size.into()), ("shared_cpu_list", shared.into())]
            {
                fs::write(folder.join(name), text).unwrap();
            }
        };
        for (core, shared) in [(0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")] {
            write(core, 0, 1, "48K", &core.to_string());
            write(core, 3, 3, "32768K", shared);
        }
        let files = HostFiles::below(tree.path());
        let bytes = |cores: &str| last_level_bytes(&files, &Cores::parse(cores).unwrap());
        assert_eq!(bytes("0-1"), Some(32 << 20));
        assert_eq!(bytes("0-3"), Some(64 << 20));
        assert_eq!(bytes("7"), None);
    }
}
