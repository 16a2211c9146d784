//! Messages for which no receive is posted.

use std::time::{Duration, Instant};

use crate::fact::{Notes, Outcome, facts};
use crate::objects::{Bench, Request, Shape, Terms};
use crate::shown::{State, Status, list};

facts! { "receives":
    with_seven_retries_a_send_waits_for_its_receive,
    without_retries_a_send_fails_at_once,
    with_two_retries_a_send_waits_twice,
    a_send_in_time_succeeds_within_its_retries,
    immediate_data_waits_for_its_receive,
    requests_behind_one_that_waits_keep_their_order,
}

fn with_seven_retries_a_send_waits_for_its_receive(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.initiator.qp.must_post(&[pair.send(1, 0..8)])?;
    notes.equal("completions without a receive", "none".into(), pair.initiator.cq.rest()?);
    pair.target.receive(5, 0..8)?;
    notes.equal("completions with one", "1 SUCCESS".into(), list(pair.initiator.cq.take(1)?));
    notes.equal("its receive", "5 SUCCESS".into(), list(pair.target.cq.take(1)?));
    Ok(())
}

fn without_retries_a_send_fails_at_once(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair_of(&Shape::on(Terms { rnr_retry: 0, ..Terms::default() }))?;
    let completion = pair.run(pair.send(1, 0..8))?;
    notes.equal("status", Status::RNR_RETRY_EXC_ERR, completion.status);
    notes.equal("state of the sender", State::ERR, pair.initiator.qp.state()?);
    notes.equal("state of the receiver", State::RTS, pair.target.qp.state()?);
    Ok(())
}

fn with_two_retries_a_send_waits_twice(bench: &Bench, notes: &mut Notes) -> Outcome {
    // 26 stands for 81.92 ms.
    let terms = Terms { rnr_retry: 2, min_rnr_timer: 26, ..Terms::default() };
    let pair = bench.pair_of(&Shape::on(terms))?;
    let begin = Instant::now();
    let completion = pair.run(pair.send(1, 0..8))?;
    let waited = begin.elapsed();
    notes.equal("status", Status::RNR_RETRY_EXC_ERR, completion.status);
    // A timer may count in ticks of its own.
    let least = Duration::from_millis(150);
    notes.holds("waited", "150 ms or more", waited >= least, format!("{waited:?}"));
    Ok(())
}

fn a_send_in_time_succeeds_within_its_retries(bench: &Bench, notes: &mut Notes) -> Outcome {
    // Six times 491.52 ms: the receive comes after the first refusal and long before the last.
    let terms = Terms { rnr_retry: 6, min_rnr_timer: 31, ..Terms::default() };
    let pair = bench.pair_of(&Shape::on(terms))?;
    pair.initiator.qp.must_post(&[pair.send(1, 0..8)])?;
    notes.equal("completions without a receive", "none".into(), pair.initiator.cq.rest()?);
    pair.target.receive(5, 0..8)?;
    notes.equal("completions with one", "1 SUCCESS".into(), list(pair.initiator.cq.take(1)?));
    Ok(())
}

fn immediate_data_waits_for_its_receive(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.initiator.region.put(0, &[3; 8]);
    let request = Request::write_imm(1, &[pair.initiator.sge(0..8)], pair.target.remote(0), 77);
    pair.initiator.qp.must_post(&[request])?;
    notes.equal("completions without a receive", "none".into(), pair.initiator.cq.rest()?);
    pair.target.receive(5, 64..72)?;
    notes.equal("completions with one", "1 SUCCESS".into(), list(pair.initiator.cq.take(1)?));
    notes.equal("immediate data", "Some(77)".into(), format!("{:?}", pair.target.one()?.imm));
    notes.bytes("bytes at the target", &[3; 8], &pair.target.region.get(0..8));
    Ok(())
}

fn requests_behind_one_that_waits_keep_their_order(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.initiator.region.put(100, &[4; 8]);
    let requests = [pair.write(1, 0..8), pair.send(2, 0..8), pair.write(3, 100..108), pair.send(4, 0..8)];
    pair.initiator.qp.must_post(&requests)?;
    notes.equal("completions", "1 SUCCESS".into(), list(pair.initiator.cq.take(1)?));
    notes.equal("completions without a receive", "none".into(), pair.initiator.cq.rest()?);
    notes.bytes("a write behind the send", &[0; 8], &pair.target.region.get(100..108));
    for id in [7, 8] {
        pair.target.receive(id, 0..8)?;
    }
    let expected = "2 SUCCESS, 3 SUCCESS, 4 SUCCESS";
    notes.equal("completions with receives", expected.into(), list(pair.initiator.cq.take(3)?));
    notes.equal("receives", "7 SUCCESS, 8 SUCCESS".into(), list(pair.target.cq.take(2)?));
    Ok(())
}
