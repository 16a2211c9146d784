//! Our tools and perftest's own, in either role, over real verbs. Both ends are in one VM: between the two the emulator has
//! most of the time, and perftest measures its processor's clock again and again.

use linkproof_tests::lab::{Lab, Outcome, Running, User, Vm, is_long, program_limit};
use serde_json::Value;

use crate::port;

/// Runs the arguments when somebody listens at the port, which is the first. It does not connect, which perftest would take for
/// its client.
const ONCE_SERVED: &str = r#"until ss -Hltn sport = :$0 | grep -q .; do sleep 0.1; done; exec "$@""#;

fn words<'a>(program: &[&'a str], options: &'a str) -> Vec<&'a str> {
    program.iter().copied().chain(options.split_whitespace()).collect()
}

fn perftests_server(lab: &Lab, program: &str, port: &str, options: &str) -> Running {
    lab.start(Vm::A, User::Root, &words(&[program, "-d", "rxe0", "-F", "-p", port], options))
}

fn perftests_client(lab: &Lab, program: &str, port: &str, options: &str) -> Outcome {
    lab.run(Vm::A, &words(&[program, "-d", "rxe0", "-F", "-p", port, "10.77.0.1"], options))
}

fn our_client(lab: &Lab, tool: &str, port: &str, options: &str) -> Outcome {
    let program = ["sh", "-ec", ONCE_SERVED, port, tool, "-d", "rxe0", "--json", "-p", port, "10.77.0.1"];
    lab.run(Vm::A, &words(&program, options))
}

fn our_server(lab: &Lab, tool: &str, port: &str, options: &str) -> Running {
    lab.server(Vm::A, User::Root, &words(&[tool, "-d", "rxe0", "--json", "-p", port], options))
}

/// The numbers of the last line of perftest's table.
fn numbers(outcome: &Outcome) -> Vec<f64> {
    let line =
        outcome.stdout.lines().rev().find(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    let line = line.unwrap_or_else(|| panic!("no table\n{}", outcome.show()));
    line.split_whitespace().map_while(|word| word.parse().ok()).collect()
}

/// Size, count and, for bandwidth, the average are the same on both ends; of latency by time, when each end begins and stops by
/// itself, the average nearly.
fn agree(outcome: &Outcome, document: &Value) {
    linkproof_tests::schema::validate(document);
    let (theirs, row) =
        (numbers(outcome), document["results"].as_array().and_then(|rows| rows.last()).expect("a row"));
    let of = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("no {name}: {row}"));
    assert_eq!(theirs[0], of("size_bytes"));
    if row.get("t_avg_usec").is_some() && document["plan"]["round_length"]["seconds"].is_number() {
        assert!((theirs[2] / of("t_avg_usec") - 1.0).abs() < 0.25, "{theirs:?}: {row}");
    } else {
        assert_eq!(theirs[1], of("iterations"));
    }
    if row.get("bw_average_mib_per_sec").is_some() {
        assert!((theirs[3] / of("bw_average_mib_per_sec") - 1.0).abs() < 0.02, "{theirs:?}: {row}");
    }
    assert_eq!(document["peer"]["version"], "6.06");
}

/// A measurement, in perftest's words, which are ours as well.
struct Case {
    tool: &'static str,
    /// As users have it, and as the tests do with `LINKPROOF_LAB_LONG`.
    whole: &'static str,
    /// The same with fewer messages: the emulated adapter moves some 40 MiB/s.
    short: &'static str,
}

impl Case {
    const fn of(tool: &'static str, whole: &'static str, short: &'static str) -> Self {
        Self { tool, whole, short }
    }

    fn options(&self) -> &'static str {
        if is_long() { self.whole } else { self.short }
    }

    fn perftests_program(&self) -> String {
        format!("ib_{}", self.tool.replace('-', "_"))
    }
}

/// With all 5000 messages of each size `-a` moves 78 GiB, in half an hour.
const CASES: &[Case] = &[
    Case::of("write-bw", "", "-n 100"),
    Case::of("write-bw", "-s 1048576 -n 200", "-s 1048576 -n 20"),
    Case::of("write-bw", "-a -n 20", "-a -n 5"),
    Case::of("write-bw", "-q 4", "-q 4 -n 50"),
    Case::of("write-bw", "-D 2", "-D 2"),
    Case::of("write-bw", "-b", "-b -n 50"),
    Case::of("write-bw", "-b -q 4 -n 1000", "-b -q 4 -n 50"),
    Case::of("write-lat", "", ""),
    Case::of("write-lat", "-s 8 -n 200", "-s 8 -n 200"),
    Case::of("write-lat", "-a -n 20", "-a -n 5"),
    Case::of("write-lat", "-D 2", "-D 2"),
];

#[test]
fn our_clients_measure_against_perftests_servers() {
    let Some(lab) = Lab::get("our_clients_measure_against_perftests_servers") else { return };
    for case in CASES {
        let port = port();
        let server = perftests_server(lab, &case.perftests_program(), &port, case.options());
        // Rounds and a warm-up beforehand are the first case's.
        let rounds = if case.whole.is_empty() { "" } else { "--rounds 1 --warmup 0" };
        let options = format!("{} {rounds}", case.options());
        let document = our_client(lab, case.tool, &port, &options).expect_status(0).json();
        agree(&server.finish().expect_status(0), &document);
    }
}

/// Whether our server has to be told what a perftest's client does: it takes what comes in one direction, and latency at its
/// defaults.
fn has_to_be_told(case: &Case) -> bool {
    case.whole.contains("-b") || case.tool == "write-lat" && !case.whole.is_empty()
}

/// Serves a client of perftest's, as the `nth` that `server` serves.
fn serve_perftest(lab: &Lab, server: &mut Running, port: &str, nth: usize, case: &Case) {
    let client = perftests_client(lab, &case.perftests_program(), port, case.options());
    agree(&client.expect_status(0), &server.await_documents(nth, program_limit())[nth - 1]);
}

#[test]
fn our_servers_serve_perftests_clients_and_ours_in_turn() {
    let Some(lab) = Lab::get("our_servers_serve_perftests_clients_and_ours_in_turn") else { return };
    for tool in ["write-bw", "write-lat"] {
        let port = port();
        let mut server = our_server(lab, tool, &port, "");
        let cases = || CASES.iter().filter(|case| case.tool == tool && !has_to_be_told(case));
        for (nth, case) in (1..).zip(cases()) {
            serve_perftest(lab, &mut server, &port, nth, case);
        }
        our_client(lab, tool, &port, "-n 20 --rounds 1").expect_status(0);
        serve_perftest(lab, &mut server, &port, cases().count() + 2, cases().next().expect("a case"));
    }
}

#[test]
fn our_servers_that_are_told_what_perftests_clients_do_serve_ours_as_well() {
    let name = "our_servers_that_are_told_what_perftests_clients_do_serve_ours_as_well";
    let Some(lab) = Lab::get(name) else { return };
    for case in CASES.iter().filter(|case| has_to_be_told(case)) {
        let port = port();
        let options = format!("--peer-protocol perftest {}", case.options());
        let mut server = our_server(lab, case.tool, &port, &options);
        serve_perftest(lab, &mut server, &port, 1, case);
        our_client(lab, case.tool, &port, "-s 64 -n 20 --rounds 1 --warmup 0").expect_status(0);
    }
}

#[test]
fn options_that_differ_from_perftests_are_told() {
    let Some(lab) = Lab::get("options_that_differ_from_perftests_are_told") else { return };
    let cases = [
        ("-q 4 -n 50", "", "does not have 4 queue pairs"),
        ("-s 1M -n 5", "-s 4096", "must match on the other end"),
        ("-b -n 50", "", "it has not measured"),
        ("-n 50", "-b -n 50", "must match on the other end"),
    ];
    for (ours, theirs, told) in cases {
        let port = port();
        let _server = perftests_server(lab, "ib_write_bw", &port, theirs);
        our_client(lab, "write-bw", &port, ours).expect_status(4).expect_stderr(&[told]);
    }
    // An IPv6 address here, an IPv4 address there.
    let port = port();
    let _server = perftests_server(lab, "ib_write_bw", &port, "-x 1");
    let families = our_client(lab, "write-bw", &port, "-n 20 -x 0").expect_status(4);
    families.expect_stderr(&["they cannot talk to each other"]);
}

/// A client of perftest's on the other VM. Its packets take longer there than the 67 ms that it waits for acknowledgements by
/// default. One that hangs is ended with status 124.
fn perftests_client_on_b(lab: &Lab, port: &str, options: &str) -> Outcome {
    let program = ["timeout", "30", "ib_write_bw", "-d", "rxe0", "-F", "-p", port, "10.77.0.1"];
    lab.run(Vm::B, &words(&program, options))
}

#[test]
fn four_queue_pairs_of_a_client_that_waits_long_enough_are_served() {
    let Some(lab) = Lab::get("four_queue_pairs_of_a_client_that_waits_long_enough_are_served") else {
        return;
    };
    let port = port();
    let mut server = our_server(lab, "write-bw", &port, "");
    for nth in 1..=3 {
        let client = perftests_client_on_b(lab, &port, "-q 4 -n 50 -u 18").expect_status(0);
        agree(&client, &server.await_documents(nth, program_limit())[nth - 1]);
    }
}

/// Linux 6.1's Soft-RoCE sends an empty write when the late acknowledgement of a write meets its repetition. Whoever the server
/// is, the client ends with status 9 then; a run in ten or so goes well all the same.
#[test]
fn a_client_that_repeats_what_was_only_slow_is_told_from_its_repeats() {
    let Some(lab) = Lab::get("a_client_that_repeats_what_was_only_slow_is_told_from_its_repeats") else {
        return;
    };
    let port = port();
    let mut server = our_server(lab, "write-bw", &port, "");
    let failed = (1..=8).find_map(|nth| {
        let client = perftests_client_on_b(lab, &port, "-q 4 -n 50 -u 10");
        let documents = server.await_documents(nth, program_limit());
        // Now and then one waits for a completion that does not come, until it is ended.
        (client.status == 1).then(|| (client, documents[nth - 1].clone()))
    });
    let (client, document) = failed.expect("one of eight clients that wait for 4 ms fails");
    let failure = &document["verdict"]["failures"][0];
    assert_eq!(failure["code"], "peer-lost", "{}", client.show());
    let hint = failure["hint"].as_str().unwrap_or_default();
    assert!(hint.contains("packets of it came twice") && hint.contains("-u 18"), "{hint}");
}

/// With -D perftest says that it is through while writes are on their way: between hosts they arrive after that.
#[test]
fn a_client_by_time_on_another_host_is_not_taken_for_one_of_both_directions() {
    let Some(lab) = Lab::get("a_client_by_time_on_another_host_is_not_taken_for_one_of_both_directions")
    else {
        return;
    };
    let port = port();
    let mut server = our_server(lab, "write-bw", &port, "");
    let client = perftests_client_on_b(lab, &port, "-D 2 -u 18");
    let documents = server.await_documents(1, program_limit());
    agree(&client.expect_status(0), &documents[0]);
}
