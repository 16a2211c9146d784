//! What perftest printed, imported by `perf-compare`, and held against what the text says.

use std::path::Path;

use serde_json::{Value, json};

use crate::{Tool, schema};

/// 10⁹ bits a second in 2²⁰ bytes a second.
const GBIT_IN_MIB: f64 = 8.0 * 1_048_576.0 / 1e9;

/// A figure in perftest's table.
#[derive(Clone, Debug)]
struct Told {
    size: u64,
    figure: &'static str,
    /// In 10⁹ bits a second or microseconds.
    value: f64,
    /// Half of the last digit.
    off: f64,
}

/// What the rows of perftest's table say, read by columns as a person does.
fn told(table: &str) -> Vec<Told> {
    let heading = table.lines().find(|line| line.contains("#bytes")).expect("a heading");
    let columns: &[(usize, &str, f64)] = if heading.contains("[Gb/sec]") {
        &[(3, "bandwidth", 1.0)]
    } else if heading.contains("BW average") {
        &[(3, "bandwidth", GBIT_IN_MIB)]
    } else if heading.contains("t_typical") {
        &[(4, "typical", 1.0), (7, "p99", 1.0)]
    } else {
        &[(2, "mean", 1.0)]
    };
    let is_row = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let of_row = |line: &str| -> Vec<Told> {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let of_column = |&(column, figure, unit): &(usize, &'static str, f64)| {
            let decimals = cells[column].split_once('.').map_or(0, |(_, decimals)| decimals.len());
            let value = cells[column].parse::<f64>().expect("a number") * unit;
            let off = 0.5 * 10_f64.powi(-(decimals as i32)) * unit;
            Told { size: cells[0].parse().expect("a size"), figure, value, off }
        };
        columns.iter().map(of_column).collect()
    };
    table.lines().filter(is_row).flat_map(of_row).collect()
}

/// Imports `output` of a run of perftest's, a table or JSON, and leaves what comes of it in `folder` as `name`.json; it
/// is valid.
///
/// # Panics
/// Where it is not, or is refused.
pub fn perftest(folder: &Path, name: &str, output: &str) -> Value {
    let file = folder.join(name);
    std::fs::write(&file, output).expect("a file");
    let import = Tool::new("perf-compare").args("import perftest").arg(&file).run();
    import.exits(0);
    std::fs::write(folder.join(format!("{name}.json")), &import.stdout).expect("a file");
    let mut recordings = schema::recordings(&import.stdout);
    assert_eq!(recordings.len(), 1, "{}", import.stdout);
    recordings.remove(0)
}

fn points(recording: &Value) -> &[Value] {
    recording["points"].as_array().expect("points")
}

/// Imports a table, as [`perftest`] does, and checks that every row is there and says what the table says.
///
/// # Panics
/// Where one does not.
pub fn perftests_table(folder: &Path, name: &str, table: &str) -> Value {
    let recording = perftest(folder, name, table);
    let told = told(table);
    assert!(!told.is_empty() && points(&recording).len() == told.len(), "{table}\n{recording:#}");
    for it in &told {
        let is_it = |point: &&Value| point["size_bytes"] == it.size && point["figure"] == it.figure;
        let point = points(&recording).iter().find(is_it).unwrap_or_else(|| panic!("{it:?}: {recording:#}"));
        assert_eq!(point["rounds"].as_array().map(Vec::len), Some(1), "{point}");
        let value = point["rounds"][0].as_f64().expect("a number");
        assert!((value - it.value).abs() <= it.off * (1.0 + 1e-9), "{it:?}: {point}\n{table}");
    }
    recording
}

/// Checks that `perf-compare` compares two imports that lie in `folder`, and reads in them what was written.
///
/// # Panics
/// Where it doesn't.
pub fn compared(folder: &Path, [a, b]: [(&str, &Value); 2]) {
    let files = [a.0, b.0].map(|name| folder.join(format!("{name}.json")));
    let run = Tool::new("perf-compare").args("--json --order apart").arg(&files[0]).arg(&files[1]).run();
    run.exits(0);
    let document = schema::comparison(&run.stdout);
    let rows = document["comparisons"][0]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), points(a.1).len(), "{document:#}");
    for (recording, rounds) in [(a.1, "baseline_rounds"), (b.1, "arm_rounds")] {
        let read_again = |row: &Value| json!({"what": "", "size_bytes": row["size_bytes"], "figure": row["figure"], "rounds": row[rounds]});
        let again: Vec<Value> = rows.iter().map(read_again).collect();
        assert_eq!(again, points(recording), "{document:#}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_units_are_a_persons() {
        let bandwidth = |unit: &str| {
            format!(
                " #bytes #iterations BW peak[{unit}] BW average[{unit}] MsgRate[Mpps]\n 64 5 1.00 0.50 0.008\n"
            )
        };
        let of = |table: &str| -> Vec<(u64, &str, f64)> {
            told(table).iter().map(|it| (it.size, it.figure, it.value)).collect()
        };
        assert_eq!(of(&bandwidth("Gb/sec")), [(64, "bandwidth", 0.5)]);
        assert_eq!(of(&bandwidth("MB/sec")), [(64, "bandwidth", 0.004_194_304)]);
        assert_eq!(told(&bandwidth("Gb/sec"))[0].off, 0.005);
        let duration = " #bytes        #iterations       t_avg[usec]    tps average\n 8 100 12.5 80000.00\n";
        assert_eq!(of(duration), [(8, "mean", 12.5)]);
    }
}
