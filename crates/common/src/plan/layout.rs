//! Where messages lie: the slots of a queue pair's region, and the regions of an end's buffer.

use super::{Plan, Role, Traffic};
use crate::mr::Span;
use crate::units::ByteSize;

/// Where a message lies in the memory of its queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Bytes of one message.
    pub size: u64,
    /// Bytes from the start of one slot to the next: a whole number of cache lines.
    pub stride: u64,
    /// How many there are; message `i` uses slot `i % count`.
    pub count: u64,
}

/// The cache line of every machine that RDMA adapters are built into.
const CACHE_LINE: u64 = 64;
/// Small messages take turns in one page of this size, as in perftest: they then hit the cache as a real
/// producer's would, and not one line over and over.
const PAGE: u64 = 4096;

impl Slots {
    /// The slots of messages of `size` bytes that take turns in a page, or have one place if they are larger.
    pub fn of(size: u64) -> Self {
        Self::within(PAGE, size)
    }

    /// The slots of messages of `size` bytes that take turns in `room` bytes, at least in one place.
    pub fn within(room: u64, size: u64) -> Self {
        let stride = size.max(1).next_multiple_of(CACHE_LINE);
        Self { size, stride, count: (room / stride).max(1) }
    }

    /// Where slot `index` begins, from the start of the region.
    pub fn offset(self, index: u64) -> u64 {
        index * self.stride
    }

    /// How many slots are written to by `messages` messages.
    pub fn used_by(self, messages: u64) -> u64 {
        self.count.min(messages)
    }
}

/// This end's memory for writing in turn.
#[derive(Clone, Copy, Debug)]
pub struct Regions {
    /// The address of what it writes.
    pub source: u64,
    /// The address of what the peer writes.
    pub sink: u64,
    /// Where, from the start of both, the byte of a [release](crate::endpoint::PingPong::release) lies.
    pub release: u64,
}

/// How one end's buffer is divided: a part for each queue pair, with a source region if this end writes and a sink
/// region if it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLayout {
    qps: u64,
    region: u64,
    sources: u64,
    sinks: u64,
    memory_regions: u64,
}

impl BufferLayout {
    /// The layout of `role`'s buffer under `plan`.
    pub fn new(plan: &Plan, role: Role) -> Self {
        // Ends that write in turn have a line behind their messages for what is no message.
        let beside = if plan.traffic == Traffic::PingPong { CACHE_LINE } else { 0 };
        Self {
            qps: u64::from(plan.qps),
            region: (plan.largest() + beside).max(plan.working_set_bytes.unwrap_or(0)).next_multiple_of(PAGE),
            sources: u64::from(plan.is_initiator(role)),
            sinks: u64::from(plan.is_target(role)),
            memory_regions: plan.memory_regions().into(),
        }
    }

    /// Bytes of one queue pair's region.
    pub fn region_len(self) -> u64 {
        self.region
    }

    /// Bytes of the whole buffer. At most 2 × 16384 × 2⁴⁰, which 64 bits hold.
    pub fn total_len(self) -> u64 {
        self.qps * self.part()
    }

    /// Bytes that belong to one queue pair.
    fn part(self) -> u64 {
        (self.sources + self.sinks) * self.region
    }

    /// Where the source region of `qp` begins.
    pub fn source(self, qp: u32) -> u64 {
        u64::from(qp) * self.part()
    }

    /// Where the sink region of `qp` begins.
    pub fn sink(self, qp: u32) -> u64 {
        self.source(qp) + self.sources * self.region
    }

    /// What is registered, each span by itself: everything at once, or each queue pair's part.
    pub fn memory_regions(self) -> impl Iterator<Item = Span> {
        let len = self.total_len() / self.memory_regions;
        (0..self.memory_regions).map(move |index| Span { offset: index * len, len })
    }

    /// Where, from the start of each region, the byte lies by which an end that is written to in turn is told that it may
    /// write again: in a line of its own behind the largest message.
    pub fn release(self) -> u64 {
        self.region - CACHE_LINE
    }

    /// The memory of the first queue pair, in a buffer at `base`, of an end that writes and is written to.
    pub fn regions(self, base: u64) -> Regions {
        Regions { source: base + self.source(0), sink: base + self.sink(0), release: self.release() }
    }

    /// The layout in words: `4 regions of 1 MiB`.
    pub fn describe(self) -> String {
        format!("{} of {}", (self.sources + self.sinks) * self.qps, ByteSize(self.region))
    }
}

/// Bytes of a queue pair's flags: what goes out and what comes in, and a release of each, in cache lines of their own.
const FLAGS: u64 = 4 * CACHE_LINE;

/// Bytes of host memory that an end has beside GPU memory, for what the processors look at.
pub fn flags_len(plan: &Plan) -> u64 {
    (u64::from(plan.qps) * FLAGS).next_multiple_of(PAGE)
}

/// The flags of `qp`, in memory at `base`.
pub fn flags_of(base: u64, qp: usize) -> Regions {
    let source = base + qp as u64 * FLAGS;
    Regions { source, sink: source + 2 * CACHE_LINE, release: CACHE_LINE }
}

#[cfg(test)]
mod tests {
    use super::super::Traffic;
    use super::super::tests::plan;
    use super::super::{MAX_MSG_SIZE, MAX_WORKING_SET};
    use super::*;

    #[test]
    fn small_messages_take_turns_in_a_page_and_large_ones_stay() {
        assert_eq!(Slots::of(2), Slots { size: 2, stride: 64, count: 64 });
        assert_eq!(Slots::of(65), Slots { size: 65, stride: 128, count: 32 });
        assert_eq!(Slots::of(4096).count, 1);
        assert_eq!(Slots::of(1 << 20).count, 1);
        assert_eq!(Slots::of(2).used_by(3), 3);
    }

    #[test]
    fn slots_stay_in_their_region() {
        let working_sets = [None, Some(4097), Some(1 << 20), Some(MAX_WORKING_SET)];
        for working_set_bytes in working_sets {
            for size in (1..5000).chain([65536, 1 << 20, MAX_MSG_SIZE]) {
                let plan = Plan { working_set_bytes, sizes_bytes: vec![size], ..plan() };
                let slots = plan.slots(size);
                let region = BufferLayout::new(&plan, Role::Client).region_len();
                assert!(slots.offset(slots.count - 1) + size <= region, "{size} in {working_set_bytes:?}");
            }
        }
    }

    #[test]
    fn messages_take_turns_in_all_of_the_working_set() {
        let plan = Plan { working_set_bytes: Some(64 << 20), ..plan() };
        assert_eq!(
            [2, 1000, 1 << 20, 3 << 20].map(|size| plan.slots(size).count),
            [1 << 20, 1 << 16, 64, 21]
        );
        assert_eq!(BufferLayout::new(&plan, Role::Server).total_len(), 64 << 20);
    }

    #[test]
    fn an_end_holds_only_the_regions_that_it_uses() {
        let mut plan = plan();
        plan.qps = 4;
        assert_eq!(BufferLayout::new(&plan, Role::Client).total_len(), 4 * 65536);
        assert_eq!(BufferLayout::new(&plan, Role::Server).sink(1), 65536);
        plan.traffic = Traffic::Bidirectional;
        let both = BufferLayout::new(&plan, Role::Server);
        assert_eq!(both.total_len(), 8 * 65536);
        assert_eq!((both.source(3), both.sink(0)), (6 * 65536, 65536));
    }

    #[test]
    fn what_is_registered_covers_each_queue_pairs_part() {
        let plan = Plan { qps: 4, traffic: Traffic::Bidirectional, ..plan() };
        let spans = |plan: &Plan| BufferLayout::new(plan, Role::Client).memory_regions().collect::<Vec<_>>();
        assert_eq!(spans(&plan), [Span { offset: 0, len: 8 * 65536 }]);
        let each = spans(&Plan { mr_per_qp: true, ..plan.clone() });
        assert_eq!(each.len(), 4);
        let layout = BufferLayout::new(&plan, Role::Client);
        for (qp, span) in (0..).zip(each) {
            assert_eq!(span, Span { offset: layout.source(qp), len: 2 * 65536 });
            assert_eq!(layout.sink(qp) + layout.region_len(), span.offset + span.len);
        }
    }

    #[test]
    fn the_releases_of_a_ping_pong_have_a_line_of_their_own() {
        for (largest, region) in
            [(2, 4096), (4032, 4096), (4033, 8192), (4096, 8192), (MAX_MSG_SIZE, MAX_MSG_SIZE + 4096)]
        {
            let plan = Plan { sizes_bytes: vec![1, largest], traffic: Traffic::PingPong, ..plan() };
            let layout = BufferLayout::new(&plan, Role::Server);
            assert_eq!(layout.region_len(), region);
            assert!(layout.release() >= largest && layout.release() < region, "{largest}");
        }
    }
}
