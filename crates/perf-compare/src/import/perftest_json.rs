//! perftest's `--out_json`: one size, without units. Which unit a bandwidth has follows from the message rate, which is
//! there too: the two that it can have are a hundred times apart.

use std::collections::BTreeMap;

use linkproof_common::units::{Bandwidth, ByteSize};

use super::loose::{Pair, pairs};
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

fn points(pairs: &[Pair]) -> Result<BTreeMap<Key, Vec<f64>>, String> {
    let size = value_of(pairs, "results", "MsgSize").ok_or("it has no \"MsgSize\" in \"results\"")?;
    let size_bytes: u64 =
        size.value.parse().map_err(|_| bad_line(size.line, &size.value, "a number of bytes for MsgSize"))?;
    let has = |name: &str| value_of(pairs, "results", name).is_some();
    let values = if has("BW_average") {
        vec![(Figure::Bandwidth, gbit(number(pairs, "BW_average")?, number(pairs, "MsgRate")?, size_bytes)?)]
    } else if has("t_typical") {
        vec![(Figure::Typical, number(pairs, "t_typical")?), (Figure::P99, number(pairs, "percentile_99")?)]
    } else if has("t_avg") {
        vec![(Figure::Mean, number(pairs, "t_avg")?)]
    } else {
        return Err("it has none of BW_average, t_typical and t_avg in \"results\"".to_owned());
    };
    let key = |figure| Key { what: String::new(), size_bytes, figure };
    Ok(values.into_iter().map(|(figure, value)| (key(figure), vec![value])).collect())
}

/// `average` in 10⁹ bits a second: it is in them, or in MiB/s.
fn gbit(average: f64, million_messages: f64, size_bytes: u64) -> Result<f64, String> {
    let by_rate = million_messages * 1e6 * size_bytes as f64 * 8.0 / 1e9;
    let as_mib = Bandwidth::from_bytes_per_sec(average * ByteSize::MIB as f64).gbit_per_sec();
    let near = |gbit: f64| (gbit / by_rate).ln().abs() <= FURTHEST.ln();
    [average, as_mib].into_iter().find(|&gbit| near(gbit)).ok_or_else(|| {
        format!("BW_average {average} is in neither MiB/s nor Gb/s by MsgRate {million_messages} and MsgSize: the table has the unit")
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
