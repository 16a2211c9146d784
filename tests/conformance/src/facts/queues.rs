//! Completion queues: making them, polling them, and running them over.

use crate::fact::{Notes, Outcome, facts};
use crate::objects::{Bench, Pair, Qp, Request, Shape, answer};
use crate::shown::{Errno, EventType, Status, list};

facts! { "queues":
    a_queue_has_at_least_the_entries_asked_for,
    the_queue_knows_its_context_and_its_channel,
    more_entries_than_the_limit_are_refused,
    no_entries_are_refused,
    a_completion_vector_that_does_not_exist_is_refused,
    an_empty_queue_gives_nothing,
    polling_takes_no_more_than_there_is_room_for,
    completions_of_two_queue_pairs_say_whose_they_are,
    a_full_queue_that_gets_more_raises_an_event,
}

fn a_queue_has_at_least_the_entries_asked_for(bench: &Bench, notes: &mut Notes) -> Outcome {
    for asked in [1, 2, 17, 100, 256] {
        let cq = bench.cq_of(asked)?;
        notes.holds(&format!("{asked} entries"), "at least those", cq.entries() >= asked, cq.entries());
    }
    Ok(())
}

fn the_queue_knows_its_context_and_its_channel(bench: &Bench, notes: &mut Notes) -> Outcome {
    let channel = bench.channel()?;
    let cq = bench.cq_with(Some(&channel), 0x1234, 0)?;
    let (context, ours) = cq.fields();
    notes.equal("cq_context", 0x1234, context);
    notes.holds("context and channel", "those it was made with", ours, ours);
    let plain = bench.cq()?;
    notes.holds("without a channel", "NULL", plain.fields().1, plain.fields().1);
    Ok(())
}

fn more_entries_than_the_limit_are_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let most = bench.device().limits()?.max_cqe;
    notes.either(
        "max_cqe + 1",
        &[Errno::EINVAL, Errno::ENOMEM],
        answer(&bench.cq_of(most.saturating_add(1))),
    );
    notes.either("-1", &[Errno::EINVAL, Errno::ENOMEM], answer(&bench.cq_of(-1)));
    Ok(())
}

fn no_entries_are_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    notes.equal("0 entries", Errno::EINVAL, answer(&bench.cq_of(0)));
    Ok(())
}

fn a_completion_vector_that_does_not_exist_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let vectors = bench.device().completion_vectors();
    notes.equal("the last", Errno::DONE, answer(&bench.cq_with(None, 0, vectors - 1)));
    notes.equal("the one after it", Errno::EINVAL, answer(&bench.cq_with(None, 0, vectors)));
    notes.equal("-1", Errno::EINVAL, answer(&bench.cq_with(None, 0, -1)));
    Ok(())
}

fn an_empty_queue_gives_nothing(bench: &Bench, notes: &mut Notes) -> Outcome {
    let cq = bench.cq()?;
    notes.equal("room for 16", 0, cq.poll(16)?.len());
    notes.equal("room for none", 0, cq.poll(0)?.len());
    Ok(())
}

fn polling_takes_no_more_than_there_is_room_for(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let requests: Vec<Request> =
        (0..5).map(|id| Request::write(id, &[pair.initiator.sge(0..8)], pair.target.remote(0))).collect();
    pair.initiator.qp.must_post(&requests)?;
    let mut ids = Vec::new();
    while ids.len() < 5 {
        let taken = pair.initiator.cq.take(1)?;
        notes.equal("room for none", 0, pair.initiator.cq.poll(0)?.len());
        ids.extend(taken.iter().map(|completion| completion.id));
    }
    notes.equal("numbers", list(0..5), list(ids));
    notes.equal("nothing after them", "none".into(), pair.initiator.cq.rest()?);
    Ok(())
}

fn completions_of_two_queue_pairs_say_whose_they_are(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let shape = Shape::default();
    // A second connection whose initiator shares the first one's completion queue.
    let mut second = bench.unconnected_pair(&shape)?;
    let first_pd = &pair.initiator.pd;
    second.initiator.qp = Qp::new(first_pd, &pair.initiator.cq, &pair.initiator.cq, &shape.qp)?;
    second.connect(bench, shape.terms)?;
    let write = |id, to: &Pair| Request::write(id, &[pair.initiator.sge(0..8)], to.target.remote(0));
    pair.initiator.qp.must_post(&[write(1, &pair)])?;
    second.initiator.qp.must_post(&[write(2, &second)])?;
    for completion in pair.initiator.cq.take(2)? {
        notes.equal("status", Status::SUCCESS, completion.status);
        let whose = if completion.id == 1 { &pair } else { &second };
        notes.equal("qp_num", whose.initiator.qp.qpn(), completion.qpn);
    }
    Ok(())
}

/// "In case of a CQ overrun, the async event IBV_EVENT_CQ_ERR will be triggered, and the CQ cannot be used."
fn a_full_queue_that_gets_more_raises_an_event(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair_of(&Shape { cq_entries: 4, ..Shape::default() })?;
    let entries = pair.initiator.cq.entries();
    // One at a time, so that the send queue's length does not matter; receives none are posted for.
    let limit = entries + 8;
    let mut posted = 0;
    while posted < limit && !bench.device().has_event()? {
        let request = Request::write(posted as u64, &[pair.initiator.sge(0..8)], pair.target.remote(0));
        if pair.initiator.qp.post(&[request]).errno != Errno::DONE {
            break;
        }
        posted += 1;
    }
    notes.holds("writes posted", "more than entries", posted > entries, posted);
    let event = bench.device().next_event()?;
    notes.equal("event", EventType::CQ_ERR, event.event_type());
    notes.equal("whose", pair.initiator.cq.identity(), event.element());
    event.acknowledge();
    Ok(())
}
