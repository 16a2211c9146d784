//! Asynchronous events.

use std::sync::mpsc;
use std::thread;

use rdma_sys as sys;

use crate::fact::{Notes, Obstacle, Outcome, facts};
use crate::objects::{Bench, Change, MOMENT, Pair, SOON, Shape, Terms};
use crate::shown::{Errno, EventType, State, Status};

facts! { "events":
    without_events_the_query_says_eagain,
    ordinary_traffic_raises_none,
    a_message_in_rtr_tells_of_the_connection,
    a_refused_access_tells_the_target,
    a_drained_queue_tells_if_asked,
    a_drained_queue_keeps_quiet_unless_asked,
    destroying_a_queue_pair_waits_for_its_events_to_be_acknowledged,
}

fn without_events_the_query_says_eagain(bench: &Bench, notes: &mut Notes) -> Outcome {
    let errno = bench.device().event()?.err().unwrap_or(Errno::DONE);
    notes.equal("ibv_get_async_event, not blocking", Errno::EAGAIN, errno);
    Ok(())
}

fn ordinary_traffic_raises_none(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.target.receive(1, 0..8)?;
    notes.equal("a send", Status::SUCCESS, pair.run(pair.send(1, 0..8))?.status);
    notes.equal("an event", false, bench.device().has_event()?);
    pair.target.qp.must(Change::to(State::ERR))?;
    notes.equal("an event in ERR", false, bench.device().has_event()?);
    Ok(())
}

/// The next event, of `expected` and about `whose`.
fn event(bench: &Bench, notes: &mut Notes, expected: EventType, whose: usize) -> Outcome {
    if !bench.device().has_event()? {
        notes.equal("event", expected.to_string(), "none".into());
        return Ok(());
    }
    let event = bench.device().next_event()?;
    notes.equal("event", expected.to_string(), event.event_type().to_string());
    notes.equal("whose", whose, event.element());
    event.acknowledge();
    Ok(())
}

fn a_message_in_rtr_tells_of_the_connection(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.unconnected_pair(&Shape::default())?;
    pair.target.qp.take_to(State::RTR, &bench.connection(pair.initiator.qp.qpn(), Terms::default()))?;
    pair.initiator.qp.take_to(State::RTS, &bench.connection(pair.target.qp.qpn(), Terms::default()))?;
    notes.equal("a write", Status::SUCCESS, pair.run(pair.write(1, 0..8))?.status);
    event(bench, notes, EventType::COMM_EST, pair.target.qp.identity())
}

fn a_refused_access_tells_the_target(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let mut request = pair.write(1, 0..8);
    request.remote.rkey ^= 1;
    notes.equal("a write with a wrong key", Status::REM_ACCESS_ERR, pair.run(request)?.status);
    event(bench, notes, EventType::QP_ACCESS_ERR, pair.target.qp.identity())
}

fn drain(bench: &Bench, notify: bool) -> Result<(Pair, Errno), Obstacle> {
    let pair = bench.pair()?;
    let change =
        Change::to(State::SQD).also(if notify { sys::IBV_QP_EN_SQD_ASYNC_NOTIFY } else { 0 }, |attr| {
            attr.en_sqd_async_notify = u8::from(notify);
        });
    let errno = pair.initiator.qp.modify(change);
    Ok((pair, errno))
}

fn a_drained_queue_tells_if_asked(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (pair, errno) = drain(bench, true)?;
    notes.equal("to SQD, asking", Errno::DONE, errno);
    event(bench, notes, EventType::SQ_DRAINED, pair.initiator.qp.identity())
}

fn a_drained_queue_keeps_quiet_unless_asked(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (_pair, errno) = drain(bench, false)?;
    notes.equal("to SQD", Errno::DONE, errno);
    notes.equal("an event", false, bench.device().has_event()?);
    if let Ok(event) = bench.device().event()? {
        event.acknowledge();
    }
    Ok(())
}

fn destroying_a_queue_pair_waits_for_its_events_to_be_acknowledged(
    bench: &Bench,
    notes: &mut Notes,
) -> Outcome {
    let (pair, errno) = drain(bench, true)?;
    notes.equal("to SQD, asking", Errno::DONE, errno);
    let event = bench.device().next_event()?;
    let destroy = pair.initiator.qp.destroyer();
    let (sender, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        let _ = sender.send(destroy());
    });
    let early = ended.recv_timeout(MOMENT).is_ok();
    notes.equal("destroyed before the acknowledgement", false, early);
    event.acknowledge();
    if !early {
        let errno = ended.recv_timeout(SOON).map_err(|_| Obstacle("destroying goes on waiting".into()))?;
        notes.equal("destroying", Errno::DONE, errno);
    }
    thread.join().map_err(|_| Obstacle("the thread panicked".into()))
}
