//! Writing in turn where no processor can look at the messages: they lie in a GPU's memory.

use super::{Endpoint, PingPong, Signal};
use crate::error::Result;

/// A ping-pong in which a flag in host memory follows each message on the same queue pair.
///
/// A queue pair's writes are carried out in the order in which they were posted, so that a flag that has arrived says that
/// the peer's adapter has written the message before it. That the message has then left the PCIe bus's buffers, so that
/// a kernel on the GPU would see it, it does not say.
pub struct FlaggedPingPong<W, P> {
    messages: W,
    flags: P,
}

impl<W: Endpoint, P: PingPong> FlaggedPingPong<W, P> {
    /// `messages` and `flags` share a queue pair, the first of each.
    pub fn new(messages: W, flags: P) -> Self {
        Self { messages, flags }
    }
}

impl<W: Endpoint, P: PingPong> PingPong for FlaggedPingPong<W, P> {
    #[inline]
    fn send(&mut self, sequence: u64) -> Result<()> {
        // The flag's completion stands for both.
        self.messages.post_write(0, 0, Signal::None)?;
        self.flags.send(sequence)
    }

    #[inline]
    fn arrived(&mut self, sequence: u64) -> Result<bool> {
        self.flags.arrived(sequence)
    }

    #[inline]
    fn release(&mut self, sequence: u64) -> Result<()> {
        self.flags.release(sequence)
    }

    #[inline]
    fn released(&mut self, sequence: u64) -> Result<bool> {
        self.flags.released(sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// What was posted, in order.
    struct Posted<'a>(&'a RefCell<Vec<&'static str>>);

    impl Endpoint for Posted<'_> {
        fn post_write(&mut self, qp: usize, slot: u64, signal: Signal) -> Result<()> {
            assert_eq!((qp, slot, signal), (0, 0, Signal::None));
            self.0.borrow_mut().push("message");
            Ok(())
        }

        fn poll(&mut self, _: impl FnMut(usize, u32)) -> Result<()> {
            Ok(())
        }
    }

    impl PingPong for Posted<'_> {
        fn send(&mut self, _: u64) -> Result<()> {
            self.0.borrow_mut().push("flag");
            Ok(())
        }

        fn arrived(&mut self, sequence: u64) -> Result<bool> {
            Ok(sequence == 1)
        }

        fn release(&mut self, _: u64) -> Result<()> {
            self.0.borrow_mut().push("release");
            Ok(())
        }

        fn released(&mut self, sequence: u64) -> Result<bool> {
            Ok(sequence == 2)
        }
    }

    #[test]
    fn a_flag_follows_its_message_and_is_what_arrives() {
        let order = RefCell::default();
        let mut path = FlaggedPingPong::new(Posted(&order), Posted(&order));
        path.send(1).unwrap();
        path.release(1).unwrap();
        assert_eq!(*order.borrow(), ["message", "flag", "release"]);
        assert_eq!((path.arrived(1).unwrap(), path.arrived(2).unwrap()), (true, false));
        assert_eq!((path.released(1).unwrap(), path.released(2).unwrap()), (false, true));
    }
}
