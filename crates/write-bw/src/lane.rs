//! One queue pair's share of a stretch, and how its queue is filled.

use linkproof_common::endpoint::{Endpoint, List, Signal};
use linkproof_common::error::Result;

/// The writes of one queue pair.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    pub(crate) posted: u64,
    pub(crate) completed: u64,
    pub(crate) limit: u64,
    pub(crate) slot: u64,
    pub(crate) unsignalled: u32,
}

/// What a write depends on besides its lane; the same all the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) depth: u64,
    pub(crate) signal_every: u32,
    pub(crate) slots: u64,
}

impl Lane {
    /// Takes the next write: its slot, and whether it is signalled.
    #[inline(always)]
    fn next(&mut self, rules: Rules) -> (u64, Signal) {
        let slot = self.slot;
        let since = self.unsignalled + 1;
        let signalled = since == rules.signal_every || self.posted + 1 == self.limit;
        self.posted += 1;
        self.unsignalled = if signalled { 0 } else { since };
        self.slot = if slot + 1 == rules.slots { 0 } else { slot + 1 };
        (slot, if signalled { Signal::Covering(since) } else { Signal::None })
    }

    /// Takes the next `writes`, which are signalled together at their end or not at all: the interval is a whole number
    /// of lists.
    #[inline(always)]
    fn next_list(&mut self, rules: Rules, writes: u32) -> List {
        let slot = self.slot;
        let since = self.unsignalled + writes;
        self.posted += u64::from(writes);
        let signalled = since >= rules.signal_every || self.posted == self.limit;
        self.unsignalled = if signalled { 0 } else { since };
        let next = slot + u64::from(writes);
        self.slot = if next < rules.slots { next } else { next % rules.slots };
        let signal = if signalled { Signal::Covering(since) } else { Signal::None };
        List { slot, slots: rules.slots, writes, signal }
    }
}

/// How a queue is filled; chosen before the loop.
pub(crate) trait Fill {
    /// Posts as much as there is room for.
    fn fill<E: Endpoint>(
        endpoint: &mut E,
        qp: usize,
        lane: &mut Lane,
        rules: Rules,
        post_list: u64,
    ) -> Result<()>;

    /// How many writes would be posted together next; `None` where there is no room for them.
    fn next(lane: &Lane, rules: Rules, post_list: u64) -> Option<u64>;

    /// Posts so many writes together.
    fn post<E: Endpoint>(
        endpoint: &mut E,
        qp: usize,
        lane: &mut Lane,
        rules: Rules,
        writes: u64,
    ) -> Result<()>;
}

/// One write at a time.
pub(crate) struct OneByOne;

/// A list as soon as there is room for it; at the end of a stretch it is as long as what is left.
pub(crate) struct InLists;

impl Fill for OneByOne {
    #[inline(always)]
    fn fill<E: Endpoint>(endpoint: &mut E, qp: usize, lane: &mut Lane, rules: Rules, _: u64) -> Result<()> {
        while lane.posted - lane.completed < rules.depth && lane.posted < lane.limit {
            let (slot, signal) = lane.next(rules);
            endpoint.post_write(qp, slot, signal)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn next(lane: &Lane, rules: Rules, _: u64) -> Option<u64> {
        (lane.posted - lane.completed < rules.depth && lane.posted < lane.limit).then_some(1)
    }

    #[inline(always)]
    fn post<E: Endpoint>(endpoint: &mut E, qp: usize, lane: &mut Lane, rules: Rules, _: u64) -> Result<()> {
        let (slot, signal) = lane.next(rules);
        endpoint.post_write(qp, slot, signal)
    }
}

impl Fill for InLists {
    #[inline(always)]
    fn fill<E: Endpoint>(
        endpoint: &mut E,
        qp: usize,
        lane: &mut Lane,
        rules: Rules,
        post_list: u64,
    ) -> Result<()> {
        while lane.posted < lane.limit {
            let list = post_list.min(lane.limit - lane.posted);
            if lane.posted - lane.completed + list > rules.depth {
                break;
            }
            endpoint.post_list(qp, lane.next_list(rules, list as u32))?;
        }
        Ok(())
    }

    #[inline(always)]
    fn next(lane: &Lane, rules: Rules, post_list: u64) -> Option<u64> {
        let list = post_list.min(lane.limit - lane.posted);
        (list > 0 && lane.posted - lane.completed + list <= rules.depth).then_some(list)
    }

    #[inline(always)]
    fn post<E: Endpoint>(
        endpoint: &mut E,
        qp: usize,
        lane: &mut Lane,
        rules: Rules,
        writes: u64,
    ) -> Result<()> {
        endpoint.post_list(qp, lane.next_list(rules, writes as u32))
    }
}
