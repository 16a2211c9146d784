//! What was granted can be used to the last, and no further.

use crate::fact::{Notes, Outcome, facts};
use crate::objects::{Bench, Pair, Posted, Receive, Request};
use crate::shown::{Errno, Status, list};

facts! { "limits":
    a_full_send_queue_refuses,
    a_full_receive_queue_refuses,
    a_slot_is_taken_until_its_completion_is_polled,
    slots_without_completions_are_freed_by_a_later_one,
    slots_without_completions_stay_taken,
    as_many_pieces_as_granted_are_gathered,
    as_much_inline_data_as_granted_is_sent,
    more_inline_data_than_granted_is_refused,
    inline_pieces_count_together,
    inline_data_is_taken_at_posting,
    inline_data_needs_no_registration,
}

fn a_full_send_queue_refuses(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.unanswered_pair()?;
    let room = pair.initiator.qp.query()?.limits().send_wr as usize;
    let requests: Vec<Request> = (0..=room).map(|id| pair.write(id as u64, 0..8)).collect();
    let posted = pair.initiator.qp.post(&requests);
    notes.equal("one more than max_send_wr", Posted::refused(Errno::ENOMEM, room), posted);
    Ok(())
}

fn a_full_receive_queue_refuses(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let room = pair.target.qp.query()?.limits().recv_wr as usize;
    let receives: Vec<Receive> =
        (0..=room).map(|id| Receive::new(id as u64, &[pair.target.sge(0..8)])).collect();
    let posted = pair.target.qp.post_recv(&receives);
    notes.equal("one more than max_recv_wr", Posted::refused(Errno::ENOMEM, room), posted);
    notes.equal("a send", Status::SUCCESS, pair.run(pair.send(1, 0..8))?.status);
    notes.equal("its receive", 0, pair.target.one()?.id);
    notes.equal("one more", Posted::ALL, pair.target.qp.post_recv(&receives[room..]));
    Ok(())
}

/// As many writes as there are slots, all executed and none polled.
fn fill(pair: &Pair, signalled: bool) -> Outcome {
    let room = pair.initiator.qp.query()?.limits().send_wr as usize;
    pair.initiator.region.put(8, &[7]);
    let write = |id: usize| {
        let request = if id + 1 == room { pair.write(id as u64, 8..9) } else { pair.write(id as u64, 0..8) };
        if signalled { request } else { request.unsignalled() }
    };
    pair.initiator.qp.must_post(&(0..room).map(write).collect::<Vec<_>>())?;
    pair.target.region.await_byte(8, 7)
}

/// "Outstanding" is a request until its completion is taken, not until it is done.
fn a_slot_is_taken_until_its_completion_is_polled(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    fill(&pair, true)?;
    let more = pair.initiator.qp.post(&[pair.write(99, 0..8)]);
    notes.equal("one more, nothing polled", Posted::refused(Errno::ENOMEM, 0), more);
    pair.initiator.cq.take(1)?;
    notes.equal("one more, one polled", Posted::ALL, pair.initiator.qp.post(&[pair.write(99, 0..8)]));
    Ok(())
}

fn slots_without_completions_are_freed_by_a_later_one(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let room = pair.initiator.qp.query()?.limits().send_wr as u64;
    for round in 0..3 {
        let silent = (1..room).map(|id| pair.write(id, 0..8).unsignalled());
        let requests: Vec<Request> = silent.chain([pair.write(room, 0..8)]).collect();
        notes.equal(&format!("posting, round {round}"), Posted::ALL, pair.initiator.qp.post(&requests));
        let seen = list(pair.initiator.cq.take(1)?);
        notes.equal("completions", format!("{room} SUCCESS"), seen);
    }
    Ok(())
}

fn slots_without_completions_stay_taken(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    fill(&pair, false)?;
    notes.equal("completions", "none".into(), pair.initiator.cq.rest()?);
    let more = pair.initiator.qp.post(&[pair.write(99, 0..8)]);
    notes.equal("one more", Posted::refused(Errno::ENOMEM, 0), more);
    Ok(())
}

fn as_many_pieces_as_granted_are_gathered(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let count = pair.initiator.qp.granted().send_sge as usize;
    // Backwards, and with gaps between them.
    let pieces: Vec<_> =
        (0..count).rev().map(|piece| pair.initiator.sge(piece * 100..piece * 100 + 50)).collect();
    for piece in 0..count {
        pair.initiator.region.put(piece * 100, &[piece as u8 + 1; 50]);
    }
    notes.equal(
        "status",
        Status::SUCCESS,
        pair.run(Request::write(1, &pieces, pair.target.remote(0)))?.status,
    );
    let expected: Vec<u8> = (0..count).rev().flat_map(|piece| [piece as u8 + 1; 50]).collect();
    notes.bytes("bytes at the target", &expected, &pair.target.region.get(0..count * 50));
    Ok(())
}

fn as_much_inline_data_as_granted_is_sent(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let room = pair.initiator.qp.granted().inline as usize;
    let bytes: Vec<u8> = (0..room).map(|index| index as u8 + 1).collect();
    pair.initiator.region.put(0, &bytes);
    notes.equal("a write", Status::SUCCESS, pair.run(pair.write(1, 0..room).inline())?.status);
    notes.bytes("bytes of the write", &bytes, &pair.target.region.get(0..room));
    pair.target.receive(1, 1024..2048)?;
    notes.equal("a send", Status::SUCCESS, pair.run(pair.send(2, 0..room).inline())?.status);
    notes.equal("bytes of the receive", room as u32, pair.target.one()?.byte_len);
    notes.bytes("bytes of the send", &bytes, &pair.target.region.get(1024..1024 + room));
    Ok(())
}

/// The manual page has no errno for it: providers answer with either.
fn more_inline_data_than_granted_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let room = pair.initiator.qp.query()?.limits().inline as usize;
    let posted = pair.initiator.qp.post(&[pair.write(1, 0..room + 1).inline()]);
    let allowed = [Errno::EINVAL, Errno::ENOMEM].map(|errno| Posted::refused(errno, 0));
    notes.either("one byte more", &allowed, posted);
    notes.equal("a write after it", Status::SUCCESS, pair.run(pair.write(2, 0..8))?.status);
    Ok(())
}

fn inline_pieces_count_together(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let end = &pair.initiator;
    let room = end.qp.query()?.limits().inline as usize;
    end.region.put(0, &[1; 256]);
    end.region.put(256, &[2; 256]);
    let write = |id, second: usize| {
        let pieces = [end.sge(0..room - 10), end.sge(256..256 + second)];
        Request::write(id, &pieces, pair.target.remote(0)).inline()
    };
    notes.equal("as many as granted", Status::SUCCESS, pair.run(write(1, 10))?.status);
    let expected = [vec![1; room - 10], vec![2; 10]].concat();
    notes.bytes("bytes at the target", &expected, &pair.target.region.get(0..room));
    let allowed = [Errno::EINVAL, Errno::ENOMEM].map(|errno| Posted::refused(errno, 0));
    notes.either("one byte more", &allowed, end.qp.post(&[write(2, 11)]));
    Ok(())
}

fn inline_data_is_taken_at_posting(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    for round in 1..=8u8 {
        pair.initiator.region.put(0, &[round; 8]);
        let place = usize::from(round) * 8;
        let request = Request::write(round.into(), &[pair.initiator.sge(0..8)], pair.target.remote(place));
        pair.initiator.qp.must_post(&[request.inline()])?;
    }
    pair.initiator.region.put(0, &[99; 8]);
    pair.initiator.cq.take(8)?;
    let expected: Vec<u8> = (1..=8).flat_map(|round| [round; 8]).collect();
    notes.bytes("bytes at the target", &expected, &pair.target.region.get(8..72));
    Ok(())
}

fn inline_data_needs_no_registration(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.initiator.region.put(0, b"no key ");
    let mut piece = pair.initiator.sge(0..7);
    piece.lkey = 0xdead_beef;
    notes.equal(
        "status",
        Status::SUCCESS,
        pair.run(Request::write(1, &[piece], pair.target.remote(0)).inline())?.status,
    );
    notes.bytes("bytes at the target", b"no key ", &pair.target.region.get(0..7));
    Ok(())
}
