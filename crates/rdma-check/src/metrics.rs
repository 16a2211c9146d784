//! For a monitoring system: Prometheus' text format, in a file that its node exporter's text collector reads.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use linkproof_common::error::{Error, ErrorKind, Result, show_io_error};
use linkproof_common::finding::Severity;
use linkproof_common::node::Node;

use crate::document::Document;

/// Writes the metrics of `document` to `path`, all of them or none: a reader finds the old file or the new one.
///
/// # Errors
/// [`ErrorKind::Output`] with the path.
pub fn write(document: &Document, path: &Path) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::new(ErrorKind::Output, format!("cannot write {}: {}", path.display(), show_io_error(&error)))
    };
    // In the same folder, so that renaming does not cross file systems. The collector reads *.prom only.
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = Path::new(&beside);
    fs::write(beside, text(document)).and_then(|()| fs::rename(beside, path)).map_err(|error| {
        // What is left of a failed attempt is nobody's.
        let _ = fs::remove_file(beside);
        failed(error)
    })
}

/// A metric with all its samples: labels and values.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: Vec<(Vec<(&'static str, String)>, String)>,
}

impl Metric {
    fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: "gauge", help, samples: Vec::new() }
    }

    fn counter(name: &'static str, help: &'static str) -> Self {
        Self { kind: "counter", ..Self::gauge(name, help) }
    }

    fn sample(mut self, labels: Vec<(&'static str, String)>, value: impl ToString) -> Self {
        self.samples.push((labels, value.to_string()));
        self
    }

    fn render(&self, text: &mut String) {
        if self.samples.is_empty() {
            return;
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP {} {}\n# TYPE {} {}", self.name, self.help, self.name, self.kind);
        for (labels, value) in &self.samples {
            let labels: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(text, "{}{labels} {value}", self.name);
        }
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The whole text.
pub fn text(document: &Document) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let fit = document.verdict.worst.is_some_and(|worst| worst < Severity::Unfit);
    let mut metrics = vec![
        Metric::gauge("linkproof_node_fit", "Whether nothing stops every run (1), or something does (0).")
            .sample(Vec::new(), u8::from(fit)),
        Metric::gauge("linkproof_check_timestamp_seconds", "When the node was looked at.")
            .sample(Vec::new(), now),
        findings(document),
    ];
    if let Some(node) = &document.node {
        metrics.extend(of_ports(node));
    }
    let mut text = String::new();
    metrics.iter().for_each(|metric| metric.render(&mut text));
    text
}

fn findings(document: &Document) -> Metric {
    let metric = Metric::gauge("linkproof_finding", "What was found, and of what; notes and worse.");
    let worth = document.findings.iter().filter(|finding| finding.severity > Severity::Ok);
    worth.fold(metric, |metric, finding| {
        let labels = |on: &str| {
            vec![
                ("code", finding.code.name().to_owned()),
                ("severity", finding.severity.name().to_owned()),
                ("on", on.to_owned()),
            ]
        };
        let of_node = [String::new()];
        let on = if finding.on.is_empty() { of_node.as_slice() } else { finding.on.as_slice() };
        on.iter().fold(metric, |metric, on| metric.sample(labels(on), 1))
    })
}

fn of_ports(node: &Node) -> Vec<Metric> {
    let mut active = Metric::gauge("linkproof_port_active", "Whether the port is ACTIVE.");
    let mut rate = Metric::gauge("linkproof_port_rate_bits_per_second", "The port's signalling rate.");
    let mut bus = Metric::gauge(
        "linkproof_pcie_bits_per_second",
        "What the adapter's PCIe link carries after its line code.",
    );
    let mut counters =
        Metric::counter("linkproof_port_counter_total", "The adapter's own counters, by their names.");
    let bits = |gbit: f64| format!("{:.0}", gbit * 1e9);
    for (device, port) in node.ports() {
        let labels = || vec![("device", device.name.clone()), ("port", port.port_num.to_string())];
        if let Some(is_active) = port.is_active() {
            active = active.sample(labels(), u8::from(is_active));
        }
        if let Some(bandwidth) = port.bandwidth() {
            rate = rate.sample(labels(), bits(bandwidth.gbit_per_sec()));
        }
        for (name, count) in &port.counters {
            let mut labels = labels();
            labels.push(("counter", name.clone()));
            counters = counters.sample(labels, count);
        }
    }
    for device in &node.devices {
        if let Some(link) = device.pci.as_ref().and_then(|pci| pci.link) {
            bus = bus.sample(vec![("device", device.name.clone())], bits(link.bandwidth().gbit_per_sec()));
        }
    }
    vec![active, rate, bus, counters]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::View;
    use linkproof_common::finding::examine;
    use linkproof_common::host::HostFiles;
    use linkproof_common::node::fixture;

    fn document() -> Document {
        let folder = tempfile::tempdir_in(fixture::quick_folder()).unwrap();
        fixture::degraded_link().write_to(folder.path()).unwrap();
        let node = Node::read(&HostFiles::below(folder.path()));
        let findings = examine(&node);
        Document::of(node, findings, View::All, false)
    }

    #[test]
    fn a_node_in_prometheus_text() {
        let text = text(&document());
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("timestamp")).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn every_line_is_a_comment_or_a_sample() {
        for line in text(&document()).lines().filter(|line| !line.starts_with("# ")) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("linkproof_") && value.parse::<f64>().is_ok(), "{line}");
        }
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }

    #[test]
    fn the_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rdma.prom");
        fs::write(&path, "old").unwrap();
        write(&document(), &path).unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with("# HELP linkproof_node_fit"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let error = write(&document(), &folder.path().join("no/such/folder/x")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Output);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
