//! Of the blind trial (`tests/rxe/trial.rs`) what an emulated network is too slow for.

use crate::runs::Server;

/// linux-rdma/perftest#318: one size alone gave far less than in a sweep, which had warmed up.
#[test]
fn a_round_that_is_too_short_to_be_trusted_is_told() {
    let server = Server::start("write-bw", "soft0");
    let run = server.client("soft0").args("-s 8 -n 100 --json").run();
    let document = run.exits(0).document();
    let warnings = document["warnings"].as_array().expect("a list");
    let short = warnings.iter().find(|warning| warning["code"] == "short-rounds").expect("it is warned of");
    assert!(short["hint"].as_str().expect("a hint").contains("-n"), "{short}");
}

/// The same with messages that take so long that the round is not short.
#[test]
fn rounds_of_few_messages_are_told_however_long_they_take() {
    let server = Server::start("write-bw", "soft0");
    let document = server.client("soft0").args("-s 64M -n 3 --rounds 2 --json").run().exits(0).document();
    let warnings = document["warnings"].as_array().expect("a list");
    let few = warnings.iter().find(|warning| warning["code"] == "few-messages").expect("it is warned of");
    assert!(few["seen"].as_str().expect("words").ends_with("at 64 MiB, down to 3"), "{few}");
}
