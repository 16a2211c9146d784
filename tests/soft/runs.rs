//! Runs that go well.

use linkproof_tests::{Running, Tool, free_port};
use serde_json::Value;

/// A server of `tool`, and what its clients need to know.
pub(crate) struct Server {
    _process: Running,
    tool: &'static str,
    fabric: String,
    port: u16,
}

impl Server {
    /// A server on a fabric of its own, whose device `devices` describes.
    pub(crate) fn start(tool: &'static str, devices: &str) -> Self {
        let port = free_port();
        let fabric = format!("test-{port}");
        let process = Tool::soft(tool, &fabric, devices).serve(port);
        Self { _process: process, tool, fabric, port }
    }

    /// A client of it, whose device `devices` describes.
    pub(crate) fn client(&self, devices: &str) -> Tool {
        let client = Tool::soft(self.tool, &self.fabric, devices);
        client.args("127.0.0.1 --port").arg(self.port.to_string())
    }
}

/// The document of a run, for what every good one has.
fn good_document(tool: &'static str, options: &str) -> Value {
    let server = Server::start(tool, "");
    let run = server.client("").args(options).arg("--json").run();
    let document = run.exits(0).document();
    assert_eq!(document["verdict"]["ok"], true, "{document:#}");
    assert_eq!(document["link"]["transport"], "rdma");
    document
}

#[test]
fn the_bytes_of_every_size_arrive() {
    let document = good_document("write-bw", "-a -n 20 --rounds 1 --validate");
    let results = document["results"].as_array().unwrap();
    assert_eq!(results.len(), 23);
    for result in results {
        assert_eq!(result["wrong_bytes"], 0, "{result}");
        assert!(result["checked_bytes"].as_u64() >= result["size_bytes"].as_u64(), "{result}");
    }
}

#[test]
fn both_directions_over_eight_queue_pairs() {
    let document = good_document("write-bw", "-b -q 8 -s 4K -n 100 --validate");
    assert_eq!(document["rounds"].as_array().unwrap().len(), 6);
    assert_eq!(document["results"][0]["iterations"], 8 * 100);
    assert_eq!(document["results"][0]["wrong_bytes"], 0);
    // Three rounds, two directions, eight queue pairs.
    assert_eq!(document["results"][0]["checked_bytes"], 3 * 2 * 8 * 4096);
}

#[test]
fn lists_of_inline_writes_arrive() {
    let document = good_document("write-bw", "-s 8,64 -l 16 -I 64 -n 400 --validate");
    assert_eq!(document["results"][1]["wrong_bytes"], 0);
}

#[test]
fn each_end_answers_the_others_writes() {
    let document = good_document("write-lat", "-s 2,8,4K -n 200");
    for result in document["results"].as_array().unwrap() {
        assert!(result["t_min_usec"].as_f64().unwrap() > 0.0, "{result}");
    }
}

#[test]
fn the_ends_choose_the_gids_that_fit_and_say_that_the_device_is_software() {
    let document = good_document("write-bw", "-n 20");
    let link = &document["link"];
    for end in ["client", "server"] {
        assert_eq!(link[end]["device"], "soft0");
        assert_eq!(link[end]["software"], "softnic");
        assert_eq!(link[end]["gid"]["gid"], "::ffff:127.0.0.1");
        assert_eq!(link[end]["gid"]["type"], "roce_v2");
        assert_eq!(link[end]["gid"]["netdev"], "lo");
    }
    assert_eq!(document["warnings"][0]["code"], "software-device");
}

#[test]
fn one_server_serves_client_after_client() {
    let server = Server::start("write-bw", "");
    for _ in 0..3 {
        server.client("").args("-n 20 --rounds 1").run().exits(0);
    }
}

#[test]
fn many_rounds_shorter_than_the_signal_interval_do_not_fill_the_queue() {
    // 16 sizes, three stretches each of three messages: more than twice the queue's 64 places.
    let document = good_document("write-lat", "-s 2:64K -n 3 --rounds 2");
    assert_eq!(document["results"].as_array().unwrap().len(), 16);
}
