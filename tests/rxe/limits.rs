//! Locked memory and memory: refused before anything is registered, with the limit, the need and the remedy.

use linkproof_tests::lab::{Lab, User, Vm};

use crate::{client_in_b, port, server_in_a};

const NOBODY: User = User::Nobody { memlock: 65536 };

fn client_as_nobody<'a>(port: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    let mut program = vec!["write-bw", "-d", "rxe0", "-p", port, "a"];
    program.extend(options);
    program
}

#[test]
fn a_message_beyond_the_locked_memory_limit_is_refused_before_registering() {
    let Some(lab) = Lab::get("a_message_beyond_the_locked_memory_limit_is_refused_before_registering") else {
        return;
    };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    // strace shows every registration: a command to uverbs, by write or by ioctl, after the device is open. The
    // refusal has to come before the first mapping of a megabyte even.
    let script = format!(
        "strace -f -e trace=mmap write-bw -d rxe0 -p {port} a -s 1M -n 5 2>/tmp/trace; status=$?; \
                          grep -v '^mmap\\|^strace\\|^\\[pid' /tmp/trace >&2; \
                          if grep -q 'mmap(NULL, 1048576,' /tmp/trace; then echo mapped; fi; exit $status"
    );
    let outcome = lab.run_as(Vm::B, NOBODY, &["sh", "-c", &script]).expect_status(3).expect_stderr(&[
        "write-bw: cannot register 1 MiB of host memory on rxe0: the locked-memory limit is 64 KiB",
        "memlock: soft 64 KiB, hard 64 KiB, without CAP_IPC_LOCK",
        "this run pins: 1 MiB (1 of 1 MiB)",
        "hint: have an administrator raise the limit",
        "smaller --size",
    ]);
    assert!(!outcome.stderr.contains("ibv_reg_mr"), "{}", outcome.show());
    assert_eq!(outcome.stdout, "", "{}", outcome.show());
}

#[test]
fn messages_within_the_limit_pass_and_root_is_not_limited() {
    let Some(lab) = Lab::get("messages_within_the_limit_pass_and_root_is_not_limited") else { return };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    lab.run_as(Vm::B, NOBODY, &client_as_nobody(&port, &["-s", "4K", "-n", "5", "--validate"]))
        .expect_status(0)
        .expect_stdout(&["all as sent"]);
    client_in_b(lab, &port, &["-s", "1M", "-n", "3"]).expect_status(0);
}

#[test]
fn many_queue_pairs_add_up_against_the_limit() {
    let Some(lab) = Lab::get("many_queue_pairs_add_up_against_the_limit") else { return };
    lab.run_as(Vm::B, NOBODY, &client_as_nobody("1", &["-s", "4K", "-q", "17"]))
        .expect_status(3)
        .expect_stderr(&["cannot register 68 KiB", "17 of 4 KiB", "fewer --qp"]);
}

#[test]
fn the_servers_limit_is_told_at_the_client_as_the_servers() {
    let Some(lab) = Lab::get("the_servers_limit_is_told_at_the_client_as_the_servers") else { return };
    let port = port();
    let server = lab.server(Vm::A, NOBODY, &["write-bw", "-d", "rxe0", "-p", &port, "--once"]);
    client_in_b(lab, &port, &["-s", "1M", "-n", "5"]).expect_status(4).expect_stderr(&[
        "the server a could not go on: cannot register 1 MiB of host memory on rxe0",
        "memlock (there): soft 64 KiB",
    ]);
    server
        .finish()
        .expect_status(3)
        .expect_stderr(&["write-bw: cannot register 1 MiB", "client: 10.77.0.2:"]);
}

#[test]
fn more_than_the_memory_there_is() {
    let Some(lab) = Lab::get("more_than_the_memory_there_is") else { return };
    let outcome = lab
        .run(Vm::B, &["write-bw", "-d", "rxe0", "a", "-s", "8M", "-q", "256", "-t", "16"])
        .expect_status(3)
        .expect_stderr(&["write-bw: this run needs 2 GiB of host memory and", "hint: use a smaller --size"]);
    assert_eq!(outcome.stdout, "");
}

#[test]
fn more_than_the_device_allows() {
    let Some(lab) = Lab::get("more_than_the_device_allows") else { return };
    lab.run(Vm::B, &["write-bw", "-d", "rxe0", "a", "-s", "2G"])
        .expect_status(3)
        .expect_stderr(&["--size asks for messages of 2 GiB and port 1 of rxe0 allows 8 MiB"]);
    lab.run(Vm::B, &["write-bw", "-d", "rxe0", "a", "-t", "16384", "-s", "64", "-q", "16384"])
        .expect_status(3)
        .expect_stderr(&["rxe0 allows"]);
}

#[test]
fn huge_pages_are_used_where_there_are_some_and_refused_with_the_counts_where_not() {
    let Some(lab) =
        Lab::get("huge_pages_are_used_where_there_are_some_and_refused_with_the_counts_where_not")
    else {
        return;
    };
    const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
    let set = |vm, count: u32| {
        lab.run(vm, &["sh", "-c", &format!("echo {count} > {POOL}/nr_hugepages")]).expect_status(0);
    };
    let port = port();
    let _server = server_in_a(lab, &port, &[]);
    let options =
        ["--hugepages", "-q", "3", "-s", "64,1M", "-n", "2", "--rounds", "1", "--warmup", "0", "--validate"];
    client_in_b(lab, &port, &options).expect_status(3).expect_stderr(&[
        "--hugepages needs 2 pages of 2 MiB and 0 can be had",
        "0 in all, 0 free",
        "echo 2 >",
    ]);
    set(Vm::B, 4);
    client_in_b(lab, &port, &options)
        .expect_status(4)
        .expect_stderr(&["the server a could not go on: --hugepages needs 2 pages of 2 MiB"]);
    let mut tried = options;
    tried[0] = "--hugepages=try";
    client_in_b(lab, &port, &tried)
        .expect_status(0)
        .expect_stdout(&[
            "Memory       : client host memory in pages of 2 MiB, server host memory, ibv_reg_mr",
        ])
        .expect_stderr(&["warning: the server has memory in pages of the base size"]);
    set(Vm::A, 4);
    let run = client_in_b(lab, &port, &options);
    let free = lab.run(Vm::A, &["cat", &format!("{POOL}/free_hugepages")]);
    set(Vm::A, 0);
    set(Vm::B, 0);
    run.expect_status(0)
        .expect_stdout(&["Memory       : host memory in pages of 2 MiB, ibv_reg_mr", "all as sent"]);
    assert_eq!(free.stdout.trim(), "4", "the server has given its pages back");
}
