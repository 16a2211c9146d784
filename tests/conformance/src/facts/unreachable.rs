//! Peers that do not answer.

use std::time::{Duration, Instant};

use crate::fact::{Notes, Outcome, facts};
use crate::objects::{Bench, Change, Request, Shape, Terms};
use crate::shown::{Errno, State, Status, list};

facts! { "unreachable":
    a_queue_pair_that_does_not_exist_is_not_reached,
    a_destroyed_queue_pair_is_not_reached,
    a_queue_pair_before_rtr_is_not_reached,
    a_queue_pair_in_err_is_not_reached,
    a_queue_pair_in_rtr_is_reached,
    a_peer_with_another_sequence_number_is_not_reached,
    the_timeout_is_waited_for_with_each_retry,
    requests_behind_it_are_flushed,
    a_peer_that_comes_in_time_is_reached,
}

fn a_queue_pair_that_does_not_exist_is_not_reached(bench: &Bench, notes: &mut Notes) -> Outcome {
    let end = bench.end(&Shape::default())?;
    let nobody = bench.end(&Shape::default())?;
    let number = nobody.qp.qpn() ^ 0x00_4000;
    end.qp.take_to(State::RTS, &bench.connection(number, Terms::impatient()))?;
    end.qp.must_post(&[Request::write(1, &[end.sge(0..8)], nobody.remote(0))])?;
    notes.equal("status", Status::RETRY_EXC_ERR, end.one()?.status);
    notes.equal("state", State::ERR, end.qp.state()?);
    Ok(())
}

fn a_destroyed_queue_pair_is_not_reached(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair_of(&Shape::on(Terms::impatient()))?;
    notes.equal("destroying the target", Errno::DONE, pair.target.qp.destroy());
    notes.equal("a write", Status::RETRY_EXC_ERR, pair.run(pair.write(1, 0..8))?.status);
    Ok(())
}

fn a_queue_pair_before_rtr_is_not_reached(bench: &Bench, notes: &mut Notes) -> Outcome {
    for state in [State::RESET, State::INIT] {
        let pair = bench.unconnected_pair(&Shape::default())?;
        let here = pair.initiator.qp.qpn();
        pair.target.qp.take_to(state, &bench.connection(here, Terms::default()))?;
        let there = bench.connection(pair.target.qp.qpn(), Terms::impatient());
        pair.initiator.qp.take_to(State::RTS, &there)?;
        let status = pair.run(pair.write(1, 0..8))?.status;
        notes.equal(&format!("target in {state}"), Status::RETRY_EXC_ERR, status);
        notes.equal("its state", state, pair.target.qp.state()?);
    }
    Ok(())
}

fn a_queue_pair_in_err_is_not_reached(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair_of(&Shape::on(Terms::impatient()))?;
    pair.initiator.region.put(0, &[1; 8]);
    pair.target.qp.must(Change::to(State::ERR))?;
    notes.equal("status", Status::RETRY_EXC_ERR, pair.run(pair.write(1, 0..8))?.status);
    notes.bytes("bytes at the target", &[0; 8], &pair.target.region.get(0..8));
    Ok(())
}

fn a_queue_pair_in_rtr_is_reached(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.unconnected_pair(&Shape::default())?;
    pair.target.qp.take_to(State::RTR, &bench.connection(pair.initiator.qp.qpn(), Terms::default()))?;
    pair.initiator.qp.take_to(State::RTS, &bench.connection(pair.target.qp.qpn(), Terms::default()))?;
    pair.target.receive(1, 0..8)?;
    notes.equal("a send", Status::SUCCESS, pair.run(pair.send(1, 0..8))?.status);
    notes.equal("its receive", Status::SUCCESS, pair.target.one()?.status);
    notes.equal("its state", State::RTR, pair.target.qp.state()?);
    Ok(())
}

fn a_peer_with_another_sequence_number_is_not_reached(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.unconnected_pair(&Shape::default())?;
    let mut to = bench.connection(pair.initiator.qp.qpn(), Terms::default());
    to.rq_psn += 1000;
    pair.target.qp.take_to(State::RTS, &to)?;
    let there = bench.connection(pair.target.qp.qpn(), Terms::impatient());
    pair.initiator.qp.take_to(State::RTS, &there)?;
    pair.initiator.region.put(0, &[1; 8]);
    notes.equal("status", Status::RETRY_EXC_ERR, pair.run(pair.write(1, 0..8))?.status);
    notes.bytes("bytes at the target", &[0; 8], &pair.target.region.get(0..8));
    Ok(())
}

fn the_timeout_is_waited_for_with_each_retry(bench: &Bench, notes: &mut Notes) -> Outcome {
    // 4.096 µs × 2¹⁴ is 67.1 ms, and the first try is no retry.
    let terms = Terms { timeout: 14, retry_cnt: 2, ..Terms::default() };
    let pair = bench.pair_of(&Shape::on(terms))?;
    notes.equal("destroying the target", Errno::DONE, pair.target.qp.destroy());
    let begin = Instant::now();
    let status = pair.run(pair.write(1, 0..8))?.status;
    let waited = begin.elapsed();
    notes.equal("status", Status::RETRY_EXC_ERR, status);
    // A timer may count in ticks of its own.
    let least = Duration::from_millis(180);
    notes.holds("waited", "180 ms or more", waited >= least, format!("{waited:?}"));
    Ok(())
}

fn requests_behind_it_are_flushed(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair_of(&Shape::on(Terms::impatient()))?;
    notes.equal("destroying the target", Errno::DONE, pair.target.qp.destroy());
    let requests = [pair.write(1, 0..8), pair.write(2, 0..8).unsignalled(), pair.write(3, 0..8)];
    pair.initiator.qp.must_post(&requests)?;
    let expected = "1 RETRY_EXC_ERR, 2 WR_FLUSH_ERR, 3 WR_FLUSH_ERR";
    notes.equal("completions", expected.into(), list(pair.initiator.cq.take(3)?));
    Ok(())
}

fn a_peer_that_comes_in_time_is_reached(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.unanswered_pair()?;
    pair.initiator.region.put(0, b"patient");
    pair.initiator.qp.must_post(&[pair.write(1, 0..7)])?;
    notes.equal("completions before", "none".into(), pair.initiator.cq.rest()?);
    pair.target.qp.take_to(State::RTR, &bench.connection(pair.initiator.qp.qpn(), Terms::default()))?;
    notes.equal("completions", "1 SUCCESS".into(), list(pair.initiator.cq.take(1)?));
    notes.bytes("bytes at the target", b"patient", &pair.target.region.get(0..7));
    Ok(())
}
