//! `steps` and `value`: what a link does for training, with the inputs shown.

use linkproof_common::compare::{Comparison, Goal, LEAST_ROUNDS, Order};
use linkproof_common::error::{Error, ErrorKind, Result};

use crate::args::{StepsArgs, ValueArgs};
use crate::arm::{Sequence, median};
use crate::steps::{Gain, parse, stable};
use crate::words::{number, percent};
use crate::{source, words};

/// The smallest change of a step's time worth acting on: as for bandwidth, since both are means over many.
const THRESHOLD: f64 = linkproof_common::compare::BANDWIDTH_THRESHOLD;

/// Each log's stable step, both arms' medians, and what lies between them.
///
/// # Errors
/// [`ErrorKind::Usage`] with the file and the line.
pub fn steps(args: &StepsArgs) -> Result<String> {
    let (a, b) = (rounds(&args.a, args)?, rounds(&args.b, args)?);
    let (middle_a, middle_b) = (median(&a), median(&b));
    let gain = Gain::of_times(middle_a, middle_b);
    let mut text = format!(" Steps        : after the first {}, mean of each log\n", args.skip);
    for (name, rounds, middle) in [("A", &a, middle_a), ("B", &b, middle_b)] {
        let all: Vec<String> = rounds.iter().map(|&time| number(time)).collect();
        text.push_str(&format!(
            " {name}            : {} s/step, median of {}\n",
            number(middle),
            all.join(", ")
        ));
    }
    let per_cent = |fraction: f64| format!("{:.2} %", fraction * 100.0);
    text.push_str(&format!(" Time saved   : {} of a step of A (1 - B/A)\n", per_cent(gain.time_saved)));
    text.push_str(&format!(" Throughput   : {} more than A (A/B - 1)\n", per_cent(gain.throughput_gained)));
    text.push_str(&format!(" Verdict      : {}\n", verdict(&a, &b, args.order)));
    Ok(text)
}

/// Logs have no times, so how the runs were made is for the user to say.
fn verdict(a: &[f64], b: &[f64], sequence: Sequence) -> String {
    let (order, why) = match sequence {
        Sequence::Auto => {
            (Order::Blocked, "logs do not say how the runs were made: no verdict without --order")
        }
        Sequence::InTurn => (Order::InTurn, "in turn, as --order says"),
        Sequence::Apart => (Order::Apart, "at different times, as --order says: drift is not controlled"),
    };
    let Some(judged) = Comparison::between(a, b, order, Goal::Lower, THRESHOLD) else {
        return "none".to_owned();
    };
    let interval = judged.relative().1.map_or(String::new(), |(low, high)| {
        format!(
            ", step time {} to {} % (95 % interval)",
            words::signed_percent(low),
            words::signed_percent(high)
        )
    });
    let enough = a.len().min(b.len()) >= LEAST_ROUNDS;
    let words = if order == Order::Blocked && enough { "none" } else { judged.verdict.words() };
    format!("{words}{interval}; {why}")
}

/// The stable step of each log that `pattern` names.
fn rounds(pattern: &str, args: &StepsArgs) -> Result<Vec<f64>> {
    let of = |path: &std::path::PathBuf| {
        let name = words::printable(&path.display().to_string());
        let bytes = source::read(path)?;
        let refuse = |what: String| {
            Error::new(ErrorKind::Usage, format!("{name} can't be read as step times: {what}"))
        };
        let times = parse(&String::from_utf8_lossy(&bytes), args.means).map_err(refuse)?;
        stable(&times, args.skip)
            .ok_or_else(|| refuse(format!("it has no step after the first {}", args.skip)))
    };
    source::expand(pattern)?.iter().map(of).collect()
}

/// The estimate with all that it stands on.
pub fn value(args: &ValueArgs) -> String {
    let overlapped = args.overlapped.unwrap_or(0.0);
    let gain = Gain::estimated(args.communication, args.removable, overlapped);
    format!(
        " Communication: {} of a step\n Removable    : {} of that, by the faster link\n Overlapped   : {} of that is hidden behind computation\n Time saved   : {:.2} % of a step, an estimate: communication x removable x (1 - overlapped)\n Throughput   : {:.2} % more, an estimate\n",
        percent(args.communication),
        percent(args.removable),
        percent(overlapped),
        gain.time_saved * 100.0,
        gain.throughput_gained * 100.0
    )
}
