//! A communicator: made with a deadline, and given up where it does not come about.
#![allow(unsafe_code, reason = "NCCL is a C library")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use linkproof_common::cuda::{GpuContext, Stream};
use linkproof_common::error::{Error, ErrorKind, Result};
use linkproof_common::units::show_duration;
use nccl_sys as sys;

use super::library::Library;
use super::ras;
use crate::collective::{Call, Kind};
use crate::dtype::DataType;
use crate::group::{Alarm, Group};
use crate::redop::RedOp;

/// How often a wait for the library looks whether the run is over.
const LOOK_AROUND: Duration = Duration::from_millis(20);

/// One rank's end of it.
pub(super) struct Comm {
    library: &'static Library,
    n_ranks: u32,
    handle: Arc<Handle>,
}

/// The communicator, which another thread may abort while a call on it does not return.
pub(super) struct Handle {
    library: &'static Library,
    raw: sys::ncclComm_t,
    /// Destroyed or aborted, of which one happens, once.
    over: Mutex<bool>,
}

// SAFETY: a communicator is used by its owner's thread, but for ncclCommAbort, which is made to be called beside that.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Ends what is outstanding, which may never end by itself: a kernel that waits for a rank that is gone, and the
    /// calls that wait for a place behind it.
    pub(super) fn abort(&self) {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *over, true) {
            // SAFETY: the communicator is ours, and neither destroyed nor aborted yet.
            unsafe { (self.library.table().ncclCommAbort)(self.raw) };
        }
    }

    /// The communicator, for calls that its owner makes.
    pub(super) fn raw(&self) -> sys::ncclComm_t {
        self.raw
    }

    /// Has `act` use the communicator, unless it is destroyed or aborted.
    pub(super) fn while_alive(&self, act: impl FnOnce(&'static Library, sys::ncclComm_t)) {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        if !*over {
            act(self.library, self.raw);
        }
    }

    fn destroy(&self) {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *over, true) {
            // SAFETY: as above.
            unsafe { (self.library.table().ncclCommDestroy)(self.raw) };
        }
    }
}

/// The buffers of a call, on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    pub(super) send: u64,
    pub(super) recv: u64,
}

impl Comm {
    /// Joins the ranks of `group`, each on the GPU of its `context`. The identity travels through the group.
    ///
    /// Calls on a communicator that does not block go through a thread of NCCL's, which small messages feel. So it
    /// blocks, and the call that may wait for ever, this one, is made by a thread that is left behind if it does.
    ///
    /// # Errors
    /// The library's, with its words; [`ErrorKind::PeerTimeout`] where it does not come about within `limit`.
    pub(super) fn join(
        library: &'static Library,
        group: &mut dyn Group,
        context: &Arc<GpuContext>,
        alarm: &Alarm,
        limit: Duration,
    ) -> Result<Self> {
        let id = exchange_id(library, group)?;
        let (rank, n_ranks) = (group.rank(), group.n_ranks());
        let (tell, told) = std::sync::mpsc::channel();
        let context = Arc::clone(context);
        std::thread::spawn(move || {
            let joined = context.bind().and_then(|()| Self::init(library, id, rank, n_ranks));
            // Nobody listens any more where it took too long.
            let _ = tell.send(joined);
        });
        let deadline = Instant::now() + limit;
        loop {
            if let Ok(joined) = told.recv_timeout(LOOK_AROUND) {
                return joined;
            }
            alarm.check()?;
            if Instant::now() >= deadline {
                let what = format!("NCCL has not brought the ranks together within {}", show_duration(limit));
                return Err(ras::asked_about(Error::new(ErrorKind::PeerTimeout, what)).hint(
                    "see that it uses an interface that reaches the others: NCCL_SOCKET_IFNAME, NCCL_IB_HCA",
                ));
            }
        }
    }

    fn init(library: &'static Library, id: sys::ncclUniqueId, rank: u32, n_ranks: u32) -> Result<Self> {
        let mut config = sys::ncclConfig_t { blocking: 1, ..Default::default() };
        let mut raw = std::ptr::null_mut();
        let (rank, count) = (rank.cast_signed(), n_ranks.cast_signed());
        // SAFETY: the pointers are this function's, and NCCL has copied what it needs when the call returns.
        let result =
            unsafe { (library.table().ncclCommInitRankConfig)(&mut raw, count, id, rank, &mut config) };
        library.check(result, "ncclCommInitRankConfig")?;
        let handle = Arc::new(Handle { library, raw, over: Mutex::new(false) });
        Ok(Self { library, n_ranks, handle })
    }

    /// The failure of what runs in the background, if there is one.
    ///
    /// # Errors
    /// That failure.
    pub(super) fn ensure_well(&self) -> Result<()> {
        let mut state = sys::ncclSuccess;
        // SAFETY: the communicator is ours.
        let result = unsafe { (self.library.table().ncclCommGetAsyncError)(self.handle.raw, &mut state) };
        self.library.check(result, "ncclCommGetAsyncError")?;
        self.library.check(state, "the collective")
    }

    /// The library that it is of.
    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    /// What another thread may abort.
    pub(super) fn handle(&self) -> Arc<Handle> {
        Arc::clone(&self.handle)
    }

    /// Puts `call` into `stream`.
    ///
    /// # Errors
    /// The library's.
    ///
    /// # Safety
    /// The buffers are of this rank's shape of the call, in the context's memory, and nothing else uses them until the
    /// stream has come to the end of it.
    pub(super) unsafe fn enqueue(&self, call: &Call, rank: u32, at: Buffers, stream: &Stream) -> Result<()> {
        // SAFETY: as the caller says.
        let result = unsafe { self.enqueue_raw(call, rank, at, stream.raw()) };
        self.library.check(result, call.collective.name)
    }

    unsafe fn enqueue_raw(
        &self,
        call: &Call,
        rank: u32,
        at: Buffers,
        stream: sys::cudaStream_t,
    ) -> sys::ncclResult_t {
        let t = self.library.table();
        let (send, recv) = (at.send as *const std::ffi::c_void, at.recv as *mut std::ffi::c_void);
        let (count, dtype, comm) = (call.count as usize, dtype(call.dtype), self.handle.raw);
        let op = call.redop.map_or(sys::ncclSum, redop);
        let root = call.root.unwrap_or(0).cast_signed();
        // SAFETY: as the caller says; counts and types are those that the buffers were made for.
        unsafe {
            match (call.collective.kind, t.ncclAlltoAll, t.ncclGather, t.ncclScatter) {
                (Kind::AllReduce, ..) => (t.ncclAllReduce)(send, recv, count, dtype, op, comm, stream),
                (Kind::AllGather, ..) => (t.ncclAllGather)(send, recv, count, dtype, comm, stream),
                (Kind::ReduceScatter, ..) => {
                    (t.ncclReduceScatter)(send, recv, count, dtype, op, comm, stream)
                }
                (Kind::Broadcast, ..) => (t.ncclBroadcast)(send, recv, count, dtype, root, comm, stream),
                (Kind::Reduce, ..) => (t.ncclReduce)(send, recv, count, dtype, op, root, comm, stream),
                (Kind::Alltoall, Some(alltoall), ..) => alltoall(send, recv, count, dtype, comm, stream),
                (Kind::Gather, _, Some(gather), _) => gather(send, recv, count, dtype, root, comm, stream),
                (Kind::Scatter, .., Some(scatter)) => scatter(send, recv, count, dtype, root, comm, stream),
                (Kind::Hypercube, ..) => self.hypercube(call, rank, at, stream),
                _ => self.messages(call, rank, at, stream),
            }
        }
    }

    /// What has no call of its own, as a group of sends and receives: what each wants from whom says the shapes.
    unsafe fn messages(
        &self,
        call: &Call,
        rank: u32,
        at: Buffers,
        stream: sys::cudaStream_t,
    ) -> sys::ncclResult_t {
        use crate::collective::Source;
        let t = self.library.table();
        let dtype_size = call.dtype.bytes();
        let from_here = |peer: u32| {
            let parts = call.shape(peer).parts.into_iter();
            parts.filter_map(move |part| match part.source {
                Source::Rank { rank: from, offset } if from == rank => Some((offset, part.bytes)),
                _ => None,
            })
        };
        // SAFETY: as the caller says.
        unsafe {
            let mut result = (t.ncclGroupStart)();
            let mut keep = |now| {
                if result == sys::ncclSuccess {
                    result = now;
                }
            };
            for peer in 0..self.n_ranks {
                for (offset, bytes) in from_here(peer).filter(|(_, bytes)| *bytes > 0) {
                    let from = (at.send + offset) as *const std::ffi::c_void;
                    let count = (bytes / dtype_size) as usize;
                    keep((t.ncclSend)(
                        from,
                        count,
                        dtype(call.dtype),
                        peer.cast_signed(),
                        self.handle.raw,
                        stream,
                    ));
                }
            }
            for part in call.shape(rank).parts.iter().filter(|part| part.bytes > 0) {
                if let Source::Rank { rank: from, .. } = part.source {
                    let to = (at.recv + part.at) as *mut std::ffi::c_void;
                    let count = (part.bytes / dtype_size) as usize;
                    keep((t.ncclRecv)(
                        to,
                        count,
                        dtype(call.dtype),
                        from.cast_signed(),
                        self.handle.raw,
                        stream,
                    ));
                }
            }
            keep((t.ncclGroupEnd)());
            result
        }
    }

    /// Doubling what a rank has, pair by pair; a group of one send and one receive in each step.
    unsafe fn hypercube(
        &self,
        call: &Call,
        rank: u32,
        at: Buffers,
        stream: sys::cudaStream_t,
    ) -> sys::ncclResult_t {
        let t = self.library.table();
        let block = call.count_bytes();
        let place = |rank: u32| at.recv + u64::from(rank) * block;
        let (comm, dtype) = (self.handle.raw, dtype(call.dtype));
        let mut result = sys::ncclSuccess;
        let mut exchange = |from: u64, to: u64, count: u64, peer: u32| {
            let (from, to) = (from as *const std::ffi::c_void, to as *mut std::ffi::c_void);
            let (count, peer) = (count as usize, peer.cast_signed());
            // SAFETY: as the caller says.
            let steps = unsafe {
                [
                    (t.ncclGroupStart)(),
                    (t.ncclSend)(from, count, dtype, peer, comm, stream),
                    (t.ncclRecv)(to, count, dtype, peer, comm, stream),
                    (t.ncclGroupEnd)(),
                ]
            };
            result = std::iter::once(result).chain(steps).find(|r| *r != sys::ncclSuccess).unwrap_or(result);
        };
        // A rank's own block is sent to itself where it is not in its place.
        if at.send != place(rank) {
            exchange(at.send, place(rank), call.count, rank);
        }
        for bit in 0..self.n_ranks.trailing_zeros() {
            let peer = rank ^ (1 << bit);
            let range = |rank: u32| place(rank >> bit << bit);
            exchange(range(rank), range(peer), call.count << bit, peer);
        }
        result
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        self.handle.destroy();
    }
}

/// Rank 0 makes the identity, and the group carries it.
fn exchange_id(library: &Library, group: &mut dyn Group) -> Result<sys::ncclUniqueId> {
    let mut id = sys::ncclUniqueId { internal: [0; sys::NCCL_UNIQUE_ID_BYTES] };
    if group.rank() == 0 {
        // SAFETY: `id` is ours.
        library.check(unsafe { (library.table().ncclGetUniqueId)(&mut id) }, "ncclGetUniqueId")?;
    }
    let own: Vec<u8> = id.internal.iter().map(|byte| byte.cast_unsigned()).collect();
    let all = group.all_gather(&own)?;
    let first = all
        .first()
        .filter(|blob| blob.len() == sys::NCCL_UNIQUE_ID_BYTES)
        .ok_or_else(|| Error::new(ErrorKind::Protocol, "rank 0 sent no identity for the communicator"))?;
    for (to, from) in id.internal.iter_mut().zip(first) {
        *to = from.cast_signed();
    }
    Ok(id)
}

fn dtype(dtype: DataType) -> sys::ncclDataType_t {
    match dtype {
        DataType::Int8 => sys::ncclInt8,
        DataType::Uint8 => sys::ncclUint8,
        DataType::Int32 => sys::ncclInt32,
        DataType::Uint32 => sys::ncclUint32,
        DataType::Int64 => sys::ncclInt64,
        DataType::Uint64 => sys::ncclUint64,
        DataType::Half => sys::ncclFloat16,
        DataType::Float => sys::ncclFloat32,
        DataType::Double => sys::ncclFloat64,
        DataType::Bfloat16 => sys::ncclBfloat16,
        DataType::F8e4m3 => sys::ncclFloat8e4m3,
        DataType::F8e5m2 => sys::ncclFloat8e5m2,
    }
}

fn redop(redop: RedOp) -> sys::ncclRedOp_t {
    match redop {
        RedOp::Sum => sys::ncclSum,
        RedOp::Prod => sys::ncclProd,
        RedOp::Max => sys::ncclMax,
        RedOp::Min => sys::ncclMin,
        RedOp::Avg => sys::ncclAvg,
    }
}
