//! An accepted result kept as the reference, and later runs held against it.
//!
//! Later runs were made at another time, so that nothing is in turn and drift is not controlled: the question is not which
//! is better but whether something got worse by more than is tolerated and by more than runs differ anyway
//! ([`linkproof_common::compare::Regression`]).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use linkproof_common::compare::{Finding, LEAST_BASELINE, REGRESSION_FALSE_ALARM, Regression, relative};
use linkproof_common::error::{Error, ErrorKind, Result, show_io_error};
use linkproof_common::report::timestamp;
use serde::{Deserialize, Serialize};

use crate::args::{CheckArgs, SaveArgs};
use crate::arm::{Arm, median};
use crate::done::Done;
use crate::likeness::{self, Difference};
use crate::recording::{Figure, Key, Recording};
use crate::show::grid::grid;
use crate::words::{number, percent, signed_percent};
use crate::{output, source, words};

/// The shape of the file.
pub const SCHEMA: &str = "linkproof/baseline.v1";
/// The shape of what `check` writes.
pub const CHECK_SCHEMA: &str = "linkproof/baseline-check.v1";
/// The method's name; it changes with anything that could change a finding.
const METHOD: &str = "student-one-sided/1";

/// The file.
#[derive(Serialize, Deserialize)]
struct Baseline {
    schema: String,
    version: String,
    name: String,
    saved: String,
    runs: Vec<Recording>,
}

/// Keeps runs as the reference `args.name`. What is shown says where.
///
/// # Errors
/// [`ErrorKind::Usage`]: files that can't be read, runs that can't be one reference, or one of that name that is there
/// already; [`ErrorKind::Output`].
pub fn save(args: &SaveArgs) -> Result<String> {
    let runs = runs(&args.results)?;
    let arm = [Arm { label: args.name.clone(), runs }];
    let likeness = likeness::check(&arm, &[])?;
    likeness.notes.iter().for_each(|note| output::note(&format!("warning: {note}")));
    let [arm] = arm;
    if arm.runs.len() < LEAST_BASELINE {
        output::note(&format!(
            "warning: {} of {LEAST_BASELINE} runs: a check needs to know how much runs differ anyway",
            arm.runs.len()
        ));
    }
    let count = arm.runs.len();
    let baseline = Baseline {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: args.name.clone(),
        saved: timestamp(),
        runs: arm.runs,
    };
    let path = path(&args.dir, &args.name);
    if path.exists() && !args.replace {
        return Err(Error::new(ErrorKind::Usage, format!("{} is there already", shown(&path)))
            .hint("--replace takes the new runs for it, another name keeps both"));
    }
    write(&path, &baseline)?;
    Ok(format!(" Baseline     : {}, {count} runs, in {}\n", args.name, shown(&path)))
}

/// What may be a baseline's name: it becomes a file's.
///
/// # Errors
/// What would be one.
pub fn parse_name(text: &str) -> std::result::Result<String, String> {
    let usable = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.len() <= 100 && !text.starts_with('.') && !text.is_empty() && text.chars().all(usable) {
        Ok(text.to_owned())
    } else {
        Err("letters, digits, '-', '_' and '.', not at the beginning".to_owned())
    }
}

fn path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.json"))
}

fn shown(path: &Path) -> String {
    words::printable(&path.display().to_string())
}

/// Under another name first: a reference that is half written is worse than none.
fn write(path: &Path, baseline: &Baseline) -> Result<()> {
    let failed = |error: &std::io::Error| {
        Error::new(ErrorKind::Output, format!("cannot write {}: {}", shown(path), show_io_error(error)))
    };
    let mut text = serde_json::to_string_pretty(baseline).map_err(|error| {
        Error::new(ErrorKind::Output, format!("cannot write the baseline as JSON: {error}"))
    })?;
    text.push('\n');
    path.parent().map_or(Ok(()), fs::create_dir_all).map_err(|error| failed(&error))?;
    let unfinished = path.with_extension(format!("json.{}", std::process::id()));
    fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, path)).map_err(|error| {
        // Nothing can be done about one that stays.
        let _ = fs::remove_file(&unfinished);
        failed(&error)
    })
}

fn read(path: &Path) -> Result<Baseline> {
    if !path.exists() {
        let error = Error::new(ErrorKind::Usage, format!("there is no baseline {}", shown(path)));
        return Err(error.hint("perf-compare baseline save NAME RESULTS keeps one; --dir says where"));
    }
    let refuse = |what: String| {
        Error::new(ErrorKind::Usage, format!("{} can't be read as a baseline: {what}", shown(path)))
            .fact("expected", format!("a document of {SCHEMA}, as baseline save writes it"))
    };
    let bytes = source::read(path)?;
    let baseline: Baseline =
        serde_json::from_slice(&bytes).map_err(|error| refuse(words::printable(&error.to_string())))?;
    if baseline.schema != SCHEMA {
        return Err(refuse(format!("its schema is \"{}\"", words::printable(&baseline.schema))));
    }
    if baseline.runs.is_empty() {
        return Err(refuse("it has no run".to_owned()));
    }
    let runs: Vec<Recording> = baseline.runs.into_iter().map(Recording::printable).collect();
    runs.iter().try_for_each(Recording::check).map_err(refuse)?;
    Ok(Baseline { runs, ..baseline })
}

fn runs(patterns: &[String]) -> Result<Vec<Recording>> {
    let arms = patterns.iter().map(|pattern| Arm::from_word(pattern)).collect::<Result<Vec<_>>>()?;
    Ok(arms.into_iter().flat_map(|arm| arm.runs).collect())
}

/// What came of a check.
#[derive(Serialize)]
pub struct Checked {
    method: &'static str,
    baseline: String,
    saved: String,
    tolerance_percent: f64,
    false_alarm_percent: f64,
    baseline_runs: Vec<Source>,
    runs: Vec<Source>,
    differences: Vec<DifferenceOut>,
    notes: Vec<String>,
    points: Vec<PointOut>,
}

#[derive(Serialize)]
struct Source {
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<String>,
}

#[derive(Serialize)]
struct DifferenceOut {
    name: String,
    baseline: String,
    runs: String,
    allowed: bool,
}

#[derive(Serialize)]
struct PointOut {
    #[serde(skip_serializing_if = "String::is_empty")]
    what: String,
    size_bytes: u64,
    figure: Figure,
    unit: &'static str,
    goal: &'static str,
    baseline_values: Vec<f64>,
    values: Vec<f64>,
    change_percent: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    noise_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p: Option<f64>,
    finding: &'static str,
    #[serde(skip)]
    key: Key,
    #[serde(skip)]
    found: Finding,
}

/// Holds runs against the reference.
///
/// # Errors
/// [`ErrorKind::Usage`]: files that can't be read, and runs that can't be compared with it.
pub fn check(args: &CheckArgs) -> Result<Done<Checked>> {
    let baseline = read(&path(&args.dir, &args.name))?;
    let (saved, runs) = (words::printable(&baseline.saved), runs(&args.results)?);
    let arms = [Arm { label: args.name.clone(), runs: baseline.runs }, Arm { label: "new".to_owned(), runs }];
    likeness::check_names(&arms, &args.allow)?;
    let likeness = likeness::check(&arms, &args.allow)?;
    let [old, new] = &arms;
    let keys: Vec<Key> = old.keys().intersection(&new.keys()).cloned().collect();
    let points: Vec<PointOut> =
        keys.iter().filter_map(|key| point(key, old, new, args.tolerance, keys.len())).collect();
    let checked = Checked {
        method: METHOD,
        baseline: args.name.clone(),
        saved,
        tolerance_percent: args.tolerance * 100.0,
        false_alarm_percent: REGRESSION_FALSE_ALARM * 100.0,
        baseline_runs: sources(old),
        runs: sources(new),
        differences: likeness.differences.iter().map(DifferenceOut::of).collect(),
        notes: likeness.notes,
        points,
    };
    checked.warn();
    Ok(Done { text: checked.text(), failures: checked.failures(args.require_decision), body: checked })
}

/// One value for each run, the median of its rounds: rounds of a run share its conditions, and would make the scatter
/// look smaller than it is. `None` where a run has no such point.
fn values(arm: &Arm, key: &Key) -> Option<Vec<f64>> {
    arm.runs.iter().map(|run| run.point(key).map(|point| median(&point.rounds))).collect()
}

fn point(key: &Key, old: &Arm, new: &Arm, tolerance: f64, points: usize) -> Option<PointOut> {
    let (baseline_values, values) = (values(old, key)?, values(new, key)?);
    let found = Regression::of(&baseline_values, &values, key.figure.goal(), tolerance, points)?;
    Some(PointOut {
        what: key.what.clone(),
        size_bytes: key.size_bytes,
        figure: key.figure,
        unit: key.figure.unit(),
        goal: key.figure.goal().name(),
        baseline_values,
        values,
        change_percent: relative(found.log_ratio) * 100.0,
        noise_percent: found.sigma.map(|sigma| sigma.exp_m1() * 100.0),
        p: found.p,
        finding: match found.finding {
            Finding::Regressed => "regressed",
            Finding::Within => "within",
            Finding::Undecided => "undecided",
        },
        key: key.clone(),
        found: found.finding,
    })
}

fn sources(arm: &Arm) -> Vec<Source> {
    arm.runs.iter().map(|run| Source { source: run.source.clone(), started: run.started.clone() }).collect()
}

impl DifferenceOut {
    fn of(difference: &Difference) -> Self {
        let value =
            |index: usize| difference.values.get(index).map_or(String::new(), |(_, value)| value.clone());
        Self {
            name: difference.name.clone(),
            baseline: value(0),
            runs: value(1),
            allowed: difference.allowed,
        }
    }
}

impl PointOut {
    fn change(&self) -> String {
        signed_percent(self.change_percent / 100.0)
    }
}

impl Checked {
    fn warn(&self) {
        let undeclared: BTreeSet<&str> =
            self.differences.iter().filter(|it| !it.allowed).map(|it| it.name.as_str()).collect();
        if !undeclared.is_empty() {
            let names = Vec::from_iter(undeclared).join(", ");
            output::note(&format!("warning: conditions differ from those of the baseline: {names}"));
        }
        self.notes.iter().for_each(|note| output::note(&format!("warning: {note}")));
    }

    fn failures(&self, require_decision: bool) -> Vec<Error> {
        let of = |found: Finding| {
            let at = self.points.iter().filter(move |point| point.found == found);
            at.map(|point| format!("{} ({} %)", point.key.describe(), point.change())).collect::<Vec<_>>()
        };
        let (regressed, undecided) = (of(Finding::Regressed), of(Finding::Undecided));
        let failure = |what: String, at: &[String]| {
            (!at.is_empty()).then(|| Error::new(ErrorKind::RequirementNotMet, what).fact("at", at.join(", ")))
        };
        let tolerance = percent(self.tolerance_percent / 100.0);
        let worse = format!("worse than the baseline {} by more than {tolerance}", self.baseline);
        let open =
            format!("not decided whether worse than the baseline {} by more than {tolerance}", self.baseline);
        let undecided = failure(open, &undecided).filter(|_| require_decision);
        failure(worse, &regressed).into_iter().chain(undecided).collect()
    }

    fn text(&self) -> String {
        let mut text = format!(
            " Baseline     : {}, {} runs, saved {}\n Now          : {} runs\n Tolerance    : {}; of 100 checks of runs that are alike {} says \"regressed\"\n",
            self.baseline,
            self.baseline_runs.len(),
            self.saved,
            self.runs.len(),
            percent(self.tolerance_percent / 100.0),
            percent(self.false_alarm_percent / 100.0).trim_end_matches(" %")
        );
        let line = |it: &DifferenceOut| {
            format!("  {}  {}: {}; new: {}\n", it.name, self.baseline, it.baseline, it.runs)
        };
        let lines: Vec<String> = self.differences.iter().map(line).collect();
        if !lines.is_empty() {
            text.push_str(" Conditions that differ\n");
            text.push_str(&lines.concat());
        }
        let header = ["point", "unit", "baseline", "noise", "now", "change[%]", "finding"].map(str::to_owned);
        let rows: Vec<Vec<String>> = self.points.iter().map(|point| self.row(point)).collect();
        text.push_str(&grid(&header, &rows, 6));
        text
    }

    fn row(&self, point: &PointOut) -> Vec<String> {
        let finding = match (point.found, point.p) {
            (Finding::Regressed, _) => "regressed".to_owned(),
            (Finding::Within, _) => "within".to_owned(),
            (Finding::Undecided, Some(_)) => "undecided: runs differ as much anyway".to_owned(),
            (Finding::Undecided, None) => {
                format!("undecided: {} of {LEAST_BASELINE} runs in the baseline", self.baseline_runs.len())
            }
        };
        vec![
            point.key.describe(),
            point.unit.to_owned(),
            number(median(&point.baseline_values)),
            point.noise_percent.map_or("-".to_owned(), |noise| format!("±{noise:.2} %")),
            number(median(&point.values)),
            point.change(),
            finding,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::tests::{arm, key};

    #[test]
    fn a_run_counts_once_however_many_rounds_it_has() {
        let of = |values: &[&[f64]]| arm("a", &[0, 1, 2, 3, 4][..values.len()], values);
        let old = of(&[&[100.0, 100.2], &[101.0], &[99.0], &[100.5]]);
        let finding = |new: &[&[f64]]| point(&key(), &old, &of(new), 0.05, 1).unwrap().finding;
        assert_eq!(finding(&[&[80.0, 81.0, 79.0]]), "regressed");
        assert_eq!(finding(&[&[99.0]]), "within");
        let two = of(&[&[100.0; 9], &[101.0; 9]]);
        assert_eq!(point(&key(), &two, &of(&[&[50.0; 9]]), 0.05, 1).unwrap().finding, "undecided");
        assert_eq!(values(&old, &key()), Some(vec![100.1, 101.0, 99.0, 100.5]));
    }

    #[test]
    fn a_name_is_one_of_a_file() {
        for name in ["node-7", "a.b_c", "X"] {
            assert_eq!(parse_name(name).as_deref(), Ok(name));
        }
        for name in ["", ".hidden", "..", "a/b", "a b", "ä"] {
            assert!(parse_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_baseline_goes_to_its_file_and_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(&folder.path().join("new"), "n");
        let runs = arm("a", &[0], &[&[1.0, 2.0]]).runs;
        let baseline = Baseline {
            schema: SCHEMA.into(),
            version: "0".into(),
            name: "n".into(),
            saved: "2026-11-30T10:00:00.000Z".into(),
            runs: runs.clone(),
        };
        write(&path, &baseline).unwrap();
        assert_eq!(read(&path).unwrap().runs, runs);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::write(&path, "{}").unwrap();
        assert!(read(&path).err().unwrap().what.contains("missing field `schema`"));
    }
}
