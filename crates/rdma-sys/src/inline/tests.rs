use core::cell::RefCell;
use core::ptr::{without_provenance as data, without_provenance_mut as fake};

use super::*;

thread_local! {
    /// The calls that reached the tables, each with its arguments.
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn record(call: String) {
    CALLS.with_borrow_mut(|calls| calls.push(call));
}

/// A provider's function that records its name and arguments, pointers as addresses.
macro_rules! recorder {
    ($name:ident($($arg:ident: $t:ty),*) $(-> $ret:literal)?) => {{
        #[allow(unused_variables, reason = "the first argument, the object, is not recorded")]
        unsafe extern "C" fn $name<O>(object: *mut O, $($arg: $t),*) $(-> recorder!(@status $ret))? {
            record(format!(concat!(stringify!($name), "{:?}"), ($($arg as u64,)*)));
            $($ret)?
        }
        Some($name)
    }};
    (@status $ret:literal) => { c_int };
}

#[test]
fn posting_and_polling_reach_their_own_operation_and_return_its_answer() {
    let mut context = ibv_context::default();
    context.ops.post_send = recorder!(post_send(wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> 1);
    context.ops.post_recv = recorder!(post_recv(wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> 2);
    context.ops.poll_cq = recorder!(poll_cq(n: c_int, wc: *mut ibv_wc) -> 3);
    context.ops.req_notify_cq = recorder!(req_notify_cq(solicited: c_int) -> 4);
    let mut qp = ibv_qp { context: &raw mut context, ..Default::default() };
    let mut cq = ibv_cq { context: &raw mut context, ..Default::default() };
    let (qp, cq) = (&raw mut qp, &raw mut cq);
    // SAFETY: the objects and their context are alive, and the recorders look at no argument's target.
    let answers = unsafe {
        [
            ibv_post_send(qp, fake(10), fake(11)),
            ibv_post_recv(qp, fake(20), fake(21)),
            ibv_poll_cq(cq, 30, fake(31)),
            ibv_req_notify_cq(cq, 40),
        ]
    };
    assert_eq!(answers, [1, 2, 3, 4]);
    let expected = ["post_send(10, 11)", "post_recv(20, 21)", "poll_cq(30, 31)", "req_notify_cq(40,)"];
    assert_eq!(CALLS.take(), expected);
}

fn recording_qp() -> ibv_qp_ex {
    ibv_qp_ex {
        wr_start: recorder!(start()),
        wr_complete: recorder!(complete() -> 5),
        wr_abort: recorder!(abort()),
        wr_rdma_write: recorder!(rdma_write(rkey: u32, remote: u64)),
        wr_rdma_write_imm: recorder!(rdma_write_imm(rkey: u32, remote: u64, imm: u32)),
        wr_send: recorder!(send()),
        wr_set_sge: recorder!(set_sge(lkey: u32, addr: u64, length: u32)),
        wr_set_sge_list: recorder!(set_sge_list(count: usize, list: *const ibv_sge)),
        wr_set_inline_data: recorder!(set_inline_data(addr: *mut c_void, length: usize)),
        ..Default::default()
    }
}

#[test]
fn each_extended_work_request_reaches_its_own_operation() {
    let mut qp = recording_qp();
    let qp = &raw mut qp;
    // SAFETY: the queue pair is alive, all its operations are there, and they look at no argument's target.
    let status = unsafe {
        ibv_wr_start(qp);
        ibv_wr_rdma_write(qp, 1, 2);
        ibv_wr_set_sge(qp, 3, 4, 5);
        ibv_wr_rdma_write_imm(qp, 6, 7, 8);
        ibv_wr_set_sge_list(qp, 9, data(10));
        ibv_wr_send(qp);
        ibv_wr_set_inline_data(qp, fake(11), 12);
        ibv_wr_abort(qp);
        ibv_wr_complete(qp)
    };
    assert_eq!(status, 5);
    let expected = [
        "start()",
        "rdma_write(1, 2)",
        "set_sge(3, 4, 5)",
        "rdma_write_imm(6, 7, 8)",
        "set_sge_list(9, 10)",
        "send()",
        "set_inline_data(11, 12)",
        "abort()",
        "complete()",
    ];
    assert_eq!(CALLS.take(), expected);
}
