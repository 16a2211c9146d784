//! A core for each of several threads that measure together: threads of which each waits for the others must not share
//! one.

use super::cores::Cores;
use super::kernel;
use crate::host::HostFiles;

/// The cores that the calling thread may run on; none where the kernel does not say.
pub fn allowed() -> Cores {
    kernel::cores().unwrap_or_default()
}

/// A core for each of `count` threads, out of `cores`; `None` where there are fewer. Hardware threads of one core come
/// last: two of them share what a measurement needs.
pub fn one_each(count: usize, cores: &Cores, files: &HostFiles) -> Option<Vec<Cores>> {
    let first_of_its_core = |core: &u32| {
        let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
        let siblings = files.text(&path).and_then(|text| Cores::from_kernel(&text));
        let siblings = siblings.unwrap_or_default().among(cores);
        siblings.numbers().first().is_none_or(|first| first == core)
    };
    let (firsts, others): (Vec<u32>, Vec<u32>) =
        cores.numbers().iter().partition(|core| first_of_its_core(core));
    let chosen: Vec<Cores> =
        firsts.into_iter().chain(others).take(count).map(|core| Cores::of([core])).collect();
    (chosen.len() == count).then_some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn hardware_threads_of_one_core_come_last() {
        let tree = tempfile::tempdir().unwrap();
        for (core, siblings) in [(0, "0-1\n"), (1, "0-1\n"), (2, "2-3\n"), (3, "2-3\n")] {
            let folder = tree.path().join(format!("sys/devices/system/cpu/cpu{core}/topology"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("thread_siblings_list"), siblings).unwrap();
        }
        let files = HostFiles::below(tree.path());
        let chosen = |count, cores: &str| {
            let chosen = one_each(count, &Cores::parse(cores).unwrap(), &files)?;
            Some(chosen.iter().map(|cores| cores.numbers()[0]).collect::<Vec<_>>())
        };
        assert_eq!(chosen(2, "0-3"), Some(vec![0, 2]));
        assert_eq!(chosen(3, "0-3"), Some(vec![0, 2, 1]));
        assert_eq!(chosen(2, "1,2,3"), Some(vec![1, 2]), "a sibling that may not be used does not count");
        assert_eq!(chosen(5, "0-3"), None);
    }

    #[test]
    fn without_a_topology_cores_are_taken_in_their_order() {
        let tree = tempfile::tempdir().unwrap();
        let chosen = one_each(2, &Cores::parse("4,6,8").unwrap(), &HostFiles::below(tree.path())).unwrap();
        assert_eq!(chosen, [Cores::of([4]), Cores::of([6])]);
        assert!(!allowed().is_empty());
    }
}
