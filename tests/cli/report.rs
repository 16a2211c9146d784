//! The page of `perf-compare --html`: what is in it, and how a real browser takes it.

use std::fs;
use std::path::Path;

use linkproof_tests::{Finished, Tool, installed, skip};
use serde_json::{Value, json};

use crate::compare::{bandwidth, compare, folder, write};

/// Six runs of two arms made in turn, four sizes each, the second arm faster at the large ones; names that want to be
/// markup, and a lone slow round.
fn sitting(folder: &Path) {
    for index in 0..6_u32 {
        for (arm, factor) in [("a", 1.0), ("b", 1.25)] {
            let second = 2 * index + u32::from((arm == "b") == (index % 2 == 0));
            let slow = if arm == "b" && index == 4 { 0.5 } else { 1.0 };
            let scatter = 1.0 + f64::from(index % 3) / 100.0;
            let mut run = bandwidth(second, &[]);
            let rounds = [(64, 0.05, 1.0), (4096, 2.0, 1.0), (65536, 9.0, factor), (1 << 20, 11.0, factor)];
            let round = |(size, gbit, factor): (u64, f64, f64)| {
                let mut round = bandwidth(0, &[gbit * factor * scatter * slow])["rounds"][0].clone();
                let elapsed = round["elapsed_ns"].as_u64().expect("a number") * size / 65536;
                round["size_bytes"] = json!(size);
                round["elapsed_ns"] = json!(elapsed.max(1));
                round
            };
            run["rounds"] = Value::Array(rounds.map(round).to_vec());
            run["link"]["client"]["netdev"] = json!(format!("{arm}</td><script>alert(1)</script>"));
            write(folder, &format!("{arm}-{index}.json"), &run);
        }
    }
}

fn page(folder: &Path) -> String {
    let run = compare(folder, "tcp=DIR/a-*.json rdma=DIR/b-*.json --html=DIR/report.html");
    run.exits(0);
    assert!(run.stdout.contains("rdma against tcp"), "the table is shown as well: {}", run.stdout);
    fs::read_to_string(folder.join("report.html")).expect("a file")
}

#[test]
fn the_page_has_the_verdict_every_round_and_no_markup_of_a_file() {
    let folder = folder();
    sitting(folder.path());
    let page = page(folder.path());
    // One slow run of six decides nothing, and is not left out.
    assert!(page.contains("rdma against tcp: no measurable difference"));
    assert!(!page.contains("<script") && page.contains("a&lt;/td&gt;&lt;script&gt;alert(1)&lt;/script&gt;"));
    // Four points, two arms, six rounds: each once in the table of rounds.
    let rounds = page.split("<h2>Rounds of").nth(1).expect("the rounds");
    assert_eq!(rounds.matches("<tr>").count(), 1 + 4 * 2);
    let table = rounds.split("<table").nth(1).expect("a table");
    assert_eq!(table.matches("<td").count(), 4 * 2 * (3 + 6));
    assert!(table.contains("<td class=\"odd\">"), "the lone slow round is marked");
    compare(folder.path(), "tcp=DIR/a-*.json rdma=DIR/b-*.json --html=DIR/none/report.html").exits(3);
}

/// Opens `url` in the browser; `None` and a reason where it isn't installed.
fn browser(folder: &Path, options: &str, file: &Path) -> Finished {
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let common = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking \
                  --allow-file-access-from-files --enable-logging=stderr --virtual-time-budget=3000";
    Tool::program(Path::new("/usr/bin/env"))
        .arg("chromium")
        .args(common)
        .arg(profile)
        .args(options)
        .arg(format!("file://{}", file.display()))
        .run()
}

/// A page with the report at two widths, which writes down whether anything reaches beyond its place.
const PROBE: &str = r#"<!DOCTYPE html><body><script>
const seen = [];
for (const width of [360, 1440]) {
  const frame = document.createElement("iframe");
  frame.src = "report.html"; frame.style = `width:${width}px;height:900px;border:0`;
  frame.onload = () => {
    const page = frame.contentDocument, root = page.documentElement;
    const outside = [...page.querySelectorAll("svg text")].filter((text) => {
      const chart = text.closest("svg").getBoundingClientRect(), box = text.getBoundingClientRect();
      return box.left < chart.left - 1 || box.right > chart.right + 1 || box.bottom > chart.bottom + 1;
    });
    const requests = frame.contentWindow.performance.getEntriesByType("resource").length;
    seen.push(`at ${width}: ${root.scrollWidth <= width ? "fits" : "is " + root.scrollWidth + " wide"}, ` +
      `${outside.length} texts outside of their charts, ${requests} requests`);
    document.title = seen.sort().join("; ");
  };
  document.body.append(frame);
}
</script>"#;

#[test]
fn a_browser_shows_the_page_at_any_width_and_loads_nothing() {
    if !installed("chromium") {
        return skip("a_browser_shows_the_page_at_any_width_and_loads_nothing", "chromium is not installed");
    }
    let folder = folder();
    sitting(folder.path());
    page(folder.path());
    let probe = folder.path().join("probe.html");
    fs::write(&probe, PROBE).expect("a file");
    let run = browser(folder.path(), "--dump-dom", &probe);
    run.exits(0);
    for width in [360, 1440] {
        let words = format!("at {width}: fits, 0 texts outside of their charts, 0 requests");
        assert!(run.stdout.contains(&words), "{words}: {}", run.stdout.lines().next().unwrap_or_default());
    }
    assert!(!run.stderr.contains("CONSOLE"), "{}", run.stderr);
    for (width, name) in [(500, "narrow.png"), (1440, "wide.png")] {
        let picture = folder.path().join(name);
        let options = format!("--window-size={width},2000 --screenshot={}", picture.display());
        browser(folder.path(), &options, &folder.path().join("report.html")).exits(0);
        let bytes = fs::read(&picture).expect("a picture");
        // The header of a PNG has its width at byte 16. An empty page takes some 10 kB.
        assert_eq!(bytes.get(16..20), Some(&u32::to_be_bytes(width)[..]));
        assert!(bytes.len() > 30_000, "{name}: {} bytes", bytes.len());
    }
}
