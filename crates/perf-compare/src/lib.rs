//! Results compared: from files to arms, from arms to rows, from rows to a verdict.
//!
//! ```text
//! files → Recording → Arm → checks → Comparison → text | JSON | Markdown | HTML
//!  bytes   points,    runs   what     common::compare
//!          bounded    in     differs
//!                     order
//! ```
//!
//! How two arms are judged is in [`linkproof_common::compare`], the same for every tool. What comes from a file may have
//! been written by anybody: its size is bounded, its text is shown with control characters escaped ([`words`]), and what
//! is not understood is an error that names the line.

pub mod app;
pub mod args;
pub mod arm;
pub mod baseline;
pub mod done;
pub mod fit;
pub mod fleet;
pub mod import;
pub mod judge;
pub mod likeness;
pub mod output;
pub mod recording;
pub mod show;
pub mod source;
pub mod steps;
pub mod training;
pub mod words;
