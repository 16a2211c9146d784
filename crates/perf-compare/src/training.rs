//! `steps` and `value`: what a link does for training, with the inputs shown.

use std::path::Path;

use linkproof_common::compare::{Comparison, Goal, LEAST_ROUNDS, Order};
use linkproof_common::error::{Error, ErrorKind, Result};
use serde::Serialize;

use crate::args::{StepsArgs, ValueArgs};
use crate::arm::{Sequence, median};
use crate::done::Done;
use crate::show::json::code;
use crate::steps::{Gain, parse, stable};
use crate::words::{number, percent};
use crate::{source, words};

/// The shapes of the documents.
pub const STEPS_SCHEMA: &str = "linkproof/steps.v1";
/// The same of the estimate's.
pub const VALUE_SCHEMA: &str = "linkproof/value.v1";

/// The smallest change of a step's time worth acting on: as for bandwidth, since both are means over many.
const THRESHOLD: f64 = linkproof_common::compare::BANDWIDTH_THRESHOLD;

/// What came of two arms' logs.
#[derive(Serialize)]
pub struct Steps {
    skipped_steps: u64,
    a: ArmOut,
    b: ArmOut,
    time_saved_percent: f64,
    throughput_gained_percent: f64,
    order: &'static str,
    step_time_change_percent: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval_percent: Option<[f64; 2]>,
    finding: &'static str,
}

#[derive(Serialize)]
struct ArmOut {
    logs: Vec<String>,
    seconds_per_step: Vec<f64>,
    median_seconds: f64,
}

/// Each log's stable step, both arms' medians, and what lies between them.
///
/// # Errors
/// [`ErrorKind::Usage`] with the file and the line.
pub fn steps(args: &StepsArgs) -> Result<Done<Steps>> {
    let (a, b) = (arm(&args.a, args)?, arm(&args.b, args)?);
    let gain = Gain::of_times(a.median_seconds, b.median_seconds);
    let (order, name, why) = order(args.order);
    let judged = Comparison::between(&a.seconds_per_step, &b.seconds_per_step, order, Goal::Lower, THRESHOLD)
        .ok_or_else(|| Error::new(ErrorKind::Usage, "the logs have no steps that can be compared"))?;
    let text = text(args.skip, &a, &b, gain, &verdict(&judged, [&a, &b], order, why));
    let (change, interval) = judged.relative();
    let body = Steps {
        skipped_steps: args.skip,
        a,
        b,
        time_saved_percent: gain.time_saved * 100.0,
        throughput_gained_percent: gain.throughput_gained * 100.0,
        order: name,
        step_time_change_percent: change * 100.0,
        interval_percent: interval.map(|(low, high)| [low * 100.0, high * 100.0]),
        finding: code(judged.verdict),
    };
    Ok(Done { text, body, failures: Vec::new() })
}

fn text(skip: u64, a: &ArmOut, b: &ArmOut, gain: Gain, verdict: &str) -> String {
    let mut text = format!(" Steps        : after the first {skip}, mean of each log\n");
    for (name, arm) in [("A", a), ("B", b)] {
        let all: Vec<String> = arm.seconds_per_step.iter().map(|&time| number(time)).collect();
        text.push_str(&format!(
            " {name}            : {} s/step, median of {}\n",
            number(arm.median_seconds),
            all.join(", ")
        ));
    }
    let per_cent = |fraction: f64| format!("{:.2} %", fraction * 100.0);
    text.push_str(&format!(" Time saved   : {} of a step of A (1 - B/A)\n", per_cent(gain.time_saved)));
    text.push_str(&format!(" Throughput   : {} more than A (A/B - 1)\n", per_cent(gain.throughput_gained)));
    text.push_str(&format!(" Verdict      : {verdict}\n"));
    text
}

/// Logs have no times, so how the runs were made is for the user to say.
fn order(sequence: Sequence) -> (Order, &'static str, &'static str) {
    match sequence {
        Sequence::Auto => {
            (Order::Blocked, "unknown", "logs do not say how the runs were made: no verdict without --order")
        }
        Sequence::InTurn => (Order::InTurn, "in_turn", "in turn, as --order says"),
        Sequence::Apart => {
            (Order::Apart, "apart", "at different times, as --order says: drift is not controlled")
        }
    }
}

fn verdict(judged: &Comparison, arms: [&ArmOut; 2], order: Order, why: &str) -> String {
    let interval = judged.relative().1.map_or(String::new(), |(low, high)| {
        format!(
            ", step time {} to {} % (95 % interval)",
            words::signed_percent(low),
            words::signed_percent(high)
        )
    });
    let enough = arms.iter().all(|arm| arm.logs.len() >= LEAST_ROUNDS);
    let words = if order == Order::Blocked && enough { "none" } else { judged.verdict.words() };
    format!("{words}{interval}; {why}")
}

/// The logs that `pattern` names, with their stable steps.
fn arm(pattern: &str, args: &StepsArgs) -> Result<ArmOut> {
    let paths = source::expand(pattern)?;
    let seconds_per_step = paths.iter().map(|path| stable_step(path, args)).collect::<Result<Vec<_>>>()?;
    Ok(ArmOut {
        logs: paths.iter().map(|path| words::printable(&path.display().to_string())).collect(),
        median_seconds: median(&seconds_per_step),
        seconds_per_step,
    })
}

fn stable_step(path: &Path, args: &StepsArgs) -> Result<f64> {
    let name = words::printable(&path.display().to_string());
    let bytes = source::read(path)?;
    let refuse =
        |what: String| Error::new(ErrorKind::Usage, format!("{name} can't be read as step times: {what}"));
    let times = parse(&String::from_utf8_lossy(&bytes), args.means).map_err(refuse)?;
    stable(&times, args.skip).ok_or_else(|| refuse(format!("it has no step after the first {}", args.skip)))
}

/// What an estimate came to, with all that it stands on.
#[derive(Serialize)]
pub struct Worth {
    communication_percent: f64,
    removable_percent: f64,
    overlapped_percent: f64,
    time_saved_percent: f64,
    throughput_gained_percent: f64,
}

/// The estimate with all that it stands on.
pub fn value(args: &ValueArgs) -> Done<Worth> {
    let overlapped = args.overlapped.unwrap_or(0.0);
    let gain = Gain::estimated(args.communication, args.removable, overlapped);
    let text = format!(
        " Communication: {} of a step\n Removable    : {} of that, by the faster link\n Overlapped   : {} of that is hidden behind computation\n Time saved   : {:.2} % of a step, an estimate: communication x removable x (1 - overlapped)\n Throughput   : {:.2} % more, an estimate\n",
        percent(args.communication),
        percent(args.removable),
        percent(overlapped),
        gain.time_saved * 100.0,
        gain.throughput_gained * 100.0
    );
    let body = Worth {
        communication_percent: args.communication * 100.0,
        removable_percent: args.removable * 100.0,
        overlapped_percent: overlapped * 100.0,
        time_saved_percent: gain.time_saved * 100.0,
        throughput_gained_percent: gain.throughput_gained * 100.0,
    };
    Done { text, body, failures: Vec::new() }
}
