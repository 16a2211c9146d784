//! Sends and the receives that they meet.

use crate::fact::{Notes, Outcome, facts};
use crate::objects::{Bench, PAGE, Pages, Pair, Receive, Region, Request, Sge};
use crate::shown::{Opcode, State, Status, list};

facts! { "messages":
    a_send_lands_in_the_receive,
    immediate_data_comes_in_host_order,
    a_message_without_bytes_arrives,
    receives_are_taken_in_order,
    a_message_fills_the_pieces_in_order,
    a_long_message_arrives_whole,
    a_message_longer_than_its_receive_fails_on_both_ends,
    a_receive_with_a_wrong_key_fails_on_both_ends,
    a_receive_without_local_write_fails_on_both_ends,
    both_ends_send_at_once,
}

fn a_send_lands_in_the_receive(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.initiator.region.put(0, b"hello, receiver");
    pair.target.receive(3, 1000..1100)?;
    let sent = pair.run(pair.send(1, 0..15))?;
    notes.equal("status", Status::SUCCESS, sent.status);
    let received = pair.target.one()?;
    notes.equal("receive", "3 SUCCESS".into(), received.to_string());
    notes.equal("opcode", Opcode::RECV, received.opcode);
    notes.equal("byte_len", 15, received.byte_len);
    notes.equal("immediate data", "None".into(), format!("{:?}", received.imm));
    notes.bytes("bytes", b"hello, receiver\0", &pair.target.region.get(1000..1016));
    Ok(())
}

fn immediate_data_comes_in_host_order(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.target.receive(3, 0..8)?;
    let request = Request::send_imm(1, &[pair.initiator.sge(0..4)], 0x0102_0304);
    notes.equal("status", Status::SUCCESS, pair.run(request)?.status);
    let received = pair.target.one()?;
    notes.equal("opcode", Opcode::RECV, received.opcode);
    notes.equal("immediate data", "Some(1020304)".into(), format!("{:x?}", received.imm));
    notes.equal("byte_len", 4, received.byte_len);
    Ok(())
}

fn a_message_without_bytes_arrives(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.target.qp.must_receive(&[Receive::empty(1), Receive::new(2, &[pair.target.sge(0..8)])])?;
    pair.initiator.qp.must_post(&[Request::send(1, &[]), pair.send(2, 0..0)])?;
    notes.equal("completions", "1 SUCCESS, 2 SUCCESS".into(), list(pair.initiator.cq.take(2)?));
    for received in pair.target.cq.take(2)? {
        notes.equal("receive", Status::SUCCESS, received.status);
        notes.equal("byte_len", 0, received.byte_len);
    }
    Ok(())
}

fn receives_are_taken_in_order(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    for id in [8, 3, 5, 1] {
        pair.target.receive(id, id as usize * 8..id as usize * 8 + 8)?;
    }
    for place in 0..4usize {
        pair.initiator.region.put(place * 8, &[place as u8 + 1; 8]);
        pair.initiator.qp.must_post(&[pair.send(place as u64, place * 8..place * 8 + 8)])?;
    }
    let expected = "8 SUCCESS, 3 SUCCESS, 5 SUCCESS, 1 SUCCESS";
    notes.equal("receives", expected.into(), list(pair.target.cq.take(4)?));
    for (place, id) in [8, 3, 5, 1].into_iter().enumerate() {
        notes.bytes("bytes", &[place as u8 + 1; 8], &pair.target.region.get(id * 8..id * 8 + 8));
    }
    Ok(())
}

fn a_message_fills_the_pieces_in_order(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let piece = |part| pair.target.sge(part);
    pair.target
        .qp
        .must_receive(&[Receive::new(1, &[piece(40..43), piece(0..0), piece(20..24), piece(0..9)])])?;
    pair.initiator.region.put(0, b"abcdefghij");
    notes.equal("status", Status::SUCCESS, pair.run(pair.send(1, 0..10))?.status);
    notes.equal("byte_len", 10, pair.target.one()?.byte_len);
    notes.bytes("the first piece", b"abc\0", &pair.target.region.get(40..44));
    notes.bytes("the third piece", b"defg\0", &pair.target.region.get(20..25));
    notes.bytes("the last piece", b"hij\0", &pair.target.region.get(0..4));
    Ok(())
}

fn a_long_message_arrives_whole(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let bytes: Vec<u8> = (0..16384).map(|index| (index % 253) as u8).collect();
    pair.initiator.region.put(0, &bytes);
    pair.target.receive(1, 0..16384)?;
    notes.equal("status", Status::SUCCESS, pair.run(pair.send(1, 0..16384))?.status);
    notes.equal("byte_len", 16384, pair.target.one()?.byte_len);
    notes.bytes("bytes", &bytes, &pair.target.region.get(0..16384));
    Ok(())
}

/// Sends eight bytes that the receive can't take, and looks at both ends.
fn fails(pair: &Pair, notes: &mut Notes, expected: (Status, Status)) -> Outcome {
    notes.equal("send", expected.0, pair.run(pair.send(1, 0..8))?.status);
    notes.equal("receive", format!("9 {}", expected.1), pair.target.one()?.to_string());
    notes.equal("state of the sender", State::ERR, pair.initiator.qp.state()?);
    notes.equal("state of the receiver", State::ERR, pair.target.qp.state()?);
    Ok(())
}

fn a_message_longer_than_its_receive_fails_on_both_ends(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.target.receive(9, 0..7)?;
    fails(&pair, notes, (Status::REM_INV_REQ_ERR, Status::LOC_LEN_ERR))?;
    notes.bytes("the byte after the receive", &[0], &pair.target.region.get(7..8));
    Ok(())
}

fn receive_into(pair: &Pair, piece: Sge) -> Outcome {
    pair.target.qp.must_receive(&[Receive::new(9, &[piece])])
}

fn a_receive_with_a_wrong_key_fails_on_both_ends(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let mut piece = pair.target.sge(0..8);
    piece.lkey ^= 0xff;
    receive_into(&pair, piece)?;
    fails(&pair, notes, (Status::REM_OP_ERR, Status::LOC_PROT_ERR))
}

fn a_receive_without_local_write_fails_on_both_ends(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let readable = Region::new(&pair.target.pd, &Pages::new(PAGE)?, 0..PAGE, 0)?;
    receive_into(&pair, readable.sge(0..8))?;
    fails(&pair, notes, (Status::REM_OP_ERR, Status::LOC_PROT_ERR))
}

fn both_ends_send_at_once(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    for id in 0..4 {
        pair.initiator.receive(id, 0..64)?;
        pair.target.receive(id, 0..64)?;
    }
    for id in 10..14 {
        pair.initiator.qp.must_post(&[pair.send(id, 64..128).unsignalled()])?;
        pair.target.qp.must_post(&[Request::send(id, &[pair.target.sge(64..128)]).unsignalled()])?;
    }
    let expected = "0 SUCCESS, 1 SUCCESS, 2 SUCCESS, 3 SUCCESS";
    notes.equal("receives here", expected.into(), list(pair.initiator.cq.take(4)?));
    notes.equal("receives there", expected.into(), list(pair.target.cq.take(4)?));
    Ok(())
}
