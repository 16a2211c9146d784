//! Completions: which requests have one, in which order, and what it says.

use crate::fact::{Notes, Outcome, facts};
use crate::objects::{Bench, Qp, QpShape, Request, Shape, Terms};
use crate::shown::{Opcode, Status, list};

facts! { "completions":
    they_come_in_the_order_of_posting,
    they_say_what_they_complete,
    an_unsignalled_success_has_none,
    a_signalled_one_stands_for_those_before_it,
    with_sq_sig_all_every_success_has_one,
    an_unsignalled_failure_has_one,
    numbers_come_back_whole,
    sends_and_receives_go_to_queues_of_their_own,
}

fn they_come_in_the_order_of_posting(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    for id in [20, 21] {
        pair.target.receive(id, 0..64)?;
    }
    // Long and short ones, of every kind.
    let requests = [
        pair.write(5, 0..16384),
        pair.write(3, 0..1).inline(),
        pair.send(9, 0..8),
        pair.write(1, 0..4096),
        Request::write_imm(7, &[], pair.target.remote(0), 1),
        pair.write(2, 0..0),
    ];
    pair.initiator.qp.must_post(&requests)?;
    let ids = pair.initiator.cq.take(6)?.into_iter().map(|completion| completion.id);
    notes.equal("numbers", "5, 3, 9, 1, 7, 2".into(), list(ids));
    let ids = pair.target.cq.take(2)?.into_iter().map(|completion| completion.id);
    notes.equal("numbers at the target", "20, 21".into(), list(ids));
    Ok(())
}

fn they_say_what_they_complete(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let here = pair.initiator.qp.qpn();
    for id in [1, 2] {
        pair.target.receive(id, 0..64)?;
    }
    let write_imm = Request::write_imm(2, &[pair.initiator.sge(0..8)], pair.target.remote(0), 1);
    let requests = [
        (Opcode::RDMA_WRITE, pair.write(1, 0..8)),
        (Opcode::RDMA_WRITE, write_imm),
        (Opcode::SEND, pair.send(3, 0..8)),
    ];
    for (opcode, request) in requests {
        let completion = pair.run(request)?;
        notes.equal("status", Status::SUCCESS, completion.status);
        notes.equal("opcode", opcode, completion.opcode);
        notes.equal("qp_num", here, completion.qpn);
    }
    for opcode in [Opcode::RECV_RDMA_WITH_IMM, Opcode::RECV] {
        let completion = pair.target.one()?;
        notes.equal("opcode at the target", opcode, completion.opcode);
        notes.equal("qp_num at the target", pair.target.qp.qpn(), completion.qpn);
    }
    Ok(())
}

fn an_unsignalled_success_has_none(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.initiator.region.put(0, &[5]);
    pair.initiator.qp.must_post(&[pair.write(1, 0..1).unsignalled()])?;
    pair.target.region.await_byte(0, 5)?;
    notes.equal("completions", "none".into(), pair.initiator.cq.rest()?);
    Ok(())
}

fn a_signalled_one_stands_for_those_before_it(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let mut requests: Vec<Request> =
        (0..7).map(|id| pair.write(id, id as usize..id as usize + 1).unsignalled()).collect();
    requests.push(pair.write(7, 7..8));
    pair.initiator.region.put(0, &[1, 2, 3, 4, 5, 6, 7, 8]);
    pair.initiator.qp.must_post(&requests)?;
    notes.equal("completions", "7 SUCCESS".into(), list(pair.initiator.cq.take(1)?));
    notes.bytes("bytes at the target", &[1, 2, 3, 4, 5, 6, 7, 8], &pair.target.region.get(0..8));
    notes.equal("completions after it", "none".into(), pair.initiator.cq.rest()?);
    Ok(())
}

fn with_sq_sig_all_every_success_has_one(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair_of(&Shape::of(QpShape { signal_all: true, ..QpShape::default() }))?;
    let requests = [1, 2, 3].map(|id| pair.write(id, 0..8).unsignalled());
    pair.initiator.qp.must_post(&requests)?;
    notes.equal("completions", "1 SUCCESS, 2 SUCCESS, 3 SUCCESS".into(), list(pair.initiator.cq.take(3)?));
    Ok(())
}

fn an_unsignalled_failure_has_one(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let mut request = pair.write(4, 0..8).unsignalled();
    request.remote.rkey ^= 0xff;
    notes.equal("status", Status::REM_ACCESS_ERR, pair.run(request)?.status);
    Ok(())
}

fn numbers_come_back_whole(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    for id in [u64::MAX, 0, 1 << 63, 0x0123_4567_89ab_cdef] {
        pair.target.receive(id, 0..8)?;
        notes.equal("a send", id, pair.run(pair.send(id, 0..8))?.id);
        notes.equal("a receive", id, pair.target.one()?.id);
    }
    Ok(())
}

fn sends_and_receives_go_to_queues_of_their_own(bench: &Bench, notes: &mut Notes) -> Outcome {
    let mut pair = bench.unconnected_pair(&Shape::default())?;
    let receives = bench.cq()?;
    pair.initiator.qp = Qp::new(&pair.initiator.pd, &pair.initiator.cq, &receives, &QpShape::default())?;
    pair.connect(bench, Terms::default())?;
    pair.initiator.receive(8, 0..8)?;
    pair.target.receive(9, 0..8)?;
    notes.equal("a send", "1 SUCCESS".into(), list([pair.run(pair.send(1, 0..8))?]));
    pair.target.qp.must_post(&[Request::send(2, &[pair.target.sge(0..8)])])?;
    notes.equal("a receive", "8 SUCCESS".into(), list(receives.take(1)?));
    notes.equal("rest of the send queue's", "none".into(), pair.initiator.cq.rest()?);
    Ok(())
}
