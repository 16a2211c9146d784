//! Many nodes, or pairs of them, that should be alike: which one is odd.
//!
//! [`linkproof_common::compare::Spread`] says how far each is from the others' middle, and
//! [`linkproof_common::compare::odd_limit`] how far is too far for so many members and points.

use std::collections::{BTreeMap, BTreeSet};

use linkproof_common::compare::{FLEET_FALSE_ALARM, Goal, LEAST_MEMBERS, Spread, odd_limit};
use linkproof_common::error::{Error, ErrorKind, Result};
use serde::Serialize;

use crate::args::FleetArgs;
use crate::arm::{Arm, median, with_distinct_labels};
use crate::done::Done;
use crate::likeness;
use crate::recording::{Figure, Key, Recording};
use crate::show::grid::grid;
use crate::words::{number, percent, signed_percent};

/// The shape of the document.
pub const SCHEMA: &str = "linkproof/fleet.v1";
/// The method's name; it changes with anything that could change who is odd.
const METHOD: &str = "median-mad/1";
/// A condition is told of where no more than this share of the members has another value than the rest. Taste: what a
/// third of a fleet has is a second kind of node.
const FEW: f64 = 0.2;

/// What came of it.
#[derive(Serialize)]
pub struct Fleet {
    method: &'static str,
    operation: String,
    members: Vec<Member>,
    false_alarm_percent: f64,
    /// Standard deviations from the median beyond which a member is odd; absent where there are too few members.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<f64>,
    points: Vec<PointOut>,
    odd: Vec<String>,
    conditions: Vec<Condition>,
}

#[derive(Serialize)]
struct Member {
    label: String,
    sources: Vec<String>,
}

#[derive(Serialize)]
struct PointOut {
    #[serde(skip_serializing_if = "String::is_empty")]
    what: String,
    size_bytes: u64,
    figure: Figure,
    unit: &'static str,
    goal: &'static str,
    threshold_percent: f64,
    median: f64,
    noise_percent: f64,
    /// In the order of the members.
    values: Vec<Value>,
    #[serde(skip)]
    key: Key,
}

#[derive(Serialize)]
struct Value {
    value: f64,
    off_percent: f64,
    /// From the median; absent where the others agree to the last digit and it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    deviations: Option<f64>,
    odd: bool,
    worse: bool,
}

/// A condition that few members have otherwise than the rest.
#[derive(Debug, PartialEq, Serialize)]
struct Condition {
    name: String,
    usual: String,
    others: Vec<Other>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Other {
    label: String,
    value: String,
}

/// Looks who is odd.
///
/// # Errors
/// [`ErrorKind::Usage`]: files that can't be read, members that can't be compared, or fewer than two.
pub fn fleet(args: &FleetArgs) -> Result<Done<Fleet>> {
    let members = members(args)?;
    if members.len() < 2 {
        return Err(Error::new(ErrorKind::Usage, format!("a fleet of {} has no odd member", members.len()))
            .hint("give a file for each node, or LABEL='PATTERN' for several runs of one; --by CONDITION tells runs apart"));
    }
    likeness::check_names(&members, &args.allow)?;
    let notes = likeness::check(&members, &args.allow)?.notes;
    let keys = shared_keys(&members);
    let limit = odd_limit(members.len(), keys.len());
    let points: Vec<PointOut> =
        keys.iter().filter_map(|key| point(key, &members, limit, args.threshold)).collect();
    let odd = |member: usize| points.iter().any(|point| point.values[member].odd);
    let fleet = Fleet {
        method: METHOD,
        operation: members[0].runs[0].operation.clone(),
        odd: (0..members.len())
            .filter(|&member| odd(member))
            .map(|member| members[member].label.clone())
            .collect(),
        conditions: conditions(&members),
        members: members.iter().map(Member::of).collect(),
        false_alarm_percent: FLEET_FALSE_ALARM * 100.0,
        limit,
        points,
    };
    notes.iter().for_each(|note| crate::output::note(&format!("warning: {note}")));
    Ok(Done { text: fleet.text(args.verbose), failures: fleet.failures(), body: fleet })
}

impl Member {
    fn of(arm: &Arm) -> Self {
        Self { label: arm.label.clone(), sources: arm.runs.iter().map(|run| run.source.clone()).collect() }
    }
}

/// Each file a member, or the files of a label, or, with `--by`, the runs that share a condition.
fn members(args: &FleetArgs) -> Result<Vec<Arm>> {
    let words = args.results.iter().map(|word| Arm::one_a_file(word)).collect::<Result<Vec<_>>>()?;
    let arms: Vec<Arm> = words.into_iter().flatten().collect();
    if args.by.is_empty() {
        return Ok(with_distinct_labels(arms));
    }
    let mut groups: BTreeMap<String, Vec<Recording>> = BTreeMap::new();
    for run in arms.into_iter().flat_map(|arm| arm.runs) {
        groups.entry(name_by(&run, &args.by)?).or_default().push(run);
    }
    Ok(groups.into_iter().map(|(label, runs)| Arm { label, runs }).collect())
}

fn name_by(run: &Recording, by: &[String]) -> Result<String> {
    let value = |name: &String| {
        run.conditions.get(name).cloned().ok_or_else(|| {
            let known =
                run.conditions.keys().filter(|known| known.contains("name") || known.contains("host"));
            let error = Error::new(ErrorKind::Usage, format!("{} has no condition {name}", run.source));
            let known: Vec<&str> = known.map(String::as_str).collect();
            if known.is_empty() { error } else { error.fact("names of hosts", known.join(", ")) }
        })
    };
    Ok(by.iter().map(value).collect::<Result<Vec<_>>>()?.join(" to "))
}

/// The points of all members' runs. A tail is too unsteady to call somebody odd for.
fn shared_keys(members: &[Arm]) -> Vec<Key> {
    let of =
        |arm: &Arm| arm.keys().into_iter().filter(|key| arm.rounds(key).is_some()).collect::<BTreeSet<_>>();
    let first = of(&members[0]);
    let shared =
        members[1..].iter().fold(first, |shared, arm| shared.intersection(&of(arm)).cloned().collect());
    shared.into_iter().filter(|key| key.figure.is_primary()).collect()
}

fn point(key: &Key, members: &[Arm], limit: Option<f64>, threshold: Option<f64>) -> Option<PointOut> {
    let values: Vec<f64> =
        members.iter().map(|arm| arm.rounds(key).map(|rounds| median(&rounds))).collect::<Option<_>>()?;
    let spread = Spread::of(&values)?;
    let threshold = threshold.unwrap_or(key.figure.threshold());
    let higher = key.figure.goal() == Goal::Higher;
    let of_member = |(member, &value): (usize, &f64)| Value {
        value,
        off_percent: spread.off(member) * 100.0,
        deviations: Some(spread.deviations(member)).filter(|deviations| deviations.is_finite()),
        odd: limit.is_some_and(|limit| spread.is_odd(member, limit, threshold)),
        worse: (spread.logs[member] < 0.0) == higher && spread.logs[member] != 0.0,
    };
    Some(PointOut {
        what: key.what.clone(),
        size_bytes: key.size_bytes,
        figure: key.figure,
        unit: key.figure.unit(),
        goal: key.figure.goal().name(),
        threshold_percent: threshold * 100.0,
        median: spread.centre,
        noise_percent: spread.sigma.exp_m1() * 100.0,
        values: values.iter().enumerate().map(of_member).collect(),
        key: key.clone(),
    })
}

/// What few members have otherwise than the rest. Names and numbers that are each member's own are no condition.
fn conditions(members: &[Arm]) -> Vec<Condition> {
    let names: BTreeSet<&String> =
        members.iter().flat_map(|arm| &arm.runs).flat_map(|run| run.conditions.keys()).collect();
    let of = |name: &String| {
        let value = |arm: &Arm| {
            let values: BTreeSet<&str> = arm
                .runs
                .iter()
                .map(|run| run.conditions.get(name).map_or("unknown", String::as_str))
                .collect();
            Vec::from_iter(values).join(" | ")
        };
        let values: Vec<String> = members.iter().map(value).collect();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        values.iter().for_each(|value| *counts.entry(value).or_default() += 1);
        let (usual, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let others = members.len() - count;
        let few = others > 0 && others as f64 <= FEW * members.len() as f64;
        let pairs = members.iter().zip(&values).filter(|(_, value)| *value != usual);
        few.then(|| Condition {
            name: name.clone(),
            usual: usual.to_owned(),
            others: pairs
                .map(|(arm, value)| Other { label: arm.label.clone(), value: value.clone() })
                .collect(),
        })
    };
    names.into_iter().filter_map(of).collect()
}

impl Fleet {
    fn failures(&self) -> Vec<Error> {
        let of_member = |(index, member): (usize, &Member)| {
            let odd = self.points.iter().filter(|point| point.values[index].odd && point.values[index].worse);
            let at: Vec<String> = odd
                .map(|point| {
                    let off = signed_percent(point.values[index].off_percent / 100.0);
                    format!("{} ({off} %)", point.key.describe())
                })
                .collect();
            (!at.is_empty()).then(|| {
                Error::new(
                    ErrorKind::RequirementNotMet,
                    format!("{} is worse than the rest of the fleet", member.label),
                )
                .fact("at", at.join(", "))
                .hint("measure it again, and against another partner, before it is taken out")
            })
        };
        self.members.iter().enumerate().filter_map(of_member).collect()
    }

    fn text(&self, all: bool) -> String {
        let mut text = format!(" Fleet        : {} members, {}\n", self.members.len(), self.operation);
        text.push_str(&format!(" Odd          : {}\n", self.rule()));
        text.push_str(&self.table());
        text.push_str(&self.odd_members());
        if !self.conditions.is_empty() {
            text.push_str(" Conditions that few have\n");
            for condition in &self.conditions {
                let others: Vec<String> = condition
                    .others
                    .iter()
                    .map(|other| format!("{}: {}", other.label, other.value))
                    .collect();
                text.push_str(&format!(
                    "  {}  {}; the rest: {}\n",
                    condition.name,
                    others.join("; "),
                    condition.usual
                ));
            }
        }
        if all {
            text.push_str(&self.all_values());
        }
        text
    }

    fn rule(&self) -> String {
        match self.limit {
            Some(limit) => format!(
                "more than {limit:.1} deviations (1.4826 x MAD) from the median, as in {} of 100 fleets of alike members",
                number_of_alarms(self.false_alarm_percent)
            ),
            None => format!("nobody is called so in a fleet of fewer than {LEAST_MEMBERS}"),
        }
    }

    fn table(&self) -> String {
        let header = ["point", "unit", "median", "noise", "lowest", "highest", "odd"].map(str::to_owned);
        let row = |point: &PointOut| {
            let values = || point.values.iter().map(|value| value.value);
            let odd = point.values.iter().filter(|value| value.odd).count();
            vec![
                point.key.describe(),
                point.unit.to_owned(),
                number(point.median),
                format!("±{:.2} %", point.noise_percent),
                number(values().fold(f64::INFINITY, f64::min)),
                number(values().fold(0.0, f64::max)),
                if odd == 0 { String::new() } else { odd.to_string() },
            ]
        };
        grid(&header, &self.points.iter().map(row).collect::<Vec<_>>(), header.len())
    }

    fn odd_members(&self) -> String {
        if self.odd.is_empty() {
            return if self.limit.is_some() { " No member is odd\n".to_owned() } else { String::new() };
        }
        let mut text = " Odd members\n".to_owned();
        for (index, member) in self.members.iter().enumerate() {
            for point in self.points.iter().filter(|point| point.values[index].odd) {
                let value = &point.values[index];
                let how = if value.worse { "worse" } else { "better" };
                let deviations = value.deviations.map_or("all others agree".to_owned(), |deviations| {
                    format!("{:.1} deviations", deviations.abs())
                });
                text.push_str(&format!(
                    "  {}  {}: {} {}, {} % from the median, {deviations}: {how}\n",
                    member.label,
                    point.key.describe(),
                    number(value.value),
                    point.unit,
                    signed_percent(value.off_percent / 100.0)
                ));
            }
        }
        text
    }

    fn all_values(&self) -> String {
        let mut text = " Members\n".to_owned();
        for point in &self.points {
            for (member, value) in self.members.iter().zip(&point.values) {
                text.push_str(&format!(
                    "  {}  {}: {} ({} %)\n",
                    point.key.describe(),
                    member.label,
                    number(value.value),
                    signed_percent(value.off_percent / 100.0)
                ));
            }
        }
        text
    }
}

fn number_of_alarms(per_cent: f64) -> String {
    percent(per_cent / 100.0).trim_end_matches(" %").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::tests::{arm, key};

    fn eight(last: f64) -> Vec<Arm> {
        let values = [100.0, 100.4, 99.7, 100.2, 99.9, 100.1, 99.6, last];
        values
            .iter()
            .enumerate()
            .map(|(index, &value)| arm(&format!("n{index}"), &[0], &[&[value]]))
            .collect()
    }

    fn odd(members: &[Arm]) -> Vec<usize> {
        let limit = odd_limit(members.len(), 1);
        let point = point(&key(), members, limit, None).unwrap();
        (0..members.len()).filter(|&member| point.values[member].odd).collect()
    }

    #[test]
    fn a_slow_node_is_named_and_alike_ones_are_not() {
        assert_eq!(odd(&eight(90.0)), [7]);
        assert_eq!(odd(&eight(110.0)), [7]);
        assert!(odd(&eight(99.5)).is_empty());
        // Three of them say nothing, however far one is.
        assert!(odd(&eight(50.0)[5..]).is_empty());
    }

    #[test]
    fn what_few_have_is_told_and_what_each_has_of_its_own_is_not() {
        let mut members = eight(100.0);
        for (index, arm) in members.iter_mut().enumerate() {
            let conditions = &mut arm.runs[0].conditions;
            conditions.insert("hosts.name".into(), format!("n{index}"));
            conditions.insert("link.mtu".into(), if index == 3 { "1024" } else { "4096" }.into());
            conditions.insert("kernel".into(), if index < 3 { "6.1" } else { "6.2" }.into());
        }
        let found = conditions(&members);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].name.as_str(), found[0].usual.as_str()), ("link.mtu", "4096"));
        assert_eq!(found[0].others, [Other { label: "n3".into(), value: "1024".into() }]);
    }

    #[test]
    fn runs_are_told_apart_by_a_condition() {
        let mut run = Recording::new("x", "write bandwidth");
        run.conditions.insert("hosts.client.name".into(), "a".into());
        run.conditions.insert("hosts.server.name".into(), "b".into());
        let by = |names: &[&str]| name_by(&run, &names.iter().map(|&name| name.into()).collect::<Vec<_>>());
        assert_eq!(by(&["hosts.client.name", "hosts.server.name"]), Ok("a to b".to_owned()));
        let error = by(&["host"]).unwrap_err();
        assert_eq!(error.what, "x has no condition host");
        assert_eq!(error.facts[0].value, "hosts.client.name, hosts.server.name");
    }
}
