//! What is to be measured: the same for every rank, and part of the document.

use std::sync::Arc;

use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::units::ByteSize;
use serde::{Deserialize, Serialize};

use crate::backend::nccl::Requirement;
use crate::backend::{Pacing, Placement};
use crate::collective::{Call, CallError, Collective, Kind};
use crate::dtype::DataType;
use crate::redop::RedOp;
use crate::traffic::Traffic;

/// What carries the bytes of the host backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Ranks are threads of one process and share its memory
    Shm,
    /// A socket between every two ranks
    Tcp,
    /// An RDMA connection between every two ranks
    Rdma,
    /// What NCCL chooses between GPUs: asked for with --backend nccl
    #[value(skip)]
    Gpu,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The collectives, in the order in which they are measured.
    pub collectives: Vec<Kind>,
    /// Sizes as they were asked for, in bytes; what is measured may be less, by rounding. Empty where a matrix decides.
    pub sizes_bytes: Vec<u64>,
    /// Types of elements.
    pub dtypes: Vec<DataType>,
    /// Reductions, for the collectives that reduce.
    pub redops: Vec<RedOp>,
    /// Roots, for the collectives that have one.
    pub roots: Vec<u32>,
    /// Where results go.
    pub placements: Vec<Placement>,
    /// The number of ranks.
    pub n_ranks: u32,
    /// What carries the bytes.
    pub transport: Transport,
    /// Rounds of each point.
    pub rounds: u32,
    /// Iterations of a round.
    pub iterations: u32,
    /// Calls in an iteration.
    pub calls_per_iteration: u32,
    /// Iterations before the first round of a point, not counted.
    pub warmup_iterations: u32,
    /// When iterations begin.
    pub pacing: Pacing,
    /// Whether the results are checked.
    pub check: bool,
    /// How long a rank waits for another, in seconds.
    pub timeout_seconds: f64,
    /// What every edge between ranks must go over, if that is asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub require_transport: Option<Requirement>,
    /// Whether several ranks may share a GPU: for tests, and no figure means anything then.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub shared_gpu: bool,
    /// How often a round's iterations, recorded as a CUDA graph, are launched; 0: they are no graph.
    #[serde(skip_serializing_if = "is_none", default)]
    pub graph_launches: u32,
    /// Whether the buffers are NCCL's own memory, registered with it.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub registered: bool,
    /// Bytes from each rank (row) to each (column), for an alltoallv.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub matrix_bytes: Option<Vec<Vec<u64>>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

/// One line of the table: a call, and where its result goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The call.
    pub call: Call,
    /// Where the result goes.
    pub placement: Placement,
}

impl Point {
    /// Whether a call leaves another input behind than it found: a reduction in place.
    pub fn consumes_input(&self) -> bool {
        self.call.collective.reduces && self.placement == Placement::InPlace
    }

    /// In words: `all_reduce of 1 MiB, float sum, in place`.
    pub fn describe(&self) -> String {
        let call = &self.call;
        let redop = call.redop.map_or(String::new(), |redop| format!(" {}", redop.name()));
        let root = call.root.map_or(String::new(), |root| format!(", root {root}"));
        let place = if self.placement == Placement::InPlace { ", in place" } else { "" };
        let (name, size) = (call.collective.name, ByteSize(call.size_bytes()));
        format!("{name} of {size}, {}{redop}{root}{place}", call.dtype.name())
    }
}

/// The largest send and receive buffer that `rank` has in any of `points`, in bytes.
pub fn largest_buffers(points: &[Point], rank: u32) -> (u64, u64) {
    let larger = |(send, recv): (u64, u64), point: &Point| {
        let shape = point.call.shape(rank);
        (send.max(shape.send_bytes), recv.max(shape.recv_bytes))
    };
    points.iter().fold((0, 0), larger)
}

impl Plan {
    /// Every point in the order in which they are measured: sizes rise fastest, and a size is measured out of place
    /// and then in place. Of several collectives or types each has the sizes that do not round to nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] where a size rounds to nothing, or a collective does not take this number of ranks.
    pub fn points(&self) -> Result<Vec<Point>> {
        let mut points = Vec::new();
        for kind in &self.collectives {
            let collective = Collective::of(*kind);
            for dtype in &self.dtypes {
                for (redop, root) in self.variants(collective) {
                    for call in self.calls(collective, *dtype, redop, root)? {
                        points.extend(self.placed(call));
                    }
                }
            }
        }
        Ok(points)
    }

    /// Reductions and roots where they matter; one of each where they don't.
    fn variants(&self, collective: &Collective) -> Vec<(RedOp, u32)> {
        let redops = if collective.reduces { &self.redops[..] } else { &self.redops[..1] };
        let roots = if collective.rooted { &self.roots[..] } else { &self.roots[..1] };
        redops.iter().flat_map(|redop| roots.iter().map(|root| (*redop, *root))).collect()
    }

    fn calls(
        &self,
        collective: &'static Collective,
        dtype: DataType,
        redop: RedOp,
        root: u32,
    ) -> Result<Vec<Call>> {
        if let Some(rows) = &self.matrix_bytes {
            let call = Call::of_traffic(Arc::new(Traffic::from_rows(rows)), dtype);
            return Ok(vec![call.map_err(|why| refused(collective, self, dtype, 0, why))?]);
        }
        let call = |size: &u64| Call::new(collective, self.n_ranks, dtype, redop, root, *size);
        let too_small = |size: &u64| matches!(call(size), Err(CallError::TooSmall { .. }));
        // Of several collectives or types each begins where it moves something; one that never does is refused.
        let of_several = self.collectives.len() * self.dtypes.len() > 1;
        let one_is_left = self.sizes_bytes.iter().any(|size| !too_small(size));
        let sizes = self.sizes_bytes.iter().filter(|size| !(of_several && one_is_left && too_small(size)));
        sizes.map(|size| call(size).map_err(|why| refused(collective, self, dtype, *size, why))).collect()
    }

    /// Out of place always has a meaning; in place where the collective has, and where the input that a call leaves
    /// behind is not the next call's.
    fn placed(&self, call: Call) -> impl Iterator<Item = Point> {
        let has_place = call.shape(0).in_place.is_some();
        let repeats = call.collective.reduces && self.calls_per_iteration > 1;
        let makes_sense =
            move |placement: &Placement| *placement == Placement::OutOfPlace || (has_place && !repeats);
        let placements: Vec<Placement> = self.placements.iter().copied().filter(makes_sense).collect();
        placements.into_iter().map(move |placement| Point { call: call.clone(), placement })
    }
}

fn refused(collective: &Collective, plan: &Plan, dtype: DataType, size: u64, why: CallError) -> Error {
    let (name, n, dtype) = (collective.name, plan.n_ranks, dtype.name());
    match why {
        CallError::TooSmall { least_bytes } => Error::new(
            ErrorKind::Usage,
            format!(
                "{name} of {} over {n} ranks moves nothing: it rounds to 0 elements of {dtype}",
                ByteSize(size)
            ),
        )
        .hint(format!("begin with {least_bytes} or more: -b {least_bytes}")),
        CallError::NotAPowerOfTwo => {
            Error::new(ErrorKind::Usage, format!("{name} needs a power of two of ranks, and there are {n}"))
                .hint("leave it out of --op, or choose another --ranks")
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn plan(words: &[&str]) -> Plan {
        Plan {
            collectives: words.iter().map(|word| Collective::named(word).unwrap().kind).collect(),
            sizes_bytes: vec![1024, 2048],
            dtypes: vec![DataType::Float],
            redops: vec![RedOp::Sum],
            roots: vec![0],
            placements: vec![Placement::OutOfPlace, Placement::InPlace],
            n_ranks: 2,
            transport: Transport::Shm,
            rounds: 3,
            iterations: 4,
            calls_per_iteration: 1,
            warmup_iterations: 1,
            pacing: Pacing::Pipelined,
            check: true,
            timeout_seconds: 20.0,
            require_transport: None,
            shared_gpu: false,
            graph_launches: 0,
            registered: false,
            matrix_bytes: None,
        }
    }

    fn described(plan: &Plan) -> Vec<String> {
        plan.points().unwrap().iter().map(Point::describe).collect()
    }

    #[test]
    fn sizes_rise_and_placements_alternate() {
        assert_eq!(
            described(&plan(&["all_reduce", "alltoall"])),
            [
                "all_reduce of 1 KiB, float sum",
                "all_reduce of 1 KiB, float sum, in place",
                "all_reduce of 2 KiB, float sum",
                "all_reduce of 2 KiB, float sum, in place",
                "alltoall of 1 KiB, float",
                "alltoall of 2 KiB, float",
            ]
        );
    }

    #[test]
    fn reductions_and_roots_multiply_only_where_they_matter() {
        let mut plan = plan(&["broadcast", "reduce", "all_gather"]);
        plan.redops = RedOp::ALL.to_vec();
        plan.roots = vec![0, 1];
        plan.placements = vec![Placement::OutOfPlace];
        plan.sizes_bytes = vec![64];
        let count = |name: &str| described(&plan).iter().filter(|text| text.starts_with(name)).count();
        assert_eq!((count("broadcast"), count("reduce "), count("all_gather")), (2, 10, 1));
    }

    #[test]
    fn several_calls_in_place_would_reduce_what_was_reduced() {
        let mut plan = plan(&["all_reduce", "all_gather"]);
        plan.calls_per_iteration = 2;
        let in_place = |name: &str| {
            described(&plan).iter().any(|text| text.starts_with(name) && text.ends_with("in place"))
        };
        assert!(!in_place("all_reduce") && in_place("all_gather"));
    }

    #[test]
    fn what_moves_nothing_is_refused_with_the_least_that_does() {
        let mut plan = plan(&["alltoall"]);
        plan.sizes_bytes = vec![16];
        let error = plan.points().unwrap_err();
        assert_eq!(
            error.what,
            "alltoall of 16 B over 2 ranks moves nothing: it rounds to 0 elements of float"
        );
        assert_eq!(error.hint.unwrap(), "begin with 32 or more: -b 32");
        plan.collectives = vec![Kind::Hypercube];
        plan.n_ranks = 3;
        assert!(plan.points().unwrap_err().what.contains("power of two"));
    }

    #[test]
    fn of_several_collectives_each_begins_where_it_moves_something() {
        let mut plan = plan(&["all_reduce", "alltoall"]);
        plan.placements = vec![Placement::OutOfPlace];
        plan.sizes_bytes = vec![8, 32];
        assert_eq!(
            described(&plan),
            ["all_reduce of 8 B, float sum", "all_reduce of 32 B, float sum", "alltoall of 32 B, float"]
        );
        plan.sizes_bytes = vec![8];
        assert!(plan.points().unwrap_err().what.starts_with("alltoall of 8 B over 2 ranks moves nothing"));
    }

    #[test]
    fn a_matrix_takes_the_place_of_sizes() {
        let mut plan = plan(&["alltoallv"]);
        plan.matrix_bytes = Some(vec![vec![0, 160], vec![32, 0]]);
        plan.sizes_bytes = Vec::new();
        assert_eq!(described(&plan), ["alltoallv of 160 B, float"]);
    }
}
