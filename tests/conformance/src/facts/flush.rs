//! Errors end a connection: what was posted comes back, in order.

use crate::fact::{Notes, Outcome, facts};
use crate::objects::{Bench, Change, Pair, Request, Terms};
use crate::shown::{State, Status, list};

facts! { "flush":
    err_flushes_requests_in_order,
    err_flushes_receives_in_order,
    requests_behind_a_failure_are_flushed_in_order,
    a_failure_spares_those_before_it,
    after_a_failure_it_works_again_from_reset,
    reset_leaves_no_completions_behind,
}

fn flushed(ids: impl IntoIterator<Item = u64>) -> String {
    list(ids.into_iter().map(|id| format!("{id} {}", Status::WR_FLUSH_ERR)))
}

fn err_flushes_requests_in_order(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.unanswered_pair()?;
    let requests = [4, 2, 9].map(|id| pair.write(id, 0..8));
    pair.initiator.qp.must_post(&requests)?;
    pair.initiator.qp.must_post(&[pair.write(1, 0..8).unsignalled()])?;
    notes.equal("completions before", "none".into(), pair.initiator.cq.rest()?);
    pair.initiator.qp.must(Change::to(State::ERR))?;
    notes.equal("completions", flushed([4, 2, 9, 1]), list(pair.initiator.cq.take(4)?));
    Ok(())
}

fn err_flushes_receives_in_order(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    for id in [7, 1, 5] {
        pair.target.receive(id, 0..8)?;
    }
    notes.equal("a send", Status::SUCCESS, pair.run(pair.send(1, 0..8))?.status);
    pair.target.qp.must(Change::to(State::ERR))?;
    let expected = format!("7 SUCCESS, {}", flushed([1, 5]));
    notes.equal("receives", expected, list(pair.target.cq.take(3)?));
    notes.equal("after them", "none".into(), pair.target.cq.rest()?);
    Ok(())
}

/// A write that the target refuses.
fn wrong(pair: &Pair, id: u64) -> Request {
    let mut request = pair.write(id, 0..8);
    request.remote.rkey ^= 1;
    request
}

fn requests_behind_a_failure_are_flushed_in_order(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.initiator.region.put(8, &[1; 8]);
    let requests =
        [wrong(&pair, 1), pair.write(2, 8..16).unsignalled(), pair.write(3, 8..16), pair.send(4, 0..8)];
    pair.initiator.qp.must_post(&requests)?;
    let expected = format!("1 REM_ACCESS_ERR, {}", flushed([2, 3, 4]));
    notes.equal("completions", expected, list(pair.initiator.cq.take(4)?));
    notes.bytes("bytes of those behind", &[0; 8], &pair.target.region.get(8..16));
    Ok(())
}

fn a_failure_spares_those_before_it(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let requests =
        [pair.write(1, 0..8), pair.write(2, 0..8).unsignalled(), pair.write(3, 0..8), wrong(&pair, 4)];
    pair.initiator.qp.must_post(&requests)?;
    let expected = "1 SUCCESS, 3 SUCCESS, 4 REM_ACCESS_ERR";
    notes.equal("completions", expected.into(), list(pair.initiator.cq.take(3)?));
    Ok(())
}

fn after_a_failure_it_works_again_from_reset(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    for id in 1..=2 {
        notes.equal("a wrong write", Status::REM_ACCESS_ERR, pair.run(wrong(&pair, id))?.status);
        pair.reconnect(bench)?;
        notes.equal("a write after it", Status::SUCCESS, pair.run(pair.write(id, 0..8))?.status);
    }
    Ok(())
}

/// "All work requests are removed from the queues without completions."
fn reset_leaves_no_completions_behind(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.unanswered_pair()?;
    pair.initiator.receive(1, 0..8)?;
    pair.initiator.qp.must_post(&[pair.write(2, 0..8), pair.write(3, 0..8)])?;
    pair.initiator.qp.must(Change::to(State::RESET))?;
    notes.equal("completions", "none".into(), pair.initiator.cq.rest()?);
    pair.connect(bench, Terms::default())?;
    notes.equal("a write after it", "4 SUCCESS".into(), pair.run(pair.write(4, 0..8))?.to_string());
    notes.equal("completions after it", "none".into(), pair.initiator.cq.rest()?);
    Ok(())
}
