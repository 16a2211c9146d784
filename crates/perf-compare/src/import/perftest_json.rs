//! perftest's `--out_json`: one size, without units. Which unit a bandwidth has follows from the message rate, which is
//! there too: the two that it can have are a hundred times apart.

use std::collections::BTreeMap;

use super::loose::{Pair, pairs};
use super::perftest::{NOTHING, Unit, finer, gbit_by_rate};
use super::{bad_line, perftest};
use crate::recording::{Figure, Key, Recording};

/// How far the bandwidth may be from message rate × size: the rate has six decimals, and is small for large messages.
const FURTHEST: f64 = 3.0;

/// Reads the document of one run.
pub(super) fn recording(name: &str, text: &str) -> Result<Recording, String> {
    let pairs = pairs(text)?;
    let test = value_of(&pairs, "test_info", "test").ok_or("it has no \"test\" in \"test_info\"")?;
    let (operation, bidirectional) = perftest::title(&test.value.replace('_', " "))
        .ok_or_else(|| bad_line(test.line, &test.value, "a name such as RDMA_Write_BW_Test"))?;
    let mut recording = Recording::new(name, &operation);
    recording.conditions = conditions(&pairs);
    recording.conditions.insert("tool".to_owned(), "perftest".to_owned());
    let traffic = perftest::traffic(operation.ends_with("latency"), bidirectional);
    recording.conditions.insert("plan.traffic".to_owned(), traffic.to_owned());
    recording.set_points(points(&pairs)?);
    Ok(recording)
}

fn value_of<'a>(pairs: &'a [Pair], section: &str, name: &str) -> Option<&'a Pair> {
    pairs.iter().find(|pair| pair.section == section && pair.name == name)
}

fn number(pairs: &[Pair], name: &str) -> Result<f64, String> {
    let pair =
        value_of(pairs, "results", name).ok_or_else(|| format!("it has no \"{name}\" in \"results\""))?;
    pair.value.parse().map_err(|_| bad_line(pair.line, &pair.value, &format!("a number for {name}")))
}

fn text<'a>(pairs: &'a [Pair], name: &str) -> &'a str {
    value_of(pairs, "results", name).map_or("", |pair| pair.value.as_str())
}

fn points(pairs: &[Pair]) -> Result<BTreeMap<Key, Vec<f64>>, String> {
    let size = value_of(pairs, "results", "MsgSize").ok_or("it has no \"MsgSize\" in \"results\"")?;
    let size_bytes: u64 =
        size.value.parse().map_err(|_| bad_line(size.line, &size.value, "a number of bytes for MsgSize"))?;
    let has = |name: &str| value_of(pairs, "results", name).is_some();
    let values = if has("BW_average") {
        vec![(Figure::Bandwidth, gbit(pairs, size_bytes)?)]
    } else if has("t_typical") {
        vec![(Figure::Typical, number(pairs, "t_typical")?), (Figure::P99, number(pairs, "percentile_99")?)]
    } else if has("t_avg") {
        vec![(Figure::Mean, number(pairs, "t_avg")?)]
    } else {
        return Err("it has none of BW_average, t_typical and t_avg in \"results\"".to_owned());
    };
    if values.iter().all(|(_, value)| *value == 0.0) {
        return Err(NOTHING.to_owned());
    }
    let key = |figure| Key { what: String::new(), size_bytes, figure };
    Ok(values.into_iter().map(|(figure, value)| (key(figure), vec![value])).collect())
}

/// The average, which is in MiB/s or Gb/s, in 10⁹ bits a second.
fn gbit(pairs: &[Pair], size_bytes: u64) -> Result<f64, String> {
    let (average, rate) = (number(pairs, "BW_average")?, number(pairs, "MsgRate")?);
    let (cell, rate_cell) = (text(pairs, "BW_average"), text(pairs, "MsgRate"));
    let units = [Unit::GbitPerSec, Unit::MibPerSec];
    if let Some(gbit) = units.into_iter().find_map(|unit| finer(cell, rate_cell, size_bytes, unit)) {
        return Ok(gbit);
    }
    let by_rate = gbit_by_rate(rate, size_bytes);
    let near = |gbit: f64| (gbit / by_rate).ln().abs() <= FURTHEST.ln();
    let nothing = (average == 0.0 && rate == 0.0).then_some(0.0);
    let in_unit = units.map(|unit| unit.gbit(average)).into_iter().find(|&gbit| near(gbit));
    nothing.or(in_unit).ok_or_else(|| {
        format!("BW_average {cell} is in neither MiB/s nor Gb/s by MsgRate {rate_cell} and MsgSize: the table has the unit")
    })
}

/// As the table's heading has them, so that both can be compared.
fn conditions(pairs: &[Pair]) -> BTreeMap<String, String> {
    let of = |pair: &Pair| {
        let name = match pair.name.as_str() {
            "ibv_wr_API" => "ibv_wr* API".to_owned(),
            "Dual_port" => "Dual-port".to_owned(),
            "rdma_cm_QPs" => "rdma_cm QPs".to_owned(),
            "Data_ex_method" => "Data ex. method".to_owned(),
            name => name.replace('_', " "),
        };
        let bytes = ["Mtu", "Max inline data"].contains(&name.as_str());
        let value = if bytes { format!("{}[B]", pair.value) } else { pair.value.clone() };
        (format!("perftest.{name}"), value)
    };
    let is_condition =
        |pair: &&Pair| pair.section == "test_info" && pair.name != "test" && !pair.name.contains("GID");
    pairs.iter().filter(is_condition).map(of).collect()
}
