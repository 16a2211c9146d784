//! Where the memory of facts is.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where a piece of memory is, and how it is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum MemoryKind {
    /// This host's.
    Host,
    /// On the first GPU, registered by its address: peer memory.
    Gpu,
    /// On the first GPU, registered as a dma-buf.
    DmaBuf,
}

static CHOSEN: OnceLock<Vec<MemoryKind>> = OnceLock::new();

/// Has the pieces that a process makes be of these kinds, in turn; host memory unless that is called.
pub(crate) fn choose_memory(kinds: Vec<MemoryKind>) {
    // Called once, before any memory is made.
    let _ = CHOSEN.set(kinds);
}

fn chosen() -> &'static [MemoryKind] {
    CHOSEN.get().filter(|kinds| !kinds.is_empty()).map_or(&[MemoryKind::Host], Vec::as_slice)
}

/// The kind of the next piece.
pub(super) fn next_kind() -> MemoryKind {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    chosen()[MADE.fetch_add(1, Ordering::Relaxed) % chosen().len()]
}

/// The arguments that have another process choose the same, beginning `ahead` kinds further on: the other end of a
/// connection has the second piece.
pub(crate) fn memory_arguments(ahead: usize) -> Vec<String> {
    let mut kinds = chosen().to_vec();
    let len = kinds.len();
    kinds.rotate_left(ahead % len);
    let words =
        kinds.iter().filter_map(clap::ValueEnum::to_possible_value).map(|word| word.get_name().to_owned());
    vec!["--memory".to_owned(), words.collect::<Vec<_>>().join(",")]
}
