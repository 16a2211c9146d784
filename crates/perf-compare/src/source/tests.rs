//! Good documents, and all that can be wrong with them.

use super::*;
use crate::recording::{Figure, Key};

fn bandwidth(rounds: &[(u64, u64)]) -> String {
    let round = |(number, (messages, elapsed_ns)): (usize, &(u64, u64))| {
        format!(
            r#"{{"size_bytes": 65536, "round": {number}, "direction": "client_to_server", "messages": {messages},
            "elapsed_ns": {elapsed_ns}, "partial": false}}"#
        )
    };
    let rounds: Vec<String> = rounds.iter().enumerate().map(round).collect();
    format!(
        r#"{{"schema": "linkproof/result.v1", "tool": "write-bw", "version": "0.1.0", "command": ["write-bw"],
        "started": "2026-11-29T10:00:00.000Z", "finished": "2026-11-29T10:00:01.000Z",
        "hosts": [{{"role": "client", "name": "a\u001b[2J<script>", "kernel": "6.1"}}],
        "plan": {{"traffic": "unidirectional", "sizes_bytes": [65536]}}, "conditions": [], "evidence": [],
        "rounds": [{}], "results": [], "warnings": [], "verdict": {{"ok": true, "failures": []}}}}"#,
        rounds.join(",")
    )
}

fn read_text(text: &str) -> std::result::Result<Vec<Recording>, Trouble> {
    parse("a.json", text.as_bytes())
}

fn refusal(text: &str) -> (Option<usize>, String) {
    let trouble = read_text(text).unwrap_err();
    (trouble.line, trouble.what)
}

#[test]
fn a_bandwidth_document_gives_gbit_a_round() {
    // 1000 × 64 KiB × 8 bits in 0.1 s.
    let recording = read_text(&bandwidth(&[(1000, 100_000_000), (1000, 50_000_000)])).unwrap().remove(0);
    let key = Key { what: String::new(), size_bytes: 65536, figure: Figure::Bandwidth };
    assert_eq!(recording.point(&key).unwrap().rounds, [5.24288, 10.48576]);
    assert_eq!(recording.operation, "write bandwidth");
    assert_eq!(recording.conditions["plan.traffic"], "unidirectional");
    assert!(!recording.conditions.contains_key("plan.sizes_bytes"));
    assert_eq!(recording.conditions["hosts.client.name"], "a\\u{1b}[2J<script>");
}

#[test]
fn both_directions_of_a_round_are_added() {
    let text = bandwidth(&[(1000, 100_000_000)]);
    let round = text.split("\"rounds\": [").nth(1).unwrap().split(']').next().unwrap().to_owned();
    let both =
        text.replace(&round, &format!("{round},{}", round.replace("client_to_server", "server_to_client")));
    assert_eq!(read_text(&both).unwrap()[0].points[0].rounds, [10.48576]);
}

#[test]
fn several_documents_in_a_file_are_several_runs() {
    let one = bandwidth(&[(1000, 100_000_000)]);
    let interval = r#"{"schema": "linkproof/interval.v1", "tool": "write-bw"}"#;
    assert_eq!(read_text(&format!("{interval}\n{one}\n{one}\n")).unwrap().len(), 2);
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    let good = bandwidth(&[(1000, 100_000_000)]);
    assert_eq!(refusal(" \n"), (None, "it is empty".to_owned()));
    assert_eq!(refusal("\n#bytes #iterations\n").0, Some(2));
    assert_eq!(refusal("{}"), (Some(1), "missing field `schema`".to_owned()));
    assert_eq!(refusal("\n{\"schema\": \"other\"}"), (Some(2), "its schema is \"other\"".to_owned()));
    let torn = &good[..good.len() / 2];
    assert!(read_text(torn).unwrap_err().ends_early);
    let wrong = good.replace("\"messages\": 1000", "\"messages\": \"many\"");
    let (line, what) = refusal(&wrong);
    assert_eq!(line, Some(5));
    assert!(what.starts_with("invalid type: string \"many\", expected u64"), "{what}");
    let (line, what) = refusal(&format!("{good}\n{}", wrong));
    assert_eq!(line, Some(6 + 5), "{what}");
    assert!(refusal(&good.replace("100000000", "0")).1.contains("not a number above 0"));
    assert_eq!(refusal(&bandwidth(&[])).1, "it has no measured point");
    assert!(refusal(&good.replace("\"rounds\"", "\"sounds\"")).1.contains("missing field `rounds`"));
    let deep = format!("\"plan\": {}{}", "[".repeat(1000), "]".repeat(1000));
    let plan = "\"plan\": {\"traffic\": \"unidirectional\", \"sizes_bytes\": [65536]}";
    assert!(refusal(&good.replace(plan, &deep)).1.contains("recursion limit"));
}

#[test]
fn too_many_rounds_are_refused_before_they_are_squared() {
    let many: Vec<(u64, u64)> = (0..1001).map(|_| (1000, 1000)).collect();
    assert!(refusal(&bandwidth(&many)).1.contains("has 1001 rounds"));
}

#[test]
fn a_failed_run_says_so_and_one_that_was_too_slow_does_not() {
    let good = bandwidth(&[(1000, 100_000_000)]);
    let with = |code: &str| {
        let failures = format!("\"failures\": [{{\"code\": \"{code}\", \"what\": \"x\"}}]");
        read_text(&good.replace("\"failures\": []", &failures)).unwrap().remove(0).faults
    };
    assert_eq!(with("wrong-data"), ["wrong-data: x"]);
    assert!(with("requirement-not-met").is_empty());
}

#[test]
fn any_mutation_of_a_document_is_read_or_refused() {
    let good = bandwidth(&[(1000, 100_000_000), (900, 100_000_000)]).into_bytes();
    let mut state = 20_261_129_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..3000 {
        let mut bytes = good.clone();
        for _ in 0..=next(4) {
            let at = next(bytes.len());
            match next(4) {
                0 => bytes[at] = next(256) as u8,
                1 => bytes.truncate(at.max(1)),
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"{}[]\",:-9e\x1b\xff"[next(12)]),
            }
            if bytes.is_empty() {
                break;
            }
        }
        if let Err(trouble) = parse("x", &bytes) {
            assert!(!trouble.what.is_empty() && !trouble.what.contains('\x1b'), "{trouble:?}");
        }
    }
}
