//! Every place of the fault description with every effect: each has its exit status, its code and its words, nothing hangs,
//! and the server goes on.

use linkproof_tests::schema;

use crate::runs::Server;

const ERRNOS: &[&str] = &[
    "EPERM",
    "EIO",
    "EAGAIN",
    "ENOMEM",
    "EACCES",
    "EFAULT",
    "EBUSY",
    "ENODEV",
    "EINVAL",
    "ENOSYS",
    "EOPNOTSUPP",
    "ENETUNREACH",
    "ETIMEDOUT",
    "EHOSTUNREACH",
];

const STATUSES: &[&str] = &[
    "LOC_LEN_ERR",
    "LOC_QP_OP_ERR",
    "LOC_PROT_ERR",
    "WR_FLUSH_ERR",
    "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",
    "REM_INV_REQ_ERR",
    "REM_ACCESS_ERR",
    "REM_OP_ERR",
    "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR",
    "REM_ABORT_ERR",
    "FATAL_ERR",
    "RESP_TIMEOUT_ERR",
    "GENERAL_ERR",
];

/// A call that fails each time: with which options it is made, and what comes of it.
struct Call {
    site: &'static str,
    options: &'static str,
    exit: i32,
    code: &'static str,
    says: &'static str,
}

const fn call(
    site: &'static str,
    options: &'static str,
    exit: i32,
    code: &'static str,
    says: &'static str,
) -> Call {
    Call { site, options, exit, code, says }
}

const CALLS: &[Call] = &[
    call("open_device", "", 3, "device-unusable", "cannot open soft0: ibv_open_device: "),
    call("query_device", "", 3, "device-unusable", "cannot query soft0: ibv_query_device: "),
    call("query_port", "", 3, "device-unusable", "cannot query soft0: ibv_query_port 1: "),
    call("alloc_pd", "", 3, "verbs-resource", "cannot create a protection domain on soft0: ibv_alloc_pd: "),
    call("reg_mr", "", 3, "registration", "of host memory on soft0: ibv_reg_mr: "),
    call("create_cq", "", 3, "verbs-resource", "cannot create a completion queue of "),
    // A list goes by ibv_post_send, for which queue pairs are made by the older call.
    call("create_qp", "-l 4", 3, "verbs-resource", "cannot create a queue pair for "),
    call("modify_qp", "", 3, "verbs-resource", "stayed in RESET, wanted INIT: ibv_modify_qp: "),
    call("post_send", "", 4, "completion", "cannot post a write on QP 0x"),
    call("poll_cq", "", 4, "completion", "cannot poll the completion queue on soft0: ibv_poll_cq: "),
];

#[test]
fn every_call_fails_by_its_name_with_every_errno() {
    let server = Server::start("write-bw", "soft0");
    for Call { site, options, exit, code, says } in CALLS {
        for errno in ERRNOS {
            let line = format!("-n 50 {options} --json");
            let run = server.client(&format!("soft0 fault={site}@1+:{errno}")).args(&line).run();
            run.exits(*exit).says(&[says]);
            // What ibv_poll_cq returns is below zero, and no errno by its manual page.
            assert!(run.stderr.contains(errno) || *site == "poll_cq", "{errno}: {}", run.stderr);
            let document = run.document();
            schema::validate(&document);
            assert_eq!(document["verdict"]["failures"][0]["code"], *code, "{site} {errno}");
        }
    }
    server.client("soft0").args("-n 50").run().exits(0);
}

#[test]
fn a_queue_pair_that_only_the_older_call_makes_is_as_good() {
    let server = Server::start("write-bw", "soft0");
    for errno in ERRNOS {
        let line = "-n 50 --validate --json";
        let run = server.client(&format!("soft0 fault=create_qp_ex@1+:{errno}")).args(line).run();
        let document = run.exits(0).document();
        assert_eq!(document["link"]["client"]["posting"], "ibv_post_send", "{errno}");
    }
}

#[test]
fn every_status_of_a_request_is_named_by_both_tools() {
    for tool in ["write-bw", "write-lat"] {
        let server = Server::start(tool, "soft0");
        for status in STATUSES {
            let run = server.client(&format!("soft0 fault=send@60:{status}")).args("-n 100 --json").run();
            run.exits(4).says(&[status, "meaning: ", "vendor 0x0, on QP 0x"]);
            let document = run.document();
            schema::validate(&document);
            assert_eq!(document["verdict"]["failures"][0]["code"], "completion", "{tool} {status}");
        }
        server.client("soft0").args("-n 50").run().exits(0);
    }
}
