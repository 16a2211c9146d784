//! What a subcommand came to: a text for people, a document for programs, and what makes the exit status.

use linkproof_common::error::{Error, ExitStatus, Result};
use linkproof_common::report::{JsonTarget, Layout, Verdict, timestamp, write_document};
use serde::Serialize;

use crate::output::{TOOL, fail, fail_with, print};

/// What came of it.
pub struct Done<T> {
    /// For people.
    pub text: String,
    /// For programs.
    pub body: T,
    /// What is not well about it.
    pub failures: Vec<Error>,
}

/// What all documents have around their body.
#[derive(Serialize)]
struct Document<T> {
    schema: &'static str,
    tool: &'static str,
    version: &'static str,
    command: Vec<String>,
    made: String,
    #[serde(flatten)]
    body: T,
    verdict: Verdict,
}

/// Shows what came of it, or why nothing did, and writes the document of the shape `schema` where one is wanted.
pub fn finish<T: Serialize>(
    schema: &'static str,
    result: Result<Done<T>>,
    json: Option<&JsonTarget>,
) -> ExitStatus {
    let done = match result {
        Ok(done) => done,
        Err(error) => return fail_with(schema, error, json),
    };
    let shown = if matches!(json, Some(JsonTarget::Stdout)) { Ok(()) } else { print(&done.text) };
    // All are shown; they share their exit status.
    let status = done.failures.iter().map(fail).fold(ExitStatus::Good, |_, status| status);
    let document = Document {
        schema,
        tool: TOOL,
        version: env!("CARGO_PKG_VERSION"),
        command: std::env::args().collect(),
        made: timestamp(),
        body: done.body,
        verdict: Verdict { ok: done.failures.is_empty(), failures: done.failures },
    };
    let written = json.map_or(Ok(()), |target| write_document(&document, target, Layout::Pretty));
    match shown.and(written) {
        Ok(()) => status,
        Err(error) => fail(&error),
    }
}
