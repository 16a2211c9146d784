//! Extended posting: `ibv_wr_start` to `ibv_wr_complete`.

use rdma_sys as sys;

use crate::fact::{Notes, Obstacle, Outcome, facts};
use crate::objects::{Bench, Extended, Pair, Qp, QpShape, Shape, answer};
use crate::shown::{Errno, Opcode, Status, list};

facts! { "extended":
    a_queue_pair_not_made_for_it_has_no_extended_face,
    an_operation_that_nobody_has_is_refused,
    a_batch_is_posted_in_order,
    nothing_is_posted_before_the_batch_is_complete,
    an_aborted_batch_is_forgotten,
    a_batch_without_requests_is_complete,
    a_batch_may_be_of_many_kinds,
    inline_data_is_copied_when_it_is_set,
    pieces_are_gathered,
    an_unsignalled_request_has_no_completion,
    more_than_the_queue_holds_posts_nothing,
    too_much_inline_data_posts_nothing,
    both_ways_of_posting_may_be_mixed,
}

const OPERATIONS: u64 = (sys::IBV_QP_EX_WITH_RDMA_WRITE
    | sys::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | sys::IBV_QP_EX_WITH_SEND) as u64;

fn pair_of(bench: &Bench) -> Result<Pair, Obstacle> {
    bench.pair_of(&Shape { operations: Some(OPERATIONS), ..Shape::default() })
}

fn face(pair: &Pair) -> Result<Extended<'_>, Obstacle> {
    pair.initiator.qp.extended().ok_or_else(|| Obstacle("ibv_qp_to_qp_ex: NULL".into()))
}

fn a_queue_pair_not_made_for_it_has_no_extended_face(bench: &Bench, notes: &mut Notes) -> Outcome {
    notes.equal("extended face", false, bench.lone_qp()?.extended().is_some());
    Ok(())
}

fn an_operation_that_nobody_has_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (pd, cq) = (bench.pd()?, bench.cq()?);
    let made = Qp::with_operations(&pd, &cq, &cq, &QpShape::default(), 1 << 50);
    notes.either("bit 50", &[Errno::EOPNOTSUPP, Errno::EINVAL], answer(&made));
    Ok(())
}

fn a_batch_is_posted_in_order(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = pair_of(bench)?;
    pair.initiator.region.put(0, &[1, 2, 3, 4]);
    let mut face = face(&pair)?;
    let mut batch = face.start();
    for place in [3, 1, 0, 2] {
        let piece = pair.initiator.sge(place..place + 1);
        batch.write(place as u64, pair.target.remote(place)).sge(piece);
    }
    notes.equal("ibv_wr_complete", Errno::DONE, batch.complete());
    let expected = "3 SUCCESS, 1 SUCCESS, 0 SUCCESS, 2 SUCCESS";
    notes.equal("completions", expected.into(), list(pair.initiator.cq.take(4)?));
    notes.bytes("bytes at the target", &[1, 2, 3, 4], &pair.target.region.get(0..4));
    Ok(())
}

fn nothing_is_posted_before_the_batch_is_complete(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = pair_of(bench)?;
    let mut face = face(&pair)?;
    let mut batch = face.start();
    batch.write(1, pair.target.remote(0)).sge(pair.initiator.sge(0..8));
    notes.equal("completions before", "none".into(), pair.initiator.cq.rest()?);
    notes.equal("ibv_wr_complete", Errno::DONE, batch.complete());
    notes.equal("completions", "1 SUCCESS".into(), list(pair.initiator.cq.take(1)?));
    Ok(())
}

fn an_aborted_batch_is_forgotten(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = pair_of(bench)?;
    pair.initiator.region.put(0, &[1; 8]);
    let mut face = face(&pair)?;
    let mut batch = face.start();
    for id in 1..=3 {
        batch.write(id, pair.target.remote(0)).sge(pair.initiator.sge(0..8));
    }
    batch.abort();
    notes.equal("completions", "none".into(), pair.initiator.cq.rest()?);
    notes.bytes("bytes at the target", &[0; 8], &pair.target.region.get(0..8));
    let mut batch = face.start();
    batch.write(4, pair.target.remote(0)).sge(pair.initiator.sge(0..8));
    notes.equal("ibv_wr_complete of the next", Errno::DONE, batch.complete());
    notes.equal("completions of the next", "4 SUCCESS".into(), list(pair.initiator.cq.take(1)?));
    notes.equal("completions after it", "none".into(), pair.initiator.cq.rest()?);
    Ok(())
}

fn a_batch_without_requests_is_complete(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = pair_of(bench)?;
    notes.equal("ibv_wr_complete", Errno::DONE, face(&pair)?.start().complete());
    notes.equal("completions", "none".into(), pair.initiator.cq.rest()?);
    Ok(())
}

fn a_batch_may_be_of_many_kinds(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = pair_of(bench)?;
    pair.target.receive(11, 0..64)?;
    pair.target.receive(12, 0..64)?;
    let mut face = face(&pair)?;
    let mut batch = face.start();
    batch.write(1, pair.target.remote(64)).sge(pair.initiator.sge(0..1));
    batch.write_imm(2, pair.target.remote(64), 0x1234).sge(pair.initiator.sge(0..8));
    batch.send(3).sge(pair.initiator.sge(0..5));
    notes.equal("ibv_wr_complete", Errno::DONE, batch.complete());
    let opcodes = pair.initiator.cq.take(3)?.into_iter().map(|completion| completion.opcode);
    notes.equal("opcodes", "RDMA_WRITE, RDMA_WRITE, SEND".into(), list(opcodes));
    let received = pair.target.cq.take(2)?;
    notes.equal("immediate data", "Some(1234)".into(), format!("{:x?}", received[0].imm));
    notes.equal("opcode of the second receive", Opcode::RECV, received[1].opcode);
    notes.equal("byte_len of the second receive", 5, received[1].byte_len);
    Ok(())
}

fn inline_data_is_copied_when_it_is_set(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = pair_of(bench)?;
    let mut face = face(&pair)?;
    let mut bytes = *b"first";
    let mut batch = face.start();
    batch.write(1, pair.target.remote(0)).inline(&bytes);
    bytes = *b"other";
    batch.write(2, pair.target.remote(8)).inline(&bytes);
    notes.equal("ibv_wr_complete", Errno::DONE, batch.complete());
    notes.equal("completions", "1 SUCCESS, 2 SUCCESS".into(), list(pair.initiator.cq.take(2)?));
    notes.bytes("bytes at the target", b"first\0\0\0other", &pair.target.region.get(0..13));
    Ok(())
}

fn pieces_are_gathered(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = pair_of(bench)?;
    pair.initiator.region.put(0, b"abcdef");
    let piece = |part| pair.initiator.sge(part);
    let mut face = face(&pair)?;
    let mut batch = face.start();
    batch.write(1, pair.target.remote(0)).sges(&[piece(4..6), piece(0..1), piece(2..3)]);
    notes.equal("ibv_wr_complete", Errno::DONE, batch.complete());
    notes.equal("status", Status::SUCCESS, pair.initiator.one()?.status);
    notes.bytes("bytes at the target", b"efac\0", &pair.target.region.get(0..5));
    Ok(())
}

fn an_unsignalled_request_has_no_completion(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = pair_of(bench)?;
    let mut face = face(&pair)?;
    let mut batch = face.start();
    batch.silent_write(1, pair.target.remote(0)).sge(pair.initiator.sge(0..8));
    batch.write(2, pair.target.remote(0)).sge(pair.initiator.sge(0..8));
    notes.equal("ibv_wr_complete", Errno::DONE, batch.complete());
    notes.equal("completions", "2 SUCCESS".into(), list(pair.initiator.cq.take(1)?));
    notes.equal("after it", "none".into(), pair.initiator.cq.rest()?);
    Ok(())
}

/// "If any request fails, none of the batch is posted."
fn more_than_the_queue_holds_posts_nothing(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = pair_of(bench)?;
    let room = pair.initiator.qp.query()?.limits().send_wr;
    let mut face = face(&pair)?;
    let mut batch = face.start();
    for id in 0..=room {
        batch.write(id.into(), pair.target.remote(0)).sge(pair.initiator.sge(0..8));
    }
    notes.either("ibv_wr_complete", &[Errno::ENOMEM, Errno::ENOSPC], batch.complete());
    notes.equal("completions", "none".into(), pair.initiator.cq.rest()?);
    let mut batch = face.start();
    batch.write(99, pair.target.remote(0)).sge(pair.initiator.sge(0..8));
    notes.equal("ibv_wr_complete of the next", Errno::DONE, batch.complete());
    notes.equal("completions of the next", "99 SUCCESS".into(), list(pair.initiator.cq.take(1)?));
    Ok(())
}

fn too_much_inline_data_posts_nothing(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = pair_of(bench)?;
    let room = pair.initiator.qp.query()?.limits().inline as usize;
    let mut face = face(&pair)?;
    let mut batch = face.start();
    batch.write(1, pair.target.remote(0)).sge(pair.initiator.sge(0..8));
    batch.write(2, pair.target.remote(0)).inline(&vec![1; room + 1]);
    notes.either("ibv_wr_complete", &[Errno::EINVAL, Errno::ENOMEM, Errno::ENOSPC], batch.complete());
    notes.equal("completions", "none".into(), pair.initiator.cq.rest()?);
    Ok(())
}

fn both_ways_of_posting_may_be_mixed(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = pair_of(bench)?;
    pair.initiator.qp.must_post(&[pair.write(1, 0..8)])?;
    let mut face = face(&pair)?;
    let mut batch = face.start();
    batch.write(2, pair.target.remote(0)).sge(pair.initiator.sge(0..8));
    notes.equal("ibv_wr_complete", Errno::DONE, batch.complete());
    pair.initiator.qp.must_post(&[pair.write(3, 0..8)])?;
    notes.equal("completions", "1 SUCCESS, 2 SUCCESS, 3 SUCCESS".into(), list(pair.initiator.cq.take(3)?));
    Ok(())
}
