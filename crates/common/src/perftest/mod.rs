//! perftest's wire protocol, as `ib_write_bw` and `ib_write_lat` speak it: what is in the messages, and which versions
//! can be talked to. The facts were taken from runs against releases 4.4 to 26.04; `docs/wire-protocol.md` has the order.
//!
//! There is no framing: both ends know from their own options what comes next and how long it is, and each message has
//! to arrive whole. So a message is one write, and nothing here reads more than it was promised.

mod channel;
mod key;
mod leave;
mod report;
mod system;
mod version;

pub use channel::{Leave, PerftestChannel};
pub use key::{Key, LONG_KEY_LEN, SHORT_KEY_LEN};
pub use leave::with_repeats;
pub use report::{FIELD_LEN, Report};
pub use system::{MTU_LEN, NUMBER_LEN, decode_mtu, decode_number, encode_mtu, encode_number};
pub use version::{Version, announcement, announcement_of, linkproof_in, plain};
