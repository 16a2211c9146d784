//! Completion channels: an event for each time that a queue was armed, no more and no less.

use std::rc::Rc;
use std::sync::mpsc;
use std::thread;

use crate::fact::{Notes, Obstacle, Outcome, facts};
use crate::objects::{Bench, Change, Channel, CqEvent, MOMENT, Pair, Receive, Request, SOON, Shape};
use crate::shown::{Errno, State, Status};

facts! { "channels":
    an_armed_queue_raises_an_event_that_names_it,
    a_queue_that_is_not_armed_raises_none,
    one_arming_gives_one_event,
    arming_after_the_completion_waits_for_the_next,
    a_channel_without_events_says_eagain,
    only_a_solicited_receive_raises_a_solicited_event,
    a_failure_raises_a_solicited_event,
    two_queues_on_a_channel_are_told_apart,
    destroying_a_queue_waits_for_its_events_to_be_acknowledged,
}

/// A connected pair whose target's queue tells a channel.
fn pair_with_channel(bench: &Bench) -> Result<(Pair, Rc<Channel>), Obstacle> {
    let shape = Shape::default();
    let mut pair = bench.unconnected_pair(&shape)?;
    let channel = bench.channel()?;
    pair.target = bench.end_with(&channel, 7)?;
    pair.connect(bench, shape.terms)?;
    Ok((pair, channel))
}

/// Sends a message, for which a receive is posted first, and waits for it at the target.
fn exchange(pair: &Pair, request: Request) -> Outcome {
    send(pair, request)?;
    let received = pair.target.one()?;
    if received.status != Status::SUCCESS {
        return Err(Obstacle(format!("the receive completed with {}", received.status)));
    }
    Ok(())
}

/// Sends a message, for which a receive is posted first, and waits for it at the initiator.
fn send(pair: &Pair, request: Request) -> Outcome {
    pair.target.qp.must_receive(&[Receive::new(1, &[pair.target.sge(0..64)])])?;
    pair.initiator.qp.must_post(&[request])?;
    let sent = pair.initiator.one()?;
    match sent.status {
        Status::SUCCESS => Ok(()),
        status => Err(Obstacle(format!("the send completed with {status}"))),
    }
}

fn message(pair: &Pair) -> Request {
    Request::send(1, &[pair.initiator.sge(0..8)])
}

fn an_armed_queue_raises_an_event_that_names_it(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (pair, channel) = pair_with_channel(bench)?;
    notes.equal("arming", Errno::DONE, pair.target.cq.arm(CqEvent::Any));
    send(&pair, message(&pair))?;
    let (cq, context) = channel.next()?;
    notes.equal("queue", pair.target.cq.identity(), cq);
    notes.equal("cq_context", 7, context);
    pair.target.cq.acknowledge(1);
    notes.equal("the completion", Status::SUCCESS, pair.target.one()?.status);
    Ok(())
}

fn a_queue_that_is_not_armed_raises_none(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (pair, channel) = pair_with_channel(bench)?;
    exchange(&pair, message(&pair))?;
    notes.equal("an event", false, channel.has_event()?);
    Ok(())
}

fn one_arming_gives_one_event(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (pair, channel) = pair_with_channel(bench)?;
    notes.equal("arming", Errno::DONE, pair.target.cq.arm(CqEvent::Any));
    for _ in 0..3 {
        exchange(&pair, message(&pair))?;
    }
    channel.next()?;
    pair.target.cq.acknowledge(1);
    notes.equal("a second event", false, channel.has_event()?);
    notes.equal("arming again", Errno::DONE, pair.target.cq.arm(CqEvent::Any));
    exchange(&pair, message(&pair))?;
    notes.equal("an event after arming again", true, channel.has_event()?);
    channel.next()?;
    pair.target.cq.acknowledge(1);
    Ok(())
}

/// Hence the rule to poll once more after arming.
fn arming_after_the_completion_waits_for_the_next(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (pair, channel) = pair_with_channel(bench)?;
    send(&pair, message(&pair))?;
    // The initiator's completion says that the message has arrived; this one is polled.
    pair.target.one()?;
    notes.equal("arming", Errno::DONE, pair.target.cq.arm(CqEvent::Any));
    notes.equal("an event for a completion that was polled", false, channel.has_event()?);
    send(&pair, message(&pair))?;
    channel.next()?;
    pair.target.cq.acknowledge(1);
    notes.equal("the next completion", Status::SUCCESS, pair.target.one()?.status);
    Ok(())
}

fn a_channel_without_events_says_eagain(bench: &Bench, notes: &mut Notes) -> Outcome {
    let channel = bench.channel()?;
    let errno = channel.event().err().unwrap_or(Errno::DONE);
    notes.equal("ibv_get_cq_event, not blocking", Errno::EAGAIN, errno);
    Ok(())
}

fn only_a_solicited_receive_raises_a_solicited_event(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (pair, channel) = pair_with_channel(bench)?;
    notes.equal("arming", Errno::DONE, pair.target.cq.arm(CqEvent::Solicited));
    exchange(&pair, message(&pair))?;
    notes.equal("an event for an ordinary send", false, channel.has_event()?);
    send(&pair, message(&pair).solicited())?;
    channel.next()?;
    pair.target.cq.acknowledge(1);
    notes.equal("the completion", Status::SUCCESS, pair.target.one()?.status);
    Ok(())
}

fn a_failure_raises_a_solicited_event(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (pair, channel) = pair_with_channel(bench)?;
    pair.target.qp.must_receive(&[Receive::new(1, &[pair.target.sge(0..64)])])?;
    notes.equal("arming", Errno::DONE, pair.target.cq.arm(CqEvent::Solicited));
    pair.target.qp.must(Change::to(State::ERR))?;
    channel.next()?;
    pair.target.cq.acknowledge(1);
    notes.equal("the completion", Status::WR_FLUSH_ERR, pair.target.one()?.status);
    Ok(())
}

fn two_queues_on_a_channel_are_told_apart(bench: &Bench, notes: &mut Notes) -> Outcome {
    let shape = Shape::default();
    let channel = bench.channel()?;
    let mut pairs = [bench.unconnected_pair(&shape)?, bench.unconnected_pair(&shape)?];
    for (place, pair) in pairs.iter_mut().enumerate() {
        pair.target = bench.end_with(&channel, 10 + place)?;
        pair.connect(bench, shape.terms)?;
        notes.equal("arming", Errno::DONE, pair.target.cq.arm(CqEvent::Any));
    }
    for place in [1, 0] {
        send(&pairs[place], message(&pairs[place]))?;
        let (cq, context) = channel.next()?;
        notes.equal("queue", pairs[place].target.cq.identity(), cq);
        notes.equal("cq_context", 10 + place, context);
        pairs[place].target.cq.acknowledge(1);
    }
    Ok(())
}

fn destroying_a_queue_waits_for_its_events_to_be_acknowledged(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (pair, channel) = pair_with_channel(bench)?;
    notes.equal("arming", Errno::DONE, pair.target.cq.arm(CqEvent::Any));
    send(&pair, message(&pair))?;
    channel.next()?;
    notes.equal("destroying the queue pair", Errno::DONE, pair.target.qp.destroy());
    let destroy = pair.target.cq.destroyer();
    let (sender, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        let _ = sender.send(destroy());
    });
    let early = ended.recv_timeout(MOMENT).is_ok();
    notes.equal("destroyed before the acknowledgement", false, early);
    pair.target.cq.acknowledge(1);
    if !early {
        let errno = ended.recv_timeout(SOON).map_err(|_| Obstacle("destroying goes on waiting".into()))?;
        notes.equal("destroying", Errno::DONE, errno);
    }
    thread.join().map_err(|_| Obstacle("the thread panicked".into()))
}
