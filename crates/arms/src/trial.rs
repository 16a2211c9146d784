//! All runs of all arms.

use std::path::{Path, PathBuf};

use linkproof_common::error::{Error, ErrorKind, Result, show_io_error};
use linkproof_common::interrupt;
use serde_json::Value;

use crate::arm::Arm;
use crate::child;
use crate::line::Line;
use crate::schedule::in_turn;
use crate::step::Lockstep;

/// What the arms are ways of using.
#[derive(Debug)]
pub struct Tool<'a, P> {
    /// The program to start.
    pub program: &'a Path,
    /// The command line of each run, but for what its arm adds.
    pub line: Line,
    /// What the document of a run proves of its arm, in words: what carried the bytes. An error where it proves
    /// another thing, or nothing.
    pub prove: P,
}

/// Where this program is, to start it again.
///
/// # Errors
/// [`ErrorKind::RunLost`] where the system does not say.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| {
        let what = format!("cannot find this program to start it again: {}", show_io_error(&error));
        Error::new(ErrorKind::RunLost, what)
    })
}

/// What became of one arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// Which.
    pub arm: Arm,
    /// What its runs have proven of it.
    pub proof: Option<String>,
    /// The document of each good run, in order; empty in a process that does not lead.
    pub runs: Vec<Value>,
    /// Why it was given up.
    pub failure: Option<Error>,
}

/// Is told as the trial goes on.
pub trait Observer {
    /// Run `index` of `of`, counted from 0, begins: it is `arm`'s.
    fn begins(&mut self, arm: &Arm, index: usize, of: usize);
}

/// Runs every one of `arms` so many `rounds`, in turn. An arm that fails is not run again, and the others go on.
///
/// # Errors
/// In the second place, beside what was measured until then: [`ErrorKind::Interrupted`], and what [`Lockstep`] gives.
pub fn run<P>(
    tool: &Tool<'_, P>,
    arms: &[Arm],
    rounds: u32,
    step: &mut dyn Lockstep,
    observer: &mut dyn Observer,
) -> (Vec<Tried>, Result<()>)
where
    P: Fn(&Value) -> Result<String>,
{
    let begun = |arm: &Arm| Tried { arm: arm.clone(), proof: None, runs: Vec::new(), failure: None };
    let mut tried: Vec<Tried> = arms.iter().map(begun).collect();
    let of = arms.len() * rounds as usize;
    let mut go = || {
        for (index, arm) in in_turn(arms.len(), rounds).enumerate() {
            let tried = &mut tried[arm];
            if tried.failure.is_some() {
                continue;
            }
            if step.leads() {
                observer.begins(&tried.arm, index, of);
            }
            tried.once_more(tool, step)?;
        }
        Ok(())
    };
    let ended = go();
    (tried, ended)
}

impl Tried {
    fn once_more<P>(&mut self, tool: &Tool<'_, P>, step: &mut dyn Lockstep) -> Result<()>
    where
        P: Fn(&Value) -> Result<String>,
    {
        let ended = child::run(tool.program, &tool.line, &self.arm).and_then(|output| match step.leads() {
            true => self.take(child::document(&self.arm, &output)?, &tool.prove),
            false => child::succeeded(&self.arm, &output),
        });
        let own = ended
            .err()
            .map(|error| error.fact("arm", format!("{} ({})", self.arm.name, self.arm.describe())));
        // A run that was asked to stop is no failure of its arm.
        let stopped = interrupt::requested().then(|| Error::new(ErrorKind::Interrupted, "interrupted"));
        match step.any(stopped.or(own))? {
            Some(error) if error.kind == ErrorKind::Interrupted => Err(error),
            failure => {
                self.failure = failure;
                Ok(())
            }
        }
    }

    fn take(&mut self, document: Value, prove: impl Fn(&Value) -> Result<String>) -> Result<()> {
        if let Some(failure) = document["verdict"]["failures"].get(0) {
            return Err(serde_json::from_value(failure.clone()).unwrap_or_else(|_| unreadable(failure)));
        }
        let proof = prove(&document)?;
        match &self.proof {
            Some(before) if *before != proof => {
                return Err(Error::new(
                    ErrorKind::RequirementNotMet,
                    format!("arm {} is not the same thing in each run", self.arm.name),
                )
                .fact("before", before)
                .fact("now", proof));
            }
            _ => self.proof = Some(proof),
        }
        self.runs.push(document);
        Ok(())
    }
}

fn unreadable(failure: &Value) -> Error {
    Error::new(ErrorKind::RunLost, "a run failed, and how can't be read").fact("failure", failure)
}
