//! Runs that go well.

use linkproof_tests::{Running, Tool, free_port};
use serde_json::Value;

/// A server of `tool`, and what its clients need to know.
pub(crate) struct Server {
    pub(crate) process: Running,
    tool: &'static str,
    fabric: String,
    port: u16,
}

impl Server {
    /// A server on a fabric of its own, whose device `devices` describes.
    pub(crate) fn start(tool: &'static str, devices: &str) -> Self {
        Self::start_with(tool, devices, "")
    }

    /// The same with options.
    pub(crate) fn start_with(tool: &'static str, devices: &str, options: &str) -> Self {
        let port = free_port();
        let fabric = format!("test-{port}");
        let process = Tool::soft(tool, &fabric, devices).args(options).serve(port);
        Self { process, tool, fabric, port }
    }

    /// A client of it, whose device `devices` describes.
    pub(crate) fn client(&self, devices: &str) -> Tool {
        let client = Tool::soft(self.tool, &self.fabric, devices);
        client.args("127.0.0.1 --port").arg(self.port.to_string())
    }
}

/// The document of a run, for what every good one has.
pub(crate) fn good_document(tool: &'static str, options: &str) -> Value {
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

#[test]
fn every_message_of_a_ping_pong_is_looked_at_at_both_ends() {
    let document = good_document("write-lat", "-s 1,2,221,64K -n 25 --rounds 2 --validate");
    for result in document["results"].as_array().unwrap() {
        let messages = 2 * 2 * 25;
        assert_eq!(result["checked_bytes"], messages * result["size_bytes"].as_u64().unwrap(), "{result}");
        assert_eq!(result["wrong_bytes"], 0, "{result}");
    }
}

#[test]
fn each_end_sends_as_much_inline_as_its_device_takes() {
    let server = Server::start("write-lat", "soft0 max_inline=96");
    let run = |options: &str| server.client("").args("-s 2,96,97,221 -n 10 --warmup 5").args(options).run();
    let document = run("--validate --json").exits(0).document();
    let granted = |end: &str| document["link"][end]["inline_bytes"].as_u64();
    assert_eq!((granted("client"), granted("server")), (Some(220), Some(96)));
    assert_eq!(document["plan"]["queue_pair"]["inline_fixed"], false);
    let text = run("");
    let line =
        |role: &str| text.stdout.lines().find(|line| line.starts_with(role)).expect("a line of the header");
    assert!(line(" Client").ends_with(", up to 220 B inline"), "{}", text.stdout);
    assert!(line(" Server").ends_with(", up to 96 B inline"), "{}", text.stdout);
    run("-I 97").exits(4).says(&["--inline-size asks for 97 bytes of inline data and soft0 allows 96"]);
    run("-I 96").exits(0);
    let none = Server::start("write-lat", "soft0 max_inline=0");
    let text = none.client("soft0 max_inline=0").args("-n 10 --warmup 5").run();
    assert_eq!(text.exits(0).stdout.matches(", nothing inline\n").count(), 2, "{}", text.stdout);
}
