//! What `main` does: from the words of the command line to an exit status.

use std::ffi::OsString;
use std::process::ExitCode;

use linkproof_common::args::{Parse, parse_knowing};
use linkproof_common::compare::Verdict;
use linkproof_common::error::{Error, ErrorKind, ExitStatus, Result};
use linkproof_common::report::{JsonTarget, Layout, write_document};

use crate::args::{Args, Command, FitArgs, ImportArgs, JudgementArgs};
use crate::arm::{Arm, with_distinct_labels};
use crate::judge::{Pair, Wishes};
use crate::output::{fail, fail_with, note, print};
use crate::show::{Compared, json, markdown, text};
use crate::{fit, import, likeness, training, words};

/// Parses the command line, compares, and shows what came of it.
pub fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    let status = match parse_knowing::<Args>(argv.clone(), |_| None) {
        Ok(Parse::Run(parsed)) => run(&parsed.args),
        Ok(Parse::Text(text)) => print(&text).map_or_else(|error| fail(&error), |()| ExitStatus::Good),
        Err(error) => fail_with(error, JsonTarget::from_unparsed(&argv).as_ref()),
    };
    ExitCode::from(status as u8)
}

fn run(args: &Args) -> ExitStatus {
    let done = match &args.command {
        None => return run_comparison(args),
        Some(Command::Import(args)) => import(args),
        Some(Command::Fit(args)) => return run_fit(args),
        Some(Command::Steps(args)) => training::steps(args),
        Some(Command::Value(args)) => Ok(training::value(args)),
    };
    match done.and_then(|text| print(&text)) {
        Ok(()) => ExitStatus::Good,
        Err(error) => fail(&error),
    }
}

fn run_fit(args: &FitArgs) -> ExitStatus {
    let done = fit::fit(args).and_then(|(text, failures)| print(&text).map(|()| failures));
    match done {
        // All are shown; they share their exit status.
        Ok(failures) => failures.iter().map(fail).fold(ExitStatus::Good, |_, status| status),
        Err(error) => fail(&error),
    }
}

/// A recording a line, all or none: half of them would be compared as if they were all.
fn import(args: &ImportArgs) -> Result<String> {
    let mut text = String::new();
    for path in &args.files {
        let recording = import::file(path, args.format, args.op.as_deref())?;
        recording.faults.iter().for_each(|fault| note(&format!("warning: {}: {fault}", recording.source)));
        let line = serde_json::to_string(&recording).map_err(|error| {
            Error::new(ErrorKind::Output, format!("cannot write the recording as JSON: {error}"))
        })?;
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

fn run_comparison(args: &Args) -> ExitStatus {
    let json = JsonTarget::from_option(args.output.json.as_ref());
    match compare(&args.arms, &args.judgement) {
        Ok(compared) => show(&compared, args, json.as_ref()),
        Err(error) => fail_with(error, json.as_ref()),
    }
}

fn compare(words: &[String], wishes: &JudgementArgs) -> Result<Compared> {
    let arms = words.iter().map(|word| Arm::from_word(word)).collect::<Result<Vec<_>>>()?;
    if arms.len() < 2 {
        let what = match arms.first() {
            None => "there is nothing to compare".to_owned(),
            Some(arm) => format!("there is one arm, {}, and nothing to compare it with", arm.label),
        };
        return Err(Error::new(ErrorKind::Usage, what)
            .hint("give two files, or two patterns: perf-compare a='a-*.json' b='b-*.json'"));
    }
    let judgement = Wishes { sequence: wishes.order, threshold: wishes.threshold, primary: wishes.primary };
    likeness::check_names(&arms, &wishes.allow)?;
    Compared::of(with_distinct_labels(arms), judgement, &wishes.allow)
}

fn show(compared: &Compared, args: &Args, json: Option<&JsonTarget>) -> ExitStatus {
    let shown = match json {
        Some(JsonTarget::Stdout) => Ok(()),
        _ if args.output.markdown => print(&markdown::render(compared)),
        _ => print(&text::render(compared, args.output.verbose)),
    };
    warn(compared);
    let failures = failures(&compared.pairs, args.judgement.require_decision);
    failures.iter().for_each(|failure| {
        fail(failure);
    });
    let status = failures.first().map_or(ExitStatus::Good, Error::exit_status);
    let written = json.map_or(Ok(()), |target| {
        write_document(&json::Document::of(compared, failures), target, Layout::Pretty)
    });
    match shown.and(written) {
        Ok(()) => status,
        Err(error) => fail(&error),
    }
}

fn warn(compared: &Compared) {
    let undeclared: Vec<&str> = compared
        .likeness
        .differences
        .iter()
        .filter(|difference| !difference.allowed)
        .map(|difference| difference.name.as_str())
        .collect();
    if !undeclared.is_empty() {
        note(&format!(
            "warning: the arms were measured under conditions that differ: {}",
            undeclared.join(", ")
        ));
        note(
            "what you changed on purpose can be declared with --allow; the rest may be what made the difference",
        );
    }
    compared.likeness.notes.iter().for_each(|text| note(&format!("warning: {text}")));
}

/// What makes the exit status another than 0: an arm that is worse, or, where a decision is required, none.
fn failures(pairs: &[Pair], require_decision: bool) -> Vec<Error> {
    let failure = |pair: &Pair| {
        let judged = &pair.primary.judged;
        let change = words::signed_percent(judged.comparison.relative().0);
        let what = match judged.comparison.verdict {
            Verdict::Worse => format!("{} is worse than {}: {change} %", pair.arm, pair.baseline),
            _ if require_decision && !judged.is_decided() => {
                format!("{} against {} is not decided: {}", pair.arm, pair.baseline, judged.verdict())
            }
            _ => return None,
        };
        Some(Error::new(ErrorKind::RequirementNotMet, what).fact("figure", &pair.primary.of))
    };
    pairs.iter().filter_map(failure).collect()
}
