//! A port that goes down and comes back.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rdma_sys as sys;

use crate::config::{Effect, When};
use crate::context::Context;
use crate::device::{Device, PORT};
use crate::events::{AsyncEvent, Subject};
use crate::fabric::{Process, lock, with_signals_blocked};
use crate::qp::QueuePair;

/// What changes of a device while it is in use.
pub(crate) struct Live {
    active: AtomicBool,
    /// When the last message that was sent has left, by the model; in nanoseconds.
    egress_free: AtomicU64,
    /// Queue pairs that were made on it.
    pub(crate) made_qps: AtomicU32,
    /// Its open contexts, by address.
    contexts: Mutex<Vec<usize>>,
    clock_started: AtomicBool,
}

impl Live {
    pub(crate) fn new(active: bool) -> Self {
        Self {
            active: AtomicBool::new(active),
            egress_free: AtomicU64::new(0),
            made_qps: AtomicU32::new(0),
            contexts: Mutex::default(),
            clock_started: AtomicBool::new(false),
        }
    }
}

impl Device {
    /// Whether messages pass.
    pub(crate) fn is_active(&self) -> bool {
        self.live.active.load(Ordering::Relaxed)
    }

    /// Takes the port for a message of `len` bytes that comes at `now`: when it has left.
    pub(crate) fn departure(&self, now: u64, len: u64) -> u64 {
        let takes = match self.description.model.pace_gbit {
            0 => return now,
            gbit => len * 8 / u64::from(gbit),
        };
        let leave = |free: u64| Some(free.max(now) + takes);
        let before = self.live.egress_free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, leave);
        before.map_or(now, |free| free.max(now) + takes)
    }

    /// Notes a context, which is told of the port's events; faults that come by time begin to run.
    pub(crate) fn opened(&'static self, context: &Context) {
        lock(&self.live.contexts).push(std::ptr::from_ref(context).addr());
        if self.live.clock_started.swap(true, Ordering::Relaxed) {
            return;
        }
        for fault in self.faults.timed() {
            if let (When::After(time), Effect::Down(length)) = (fault.when, fault.effect) {
                self.later(time, move |device| device.go_down(length));
            }
        }
    }

    pub(crate) fn closed(&self, context: &Context) {
        lock(&self.live.contexts).retain(|&known| known != std::ptr::from_ref(context).addr());
    }

    /// Does `what` after `time`, in a thread of its own.
    fn later(&'static self, time: Duration, what: impl FnOnce(&'static Self) + Send + 'static) {
        let run = move || {
            std::thread::sleep(time);
            what(self);
        };
        // Without a thread the fault does not happen, which its test will tell.
        let _ =
            with_signals_blocked(|| std::thread::Builder::new().name("softnic-port".to_owned()).spawn(run));
    }

    /// The port goes down, for `length` if that is given. What is under way is lost, in both directions.
    pub(crate) fn go_down(&'static self, length: Option<Duration>) {
        if !self.live.active.swap(false, Ordering::SeqCst) {
            return;
        }
        self.for_each_qp(QueuePair::shut);
        self.tell(sys::IBV_EVENT_PORT_ERR);
        if let Some(length) = length {
            self.later(length, Self::come_up);
        }
    }

    fn come_up(&'static self) {
        self.live.active.store(true, Ordering::SeqCst);
        self.for_each_qp(QueuePair::reopen);
        self.tell(sys::IBV_EVENT_PORT_ACTIVE);
    }

    fn for_each_qp(&self, what: impl Fn(&QueuePair)) {
        let Ok(process) = Process::get() else { return };
        let qps: Vec<_> = {
            let live = lock(&process.live_qps);
            // SAFETY: a queue pair is taken from the list before it goes; from here on it is kept.
            live.values()
                .map(|&address| unsafe { QueuePair::of(address as *mut sys::ibv_qp) }.keep())
                .collect()
        };
        qps.iter().filter(|qp| std::ptr::eq(qp.device(), self)).for_each(|qp| what(qp));
    }

    fn tell(&self, event_type: u32) {
        let event = AsyncEvent { event_type, subject: Subject::Port(PORT.into()) };
        for &context in lock(&self.live.contexts).iter() {
            // SAFETY: a context is taken from the list before it goes.
            unsafe { &*(context as *const Context) }.events.ring(&event.to_record());
        }
    }

    /// Counts a request: the port may go down by it.
    pub(crate) fn count_request(&'static self) {
        if let Some(Effect::Down(length)) = self.faults.port() {
            self.go_down(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Description, Model};

    #[test]
    fn messages_leave_one_after_the_other_at_the_ports_pace() {
        let mut description = Description::default().devices.remove(0);
        description.model = Model { pace_gbit: 8, ..Model::default() };
        let device = crate::device::test_device(description);
        // 8 Gb/s are a byte in a nanosecond.
        assert_eq!(device.departure(1000, 64), 1064);
        assert_eq!(device.departure(1000, 100), 1164);
        assert_eq!(device.departure(5000, 1), 5001);
    }

    #[test]
    fn without_a_pace_they_leave_at_once() {
        let device = crate::device::test_device(Description::default().devices.remove(0));
        assert_eq!(device.departure(1000, 1 << 20), 1000);
    }
}
