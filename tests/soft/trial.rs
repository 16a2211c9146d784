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
