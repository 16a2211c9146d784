//! What `main` does: from the words of the command line to an exit status.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use linkproof_common::args::{Parse, parse_knowing};
use linkproof_common::compare::Verdict;
use linkproof_common::error::{Error, ErrorKind, ExitStatus, Result, show_io_error};
use linkproof_common::report::{JsonTarget, Layout, write_document};

use crate::args::{Args, BaselineCommand, Command, ImportArgs, JudgementArgs};
use crate::arm::{Arm, with_distinct_labels};
use crate::done::finish;
use crate::judge::{Pair, Wishes};
use crate::output::{fail, fail_with, note, print};
use crate::show::{Compared, html, json, markdown, text};
use crate::{baseline, fit, fleet, import, likeness, training, words};

/// Parses the command line, compares, and shows what came of it.
pub fn main() -> ExitCode {
    let argv: Vec<OsString> = std::env::args_os().collect();
    let status = match parse_knowing::<Args>(argv.clone(), |_| None) {
        Ok(Parse::Run(parsed)) => run(&parsed.args),
        Ok(Parse::Text(text)) => print(&text).map_or_else(|error| fail(&error), |()| ExitStatus::Good),
        Err(error) => fail_with(json::SCHEMA, error, JsonTarget::from_unparsed(&argv).as_ref()),
    };
    ExitCode::from(status as u8)
}

fn run(args: &Args) -> ExitStatus {
    let json = |wish: &Option<Option<PathBuf>>| JsonTarget::from_option(wish.as_ref());
    match &args.command {
        None => run_comparison(args),
        Some(Command::Import(args)) => show_text(import(args)),
        Some(Command::Fit(args)) => finish(fit::SCHEMA, fit::fit(args), json(&args.json).as_ref()),
        Some(Command::Steps(args)) => {
            finish(training::STEPS_SCHEMA, training::steps(args), json(&args.json).as_ref())
        }
        Some(Command::Value(args)) => {
            finish(training::VALUE_SCHEMA, Ok(training::value(args)), json(&args.json).as_ref())
        }
        Some(Command::Baseline(BaselineCommand::Save(args))) => show_text(baseline::save(args)),
        Some(Command::Baseline(BaselineCommand::Check(args))) => {
            finish(baseline::CHECK_SCHEMA, baseline::check(args), json(&args.json).as_ref())
        }
        Some(Command::Fleet(args)) => finish(fleet::SCHEMA, fleet::fleet(args), json(&args.json).as_ref()),
    }
}

fn show_text(text: Result<String>) -> ExitStatus {
    match text.and_then(|text| print(&text)) {
        Ok(()) => ExitStatus::Good,
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
        Err(error) => fail_with(json::SCHEMA, error, json.as_ref()),
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
    let page = args.output.html.as_ref().map_or(Ok(()), |path| write_page(path, compared));
    match shown.and(written).and(page) {
        Ok(()) => status,
        Err(error) => fail(&error),
    }
}

fn write_page(path: &Path, compared: &Compared) -> Result<()> {
    std::fs::write(path, html::render(compared)).map_err(|error| {
        let name = words::printable(&path.display().to_string());
        Error::new(ErrorKind::Output, format!("cannot write {name}: {}", show_io_error(&error)))
    })
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
