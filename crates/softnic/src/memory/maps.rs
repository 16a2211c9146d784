//! What lies where in this process, as /proc/self/maps has it.

use std::ops::Range;

use crate::errno::{Errno, Result};

/// One mapping of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) range: Range<u64>,
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) shared: bool,
    pub(super) offset: u64,
    pub(super) inode: u64,
    pub(super) name: String,
}

impl Area {
    /// Whether it is private memory of the ordinary kind. Not the stack, which grows; an inode is a file's, or a huge
    /// page's of the kernel's pool.
    pub(super) fn is_private_memory(&self) -> bool {
        !self.shared && self.writable && self.inode == 0 && !self.name.starts_with("[st")
    }

    /// Whether it shows the file `inode`, each byte at the offset that is its address.
    pub(super) fn is_of_arena(&self, inode: u64) -> bool {
        self.shared && self.inode == inode && self.offset == self.range.start
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let permissions = words.next()?.as_bytes();
        let offset = hex(words.next()?)?;
        let _device = words.next()?;
        Some(Self {
            range: hex(from)?..hex(to)?,
            readable: permissions.first() == Some(&b'r'),
            writable: permissions.get(1) == Some(&b'w'),
            shared: permissions.get(3) == Some(&b's'),
            offset,
            inode: words.next()?.parse().ok()?,
            name: words.next().unwrap_or_default().to_owned(),
        })
    }
}

/// The mappings that have a part in `range`, in order.
///
/// # Errors
/// `EFAULT` where a part of it is not mapped.
pub(super) fn areas(range: &Range<u64>) -> Result<Vec<Area>> {
    let text = std::fs::read_to_string("/proc/self/maps")?;
    within(&text, range)
}

/// The mappings of `text` that have a part in `range`.
pub(super) fn overlapping<'a>(text: &'a str, range: &'a Range<u64>) -> impl Iterator<Item = Area> + 'a {
    let overlaps = |area: &Area| area.range.start < range.end && range.start < area.range.end;
    text.lines().filter_map(Area::parse).filter(overlaps)
}

fn within(text: &str, range: &Range<u64>) -> Result<Vec<Area>> {
    let areas: Vec<_> = overlapping(text, range).collect();
    let mut at = range.start;
    for area in &areas {
        if area.range.start > at {
            return Err(Errno::FAULT);
        }
        at = area.range.end;
    }
    if at < range.end { Err(Errno::FAULT) } else { Ok(areas) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0 
3000-5000 r--p 00000000 00:00 0          [heap]
7000-9000 rw-s 00007000 00:01 42         /memfd:softnic (deleted)
9000-a000 rw-p 00000000 00:0e 77         /anon_hugepage (deleted)
a000-b000 rw-p 00000000 00:00 0          [stack]
";

    #[test]
    fn kinds_of_memory_are_told_apart() {
        let kinds: Vec<_> =
            within(MAPS, &(0x7000..0xb000)).unwrap().iter().map(Area::is_private_memory).collect();
        assert_eq!(kinds, [false, false, false]);
        let first = &within(MAPS, &(0x1000..0x2000)).unwrap()[0];
        assert!(first.is_private_memory() && !first.is_of_arena(0));
        assert!(within(MAPS, &(0x7000..0x8000)).unwrap()[0].is_of_arena(42));
        assert!(!within(MAPS, &(0x4000..0x4001)).unwrap()[0].is_private_memory());
    }

    #[test]
    fn a_hole_is_a_fault() {
        assert_eq!(within(MAPS, &(0x1000..0x5000)).unwrap().len(), 2);
        assert_eq!(within(MAPS, &(0x4000..0x7001)), Err(Errno::FAULT));
        assert_eq!(within(MAPS, &(0xa000..0xb001)), Err(Errno::FAULT));
        assert_eq!(within(MAPS, &(0x0..0x1001)), Err(Errno::FAULT));
    }

    #[test]
    fn this_process_is_mapped() {
        let here = MAPS.as_ptr().addr() as u64;
        assert_eq!(areas(&(here..here + 1)).unwrap().len(), 1);
    }
}
