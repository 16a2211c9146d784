//! One call of a collective with everything that decides its bytes: ranks, type, reduction, root, counts.

use std::sync::Arc;

use super::{AlgBytes, Collective, Shape, Sizing};
use crate::dtype::DataType;
use crate::redop::RedOp;
use crate::traffic::Traffic;

/// A call, the same for every rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// What is called.
    pub collective: &'static Collective,
    /// How many ranks call it.
    pub n_ranks: u32,
    /// The elements' type.
    pub dtype: DataType,
    /// What is done with them; absent where nothing is reduced.
    pub redop: Option<RedOp>,
    /// The special rank; absent where there is none.
    pub root: Option<u32>,
    /// Elements, as the call counts them: see [`Sizing`].
    pub count: u64,
    /// Bytes from each rank to each, for collectives of uneven blocks.
    pub traffic: Option<Arc<Traffic>>,
}

impl PartialEq for Collective {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

/// Why a size makes no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// It rounds to no element at all; the least size that doesn't, in bytes.
    TooSmall {
        /// The least size in bytes.
        least_bytes: u64,
    },
    /// The collective is defined for a power of two of ranks only.
    NotAPowerOfTwo,
}

impl Call {
    /// The call for `size_bytes`, as the user counts them. `root` and `redop` are dropped where they mean nothing.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn new(
        collective: &'static Collective,
        n_ranks: u32,
        dtype: DataType,
        redop: RedOp,
        root: u32,
        size_bytes: u64,
    ) -> Result<Self, CallError> {
        if collective.power_of_two && !n_ranks.is_power_of_two() {
            return Err(CallError::NotAPowerOfTwo);
        }
        let n = u64::from(n_ranks);
        let elements = size_bytes / dtype.bytes();
        let per_rank = elements / n;
        let (count, least_bytes) = match collective.sizing {
            Sizing::Whole => (elements, dtype.bytes()),
            Sizing::Blocks | Sizing::Uneven => (per_rank - per_rank % dtype.elements_in_16_bytes(), 16 * n),
        };
        let traffic = (collective.sizing == Sizing::Uneven)
            .then(|| Arc::new(Traffic::weighted_by_distance(n_ranks, size_bytes)));
        let nothing = traffic.as_ref().map_or(count == 0, |traffic| traffic.is_empty());
        if nothing {
            let least_bytes = traffic.map_or(least_bytes, |_| Traffic::least_weighted_bytes(n_ranks));
            return Err(CallError::TooSmall { least_bytes });
        }
        Ok(Self {
            collective,
            n_ranks,
            dtype,
            redop: collective.reduces.then_some(redop),
            root: collective.rooted.then_some(root),
            count,
            traffic,
        })
    }

    /// An alltoallv of `traffic`.
    ///
    /// # Errors
    /// [`CallError::TooSmall`] where nothing is sent at all.
    pub fn of_traffic(traffic: Arc<Traffic>, dtype: DataType) -> Result<Self, CallError> {
        if traffic.is_empty() {
            return Err(CallError::TooSmall { least_bytes: 16 });
        }
        let (n_ranks, n) = (traffic.n_ranks(), u64::from(traffic.n_ranks()));
        let count = traffic.busiest_bytes() / dtype.bytes() / n;
        let collective = Collective::of(super::Kind::Alltoallv);
        Ok(Self { collective, n_ranks, dtype, redop: None, root: None, count, traffic: Some(traffic) })
    }

    /// The buffers of `rank`, and where each byte of its result comes from.
    pub fn shape(&self, rank: u32) -> Shape {
        (self.collective.shape)(self, rank)
    }

    /// Bytes of `count` elements.
    pub fn count_bytes(&self) -> u64 {
        self.count * self.dtype.bytes()
    }

    /// The size column: the larger of the send and the receive buffer of the rank that has the most.
    pub fn size_bytes(&self) -> u64 {
        match (&self.traffic, self.collective.sizing) {
            (Some(traffic), _) => traffic.busiest_bytes(),
            (None, Sizing::Whole) => self.count_bytes(),
            (None, _) => self.count_bytes() * u64::from(self.n_ranks),
        }
    }

    /// What one rank sends to, or receives from, one other; the largest such block where they differ. `None` where
    /// the whole buffer goes everywhere.
    pub fn per_peer_bytes(&self) -> Option<u64> {
        use super::Kind::{AllReduce, Broadcast, Reduce};
        match (self.collective.kind, &self.traffic) {
            (AllReduce | Broadcast | Reduce, _) => None,
            (_, Some(traffic)) => Some(traffic.largest_block()),
            _ => Some(self.count_bytes()),
        }
    }

    /// Bandwidth of the algorithm in bytes a second, for a call that takes `seconds`.
    pub fn alg_bw(&self, seconds: f64) -> f64 {
        let bytes = match self.collective.alg_bytes {
            AlgBytes::Size => self.size_bytes(),
            AlgBytes::OthersBlocks => self.count_bytes() * u64::from(self.n_ranks - 1),
        };
        bytes as f64 / seconds
    }

    /// Bandwidth over the bus in bytes a second; `None` for one rank, which has no bus.
    pub fn bus_bw(&self, seconds: f64) -> Option<f64> {
        Some(self.alg_bw(seconds) * self.collective.bus_factor.of(self.n_ranks)?)
    }

    pub(super) fn root_or_first(&self) -> u32 {
        self.root.unwrap_or(0)
    }
}
