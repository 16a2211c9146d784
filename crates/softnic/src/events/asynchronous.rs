//! Asynchronous events.

use rdma_sys as sys;

use super::pipe::{Record, read_record};
use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::errno::Result;
use crate::fabric::lock;
use crate::qp::QueuePair;

/// An event, as it goes through the pipe of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AsyncEvent {
    /// One of the `IBV_EVENT_*` values.
    pub(crate) event_type: u32,
    pub(crate) subject: Subject,
}

/// What an event is about; an object with what tells it from others that had its index before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    QueuePair { index: u32, generation: u32 },
    CompletionQueue { index: u32, generation: u32 },
    Port(u32),
}

impl AsyncEvent {
    pub(crate) fn to_record(self) -> Record {
        let [kind, index, generation] = match self.subject {
            Subject::QueuePair { index, generation } => [0, index, generation],
            Subject::CompletionQueue { index, generation } => [1, index, generation],
            Subject::Port(number) => [2, number, 0],
        };
        [self.event_type, kind, index, generation]
    }

    fn of_record([event_type, kind, index, generation]: Record) -> Self {
        let subject = match kind {
            0 => Subject::QueuePair { index, generation },
            1 => Subject::CompletionQueue { index, generation },
            _ => Subject::Port(index),
        };
        Self { event_type, subject }
    }
}

/// Waits for an event of a device, and counts it as taken.
///
/// # Errors
/// `EAGAIN` where the program does not want to wait; what else the kernel has to say.
pub(crate) fn next_event(context: &Context) -> Result<sys::ibv_async_event> {
    loop {
        let event = AsyncEvent::of_record(read_record(context.events.read_fd())?);
        // An event of an object that has gone meanwhile is nobody's.
        if let Some(element) = element(context, event.subject) {
            return Ok(sys::ibv_async_event { element, event_type: event.event_type });
        }
    }
}

fn element(context: &Context, subject: Subject) -> Option<sys::ibv_async_event__bindgen_ty_1> {
    let process = context.process;
    Some(match subject {
        Subject::Port(number) => sys::ibv_async_event__bindgen_ty_1 { port_num: number as i32 },
        Subject::QueuePair { index, generation } => {
            let live = lock(&process.live_qps);
            let qp = *live.get(&index)? as *mut sys::ibv_qp;
            // SAFETY: a queue pair is taken from the list before it goes.
            let pair = unsafe { QueuePair::of(qp) };
            (pair.generation() == generation).then(|| pair.events.take())?;
            sys::ibv_async_event__bindgen_ty_1 { qp }
        }
        Subject::CompletionQueue { index, generation } => {
            let live = lock(&process.live_cqs);
            let cq = *live.get(&index)? as *mut sys::ibv_cq;
            // SAFETY: as above.
            let queue = unsafe { CompletionQueue::of(cq) };
            (queue.generation() == generation).then(|| queue.async_events.take())?;
            sys::ibv_async_event__bindgen_ty_1 { cq }
        }
    })
}

/// Acknowledges an event that was taken.
///
/// # Safety
/// The event came from [`next_event`], and is acknowledged once.
pub(crate) unsafe fn acknowledge(event: &sys::ibv_async_event) {
    // SAFETY: the object of an event can't go before the event is acknowledged; the type tells which it is.
    unsafe {
        match event.event_type {
            sys::IBV_EVENT_CQ_ERR => CompletionQueue::of(event.element.cq).async_events.acknowledge(1),
            sys::IBV_EVENT_QP_FATAL
            | sys::IBV_EVENT_QP_REQ_ERR
            | sys::IBV_EVENT_QP_ACCESS_ERR
            | sys::IBV_EVENT_COMM_EST
            | sys::IBV_EVENT_SQ_DRAINED
            | sys::IBV_EVENT_QP_LAST_WQE_REACHED => QueuePair::of(event.element.qp).events.acknowledge(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_the_pipe() {
        for subject in [
            Subject::QueuePair { index: 5, generation: 9 },
            Subject::CompletionQueue { index: 0, generation: u32::MAX },
            Subject::Port(1),
        ] {
            let event = AsyncEvent { event_type: sys::IBV_EVENT_COMM_EST, subject };
            assert_eq!(AsyncEvent::of_record(event.to_record()), event);
        }
    }
}
