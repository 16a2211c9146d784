//! Facts that can't be established with some kinds of memory, and why. Everything else holds wherever the memory is.

use crate::objects::MemoryKind;

/// A fact that is left out where memory is of one of these kinds.
pub(crate) struct LeftOut {
    fact: &'static str,
    kinds: &'static [MemoryKind],
    pub(crate) why: &'static str,
}

const GPU: &[MemoryKind] = &[MemoryKind::Gpu, MemoryKind::DmaBuf];
const DMA_BUF: &[MemoryKind] = &[MemoryKind::DmaBuf];
const INLINE: &str = "the processor reads inline data, and reaches no memory of a GPU";
const SHOWN: &str = "of a dma-buf ibv_mr's addr is the offset in it";

/// All of them.
pub(crate) const LEFT_OUT: &[LeftOut] = &[
    LeftOut {
        fact: "memory::read_only_memory_is_refused_where_the_device_may_write",
        kinds: GPU,
        why: "memory of a GPU can't be made read-only",
    },
    LeftOut { fact: "limits::as_much_inline_data_as_granted_is_sent", kinds: GPU, why: INLINE },
    LeftOut { fact: "limits::inline_pieces_count_together", kinds: GPU, why: INLINE },
    LeftOut { fact: "limits::inline_data_is_taken_at_posting", kinds: GPU, why: INLINE },
    LeftOut { fact: "limits::inline_data_needs_no_registration", kinds: GPU, why: INLINE },
    LeftOut { fact: "completions::they_come_in_the_order_of_posting", kinds: GPU, why: INLINE },
    LeftOut {
        fact: "memory::a_registration_has_the_address_and_length_asked_for",
        kinds: DMA_BUF,
        why: SHOWN,
    },
    LeftOut { fact: "memory::part_of_a_page_can_be_registered", kinds: DMA_BUF, why: SHOWN },
    LeftOut { fact: "memory::no_bytes_are_refused", kinds: DMA_BUF, why: "there is no dma-buf of no bytes" },
];

/// The entry of a fact that can't be established with memory of `kinds`.
pub(crate) fn of(fact: &str, kinds: &[MemoryKind]) -> Option<&'static LeftOut> {
    let applies = |it: &&LeftOut| it.fact == fact && kinds.iter().any(|kind| it.kinds.contains(kind));
    LEFT_OUT.iter().find(applies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts;

    #[test]
    fn each_names_a_fact_and_host_memory_has_none() {
        for left_out in LEFT_OUT {
            assert!(
                facts::all().any(|fact| fact.full_name() == left_out.fact),
                "{} is no fact",
                left_out.fact
            );
            assert!(of(left_out.fact, &[MemoryKind::Host]).is_none());
        }
        assert!(of(LEFT_OUT[0].fact, &[MemoryKind::Host, MemoryKind::Gpu]).is_some());
    }
}
