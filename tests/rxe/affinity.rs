//! Where the ends measure, in VMs of two cores with a device that has no NUMA node.

use linkproof_tests::lab::{Lab, User, Vm};
use linkproof_tests::schema;

use crate::failures::await_traffic;
use crate::{client_in_b, port, server_in_a, start_client_in_b};

#[test]
fn each_end_measures_on_the_core_that_it_was_given() {
    let Some(lab) = Lab::get("each_end_measures_on_the_core_that_it_was_given") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &["--cores", "1"]);
    let outcome = client_in_b(lab, &port, &["-n", "50", "--cores", "1", "--json"]).expect_status(0);
    let document = outcome.json();
    schema::validate(&document);
    for end in document["conditions"].as_array().expect("both ends") {
        assert_eq!((&end["threads"]["cores"], &end["threads"]["bound_by"]), (&"1".into(), &"option".into()));
        assert_eq!(
            (&end["memory"]["bound_by"], &end["memory"]["why_not"]),
            (&"none".into(), &"no_node".into())
        );
    }
    let [client, server] = [0, 1].map(|end| &document["conditions"][end]);
    assert!(client["contention"]["thread_time_ns"].as_u64() > Some(0), "{client}");
    assert_eq!(client["clock"]["source"], "clock_monotonic");
    // One direction: the server's adapter does everything, and no thread of it measures.
    assert!(server.get("contention").is_none() && server.get("clock").is_none(), "{server}");
    let unbound = client_in_b(lab, &port, &["-n", "50"]).expect_status(0);
    unbound.expect_stdout(&[
        " Bound        : client not bound (its device has no NUMA node); server to core 1 (",
    ]);
}

#[test]
fn the_kernel_says_the_same_of_the_thread_that_measures() {
    let Some(lab) = Lab::get("the_kernel_says_the_same_of_the_thread_that_measures") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let client = start_client_in_b(lab, &port, &["-D", "30", "--rounds", "1", "--cores", "0"]);
    await_traffic(lab, Vm::B);
    // Traffic can be seen before the client has begun to watch its server.
    let script = "cd /proc/$(pidof write-bw); for i in $(seq 100); do set -- task/*; [ $# -lt 2 ] || break; sleep 0.1; done; \
         grep -h Cpus_allowed_list status task/*/status";
    let lists = lab.shell(Vm::B, script);
    let lists: Vec<&str> = lists.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(lists[0], "0", "the thread that measures, of {lists:?}");
    assert!(lists.contains(&"0-1"), "the thread that watches, of {lists:?}");
    drop(client);
}

#[test]
fn cores_and_nodes_that_a_machine_lacks_exit_3_with_those_it_has() {
    let Some(lab) = Lab::get("cores_and_nodes_that_a_machine_lacks_exit_3_with_those_it_has") else { return };
    let port = port();
    let run = |options: &[&str]| {
        let program: Vec<&str> =
            ["write-lat", "-d", "rxe0", "-p", &port].into_iter().chain(options.iter().copied()).collect();
        lab.run_as(Vm::B, User::Root, &program).expect_status(3)
    };
    run(&["a", "--cores", "1-2"]).expect_stderr(&["--cores names core 2, which", "online: cores 0-1"]);
    run(&["--cores", "7"]).expect_stderr(&["--cores names core 7, which"]);
    run(&["a", "--numa", "1"]).expect_stderr(&["this machine has no NUMA node 1", "nodes: 0"]);
}
