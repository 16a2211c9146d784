//! libibverbs' functions under their C names. Thin: each turns C's arguments into ours and our failures into C's.
//!
//! The contract of each function is that of its manual page; what it asks of its caller is what C asks.
#![allow(clippy::missing_safety_doc, reason = "the contract is the manual page's")]

mod devices;
mod objects;
mod unsupported;
mod waiting;
mod words;

pub(crate) use objects::create_qp_ex;
