// All targets, for fuzz_targets/.

mod results;
mod targets;

pub use results::{documents, imports};
pub use targets::{frames, preamble, size};
