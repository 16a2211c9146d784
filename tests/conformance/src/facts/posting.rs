//! Posting: in which states, what is refused, and what a refusal in a list leaves.

use crate::fact::{Notes, Obstacle, Outcome, facts};
use crate::objects::{Bench, End, Posted, Receive, Request, Shape, Terms};
use crate::shown::{Errno, State, Status, list};

facts! { "posting":
    a_send_before_rts_is_refused,
    a_refused_send_is_not_sent_later,
    a_receive_in_reset_is_refused,
    a_receive_from_init_on_is_taken,
    a_send_in_err_is_flushed,
    a_receive_in_err_is_flushed,
    an_opcode_that_does_not_exist_is_refused,
    more_pieces_than_granted_are_refused,
    a_list_is_posted_up_to_the_request_refused,
    a_list_of_receives_is_posted_up_to_the_one_refused,
}

fn end_in(bench: &Bench, state: State) -> Result<End, Obstacle> {
    let end = bench.end(&Shape::default())?;
    end.qp.take_to(state, &bench.connection(end.qp.qpn(), Terms::impatient()))?;
    Ok(end)
}

fn a_send_before_rts_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    for state in [State::RESET, State::INIT, State::RTR] {
        let end = end_in(bench, state)?;
        let posted = end.qp.post(&[Request::send(1, &[end.sge(0..8)])]);
        notes.equal(&format!("in {state}"), Posted::refused(Errno::EINVAL, 0), posted);
        notes.equal(&format!("completions in {state}"), "none".into(), end.cq.rest()?);
    }
    Ok(())
}

fn a_refused_send_is_not_sent_later(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.unconnected_pair(&Shape::default())?;
    pair.initiator.region.put(0, b"too soon");
    notes.equal("in RESET", Errno::EINVAL, pair.initiator.qp.post(&[pair.write(1, 0..8)]).errno);
    pair.connect(bench, Terms::default())?;
    pair.initiator.qp.must_post(&[pair.write(2, 64..72)])?;
    notes.equal("completions in RTS", "2 SUCCESS".into(), pair.initiator.cq.up_to(2)?);
    notes.bytes("bytes at the target", &[0; 8], &pair.target.region.get(0..8));
    Ok(())
}

fn a_receive_in_reset_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let end = end_in(bench, State::RESET)?;
    let posted = end.qp.post_recv(&[Receive::new(1, &[end.sge(0..8)])]);
    notes.equal("in RESET", Posted::refused(Errno::EINVAL, 0), posted);
    Ok(())
}

fn a_receive_from_init_on_is_taken(bench: &Bench, notes: &mut Notes) -> Outcome {
    for state in [State::INIT, State::RTR, State::RTS, State::SQD] {
        let end = end_in(bench, state)?;
        let posted = end.qp.post_recv(&[Receive::new(1, &[end.sge(0..8)])]);
        notes.equal(&format!("in {state}"), Posted::ALL, posted);
        notes.equal(&format!("completions in {state}"), "none".into(), end.cq.rest()?);
    }
    Ok(())
}

fn a_send_in_err_is_flushed(bench: &Bench, notes: &mut Notes) -> Outcome {
    let end = end_in(bench, State::ERR)?;
    let requests = [Request::send(1, &[end.sge(0..8)]).unsignalled(), Request::send(2, &[end.sge(0..8)])];
    notes.equal("posting", Posted::ALL, end.qp.post(&requests));
    notes.equal("completions", "1 WR_FLUSH_ERR, 2 WR_FLUSH_ERR".into(), list(end.cq.take(2)?));
    Ok(())
}

fn a_receive_in_err_is_flushed(bench: &Bench, notes: &mut Notes) -> Outcome {
    let end = end_in(bench, State::ERR)?;
    let receives = [Receive::new(1, &[end.sge(0..8)]), Receive::empty(2)];
    notes.equal("posting", Posted::ALL, end.qp.post_recv(&receives));
    notes.equal("completions", "1 WR_FLUSH_ERR, 2 WR_FLUSH_ERR".into(), end.cq.some(2)?);
    Ok(())
}

fn an_opcode_that_does_not_exist_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let request = Request { opcode: 99, ..pair.write(1, 0..8) };
    notes.equal("opcode 99", Posted::refused(Errno::EINVAL, 0), pair.initiator.qp.post(&[request]));
    notes.equal("a write after it", Status::SUCCESS, pair.run(pair.write(2, 0..8))?.status);
    Ok(())
}

fn more_pieces_than_granted_are_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let end = &pair.initiator;
    let granted = end.qp.query()?.limits();
    let pieces = vec![end.sge(0..1); granted.send_sge as usize + 1];
    let posted = end.qp.post(&[Request::write(1, &pieces, pair.target.remote(0))]);
    notes.equal("a write", Posted::refused(Errno::EINVAL, 0), posted);
    let pieces = vec![end.sge(0..1); granted.recv_sge as usize + 1];
    notes.equal(
        "a receive",
        Posted::refused(Errno::EINVAL, 0),
        end.qp.post_recv(&[Receive::new(1, &pieces)]),
    );
    Ok(())
}

fn a_list_is_posted_up_to_the_request_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let pieces = vec![pair.initiator.sge(0..1); pair.initiator.qp.query()?.limits().send_sge as usize + 1];
    let wrong = Request::write(3, &pieces, pair.target.remote(0));
    let requests = [pair.write(1, 0..8), pair.write(2, 0..8), wrong, pair.write(4, 0..8)];
    notes.equal("posting", Posted::refused(Errno::EINVAL, 2), pair.initiator.qp.post(&requests));
    notes.equal("completions", "1 SUCCESS, 2 SUCCESS".into(), list(pair.initiator.cq.take(2)?));
    notes.equal("completions after them", "none".into(), pair.initiator.cq.rest()?);
    Ok(())
}

fn a_list_of_receives_is_posted_up_to_the_one_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let end = &pair.target;
    let pieces = vec![end.sge(0..1); end.qp.query()?.limits().recv_sge as usize + 1];
    let receives =
        [Receive::new(1, &[end.sge(0..8)]), Receive::new(2, &pieces), Receive::new(3, &[end.sge(0..8)])];
    notes.equal("posting", Posted::refused(Errno::EINVAL, 1), end.qp.post_recv(&receives));
    notes.equal("a send", Status::SUCCESS, pair.run(pair.send(1, 0..8))?.status);
    notes.equal("completions", "1 SUCCESS".into(), list(end.cq.take(1)?));
    Ok(())
}
