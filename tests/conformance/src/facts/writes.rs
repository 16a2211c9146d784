//! RDMA writes and reads: which bytes land where.

use rdma_sys as sys;

use crate::fact::{Notes, Obstacle, Outcome, facts};
use crate::objects::{ALL_ACCESS, Bench, Pages, Receive, Region, Request, Shape, Terms};
use crate::shown::{Opcode, State, Status, list};

facts! { "writes":
    its_bytes_land_and_no_others,
    lengths_around_the_path_mtu_arrive_whole,
    megabytes_arrive_whole,
    no_bytes_are_written_to_any_key,
    pieces_of_no_bytes_are_passed_over,
    the_later_of_two_writes_stays,
    a_write_takes_no_receive,
    immediate_data_takes_a_receive_and_leaves_its_memory,
    immediate_data_comes_without_other_data,
    a_queue_pair_can_write_to_itself,
    sequence_numbers_wrap,
    a_read_brings_the_bytes,
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8 + 1).collect()
}

fn its_bytes_land_and_no_others(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.initiator.region.put(0, &[1; 256]);
    notes.equal("status", Status::SUCCESS, pair.run(pair.write(1, 100..113))?.status);
    let expected = [[0; 100].as_slice(), &[1; 13], &[0; 143]].concat();
    notes.bytes("bytes at the target", &expected, &pair.target.region.get(0..256));
    Ok(())
}

fn lengths_around_the_path_mtu_arrive_whole(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let mtu = 128 << bench.port().active_mtu;
    let bytes = pattern(16384);
    pair.initiator.region.put(0, &bytes);
    for len in [1, 2, 3, mtu - 1, mtu, mtu + 1, 3 * mtu - 1, 3 * mtu, 16383, 16384] {
        pair.target.region.put(0, &[0; 16384]);
        let status = pair.run(pair.write(1, 0..len))?.status;
        notes.equal(&format!("{len} bytes"), Status::SUCCESS, status);
        let expected = [&bytes[..len], &vec![0; 16384 - len]].concat();
        notes.bytes(&format!("{len} bytes at the target"), &expected, &pair.target.region.get(0..16384));
    }
    Ok(())
}

/// Longer than any buffer on the way, and of no round length.
fn megabytes_arrive_whole(bench: &Bench, notes: &mut Notes) -> Outcome {
    const LEN: usize = (3 << 20) + 5;
    let pair = bench.pair()?;
    let region = |pd| Region::new(pd, &Pages::new(LEN)?, 0..LEN, ALL_ACCESS).map_err(Obstacle::from);
    let (from, to) = (region(&pair.initiator.pd)?, region(&pair.target.pd)?);
    let bytes = pattern(LEN);
    from.put(0, &bytes);
    let status = pair.run(Request::write(1, &[from.sge(0..LEN)], to.remote(0)))?.status;
    notes.equal("a write", Status::SUCCESS, status);
    notes.holds("its bytes at the target", "as sent", to.get(0..LEN) == bytes, "others");
    from.put(0, &vec![0; LEN]);
    let mut read = Request::write(2, &[from.sge(0..LEN)], to.remote(0));
    read.opcode = sys::IBV_WR_RDMA_READ;
    notes.equal("a read", Status::SUCCESS, pair.run(read)?.status);
    notes.holds("its bytes here", "as there", from.get(0..LEN) == bytes, "others");
    Ok(())
}

/// "The R_Key is not checked where the length is 0."
fn no_bytes_are_written_to_any_key(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    notes.equal(
        "without pieces",
        Status::SUCCESS,
        pair.run(Request::write(1, &[], pair.target.remote(0)))?.status,
    );
    let mut request = pair.write(2, 0..0);
    notes.equal("an empty piece", Status::SUCCESS, pair.run(request.clone())?.status);
    request.remote.rkey ^= 0xff;
    request.remote.addr = 1;
    notes.equal("a wrong key", Status::SUCCESS, pair.run(request)?.status);
    Ok(())
}

fn pieces_of_no_bytes_are_passed_over(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.initiator.region.put(0, b"abcdef");
    let piece = |part| pair.initiator.sge(part);
    let pieces = [piece(3..3), piece(0..2), piece(5..5), piece(4..6)];
    notes.equal(
        "status",
        Status::SUCCESS,
        pair.run(Request::write(1, &pieces, pair.target.remote(0)))?.status,
    );
    notes.bytes("bytes at the target", b"abef\0", &pair.target.region.get(0..5));
    Ok(())
}

fn the_later_of_two_writes_stays(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    for place in 0..8 {
        pair.initiator.region.put(place * 64, &[place as u8 + 1; 64]);
    }
    let to_start = |id: usize| {
        Request::write(id as u64, &[pair.initiator.sge(id * 64..id * 64 + 64)], pair.target.remote(0))
    };
    pair.initiator.qp.must_post(&(0..8).map(to_start).collect::<Vec<_>>())?;
    pair.initiator.cq.take(8)?;
    notes.bytes("bytes at the target", &[8; 64], &pair.target.region.get(0..64));
    Ok(())
}

fn a_write_takes_no_receive(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.target.receive(1, 64..72)?;
    notes.equal("a write", Status::SUCCESS, pair.run(pair.write(1, 0..8))?.status);
    notes.equal("completions at the target", "none".into(), pair.target.cq.rest()?);
    notes.equal("a send", Status::SUCCESS, pair.run(pair.send(2, 0..8))?.status);
    notes.equal("completions after it", "1 SUCCESS".into(), list(pair.target.cq.take(1)?));
    Ok(())
}

fn immediate_data_takes_a_receive_and_leaves_its_memory(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.initiator.region.put(0, &[9; 100]);
    pair.target.receive(4, 1000..1100)?;
    let request = Request::write_imm(1, &[pair.initiator.sge(0..100)], pair.target.remote(0), 0xc0ff_ee01);
    notes.equal("status", Status::SUCCESS, pair.run(request)?.status);
    let received = pair.target.one()?;
    notes.equal("receive", 4, received.id);
    notes.equal("opcode", Opcode::RECV_RDMA_WITH_IMM, received.opcode);
    notes.equal("byte_len", 100, received.byte_len);
    notes.equal("immediate data", "Some(c0ffee01)".into(), format!("{:x?}", received.imm));
    notes.bytes("bytes where they were written", &[9; 100], &pair.target.region.get(0..100));
    notes.bytes("bytes of the receive", &[0; 100], &pair.target.region.get(1000..1100));
    Ok(())
}

fn immediate_data_comes_without_other_data(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.target.qp.must_receive(&[Receive::empty(4)])?;
    notes.equal(
        "status",
        Status::SUCCESS,
        pair.run(Request::write_imm(1, &[], pair.target.remote(0), 0))?.status,
    );
    let received = pair.target.one()?;
    notes.equal("opcode", Opcode::RECV_RDMA_WITH_IMM, received.opcode);
    notes.equal("byte_len", 0, received.byte_len);
    notes.equal("immediate data", "Some(0)".into(), format!("{:x?}", received.imm));
    Ok(())
}

fn a_queue_pair_can_write_to_itself(bench: &Bench, notes: &mut Notes) -> Outcome {
    let end = bench.end(&Shape::default())?;
    end.qp.take_to(State::RTS, &bench.connection(end.qp.qpn(), Terms::default()))?;
    end.region.put(0, b"to me");
    end.qp.must_post(&[Request::write(1, &[end.sge(0..5)], end.remote(100))])?;
    notes.equal("status", Status::SUCCESS, end.one()?.status);
    notes.bytes("bytes", b"to me", &end.region.get(100..105));
    Ok(())
}

fn sequence_numbers_wrap(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.unconnected_pair(&Shape::default())?;
    for (end, peer) in [(&pair.target, &pair.initiator), (&pair.initiator, &pair.target)] {
        let mut to = bench.connection(peer.qp.qpn(), Terms::default());
        (to.sq_psn, to.rq_psn) = (0xff_fffe, 0xff_fffe);
        end.qp.take_to(State::RTS, &to)?;
    }
    for id in 0..6 {
        notes.equal("status", Status::SUCCESS, pair.run(pair.write(id, 0..16384))?.status);
    }
    Ok(())
}

fn a_read_brings_the_bytes(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let bytes = pattern(10000);
    pair.target.region.put(6, &bytes);
    let mut request = Request::write(1, &[pair.initiator.sge(3..10003)], pair.target.remote(6));
    request.opcode = sys::IBV_WR_RDMA_READ;
    let completion = pair.run(request)?;
    notes.equal("status", Status::SUCCESS, completion.status);
    notes.equal("opcode", Opcode::RDMA_READ, completion.opcode);
    notes.bytes("bytes here", &bytes, &pair.initiator.region.get(3..10003));
    Ok(())
}
