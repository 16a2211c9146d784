//! The same between two processes, each with the device open for itself.

use crate::fact::{Notes, Outcome, facts};
use crate::objects::{Bench, MOMENT, Remote, Request, Shape, Terms};
use crate::peer::Peer;
use crate::shown::{Opcode, State, Status};

facts! { "processes":
    a_write_lands_in_the_other_process,
    writes_go_both_ways,
    a_send_wakes_the_other_process,
    immediate_data_reaches_the_other_process,
    a_wrong_key_is_refused_by_the_other_process,
    a_send_waits_for_a_receive_of_the_other_process,
    a_killed_process_is_not_reached,
}

fn a_write_lands_in_the_other_process(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (end, mut peer) = Peer::pair(bench, &Shape::default())?;
    let bytes: Vec<u8> = (0..16384).map(|index| (index % 251) as u8).collect();
    end.region.put(0, &bytes);
    for len in [8, 1, 4097, 16384] {
        end.qp.must_post(&[Request::write(1, &[end.sge(0..len)], peer.remote())])?;
        notes.equal(&format!("{len} bytes"), Status::SUCCESS, end.one()?.status);
        notes.bytes(&format!("{len} bytes there"), &bytes[..len], &peer.get(0..len)?);
    }
    Ok(())
}

fn writes_go_both_ways(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (end, mut peer) = Peer::pair(bench, &Shape::default())?;
    for round in 1..=4u8 {
        peer.put(&[round; 16])?;
        peer.write(16, end.remote(100))?;
        end.region.await_byte(115, round)?;
        notes.equal("a write from there", Status::SUCCESS, peer.take()?.status);
        notes.bytes("its bytes", &[round; 16], &end.region.get(100..116));
        end.region.put(0, &[round + 100; 16]);
        end.qp.must_post(&[Request::write(round.into(), &[end.sge(0..16)], peer.remote())])?;
        notes.equal("a write from here", Status::SUCCESS, end.one()?.status);
        notes.bytes("its bytes there", &[round + 100; 16], &peer.get(0..16)?);
    }
    Ok(())
}

fn a_send_wakes_the_other_process(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (end, mut peer) = Peer::pair(bench, &Shape::default())?;
    peer.receive(5, 0..64)?;
    peer.arm()?;
    peer.sleep()?;
    // It is asleep by then, or finds the event there: both have to do.
    std::thread::sleep(MOMENT);
    end.region.put(0, b"wake up");
    end.qp.must_post(&[Request::send(1, &[end.sge(0..7)])])?;
    peer.woken()?;
    notes.equal("the send", Status::SUCCESS, end.one()?.status);
    let received = peer.take()?;
    notes.equal("its receive", "5 SUCCESS".into(), received.to_string());
    notes.equal("byte_len", 7, received.byte_len);
    notes.bytes("bytes there", b"wake up", &peer.get(0..7)?);
    Ok(())
}

fn immediate_data_reaches_the_other_process(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (end, mut peer) = Peer::pair(bench, &Shape::default())?;
    peer.receive(5, 0..64)?;
    end.qp.must_post(&[Request::write_imm(1, &[end.sge(0..100)], peer.remote(), 0x55aa)])?;
    notes.equal("the write", Status::SUCCESS, end.one()?.status);
    let received = peer.take()?;
    notes.equal("opcode", Opcode::RECV_RDMA_WITH_IMM, received.opcode);
    notes.equal("byte_len", 100, received.byte_len);
    notes.equal("immediate data", "Some(55aa)".into(), format!("{:x?}", received.imm));
    Ok(())
}

fn a_wrong_key_is_refused_by_the_other_process(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (end, mut peer) = Peer::pair(bench, &Shape::default())?;
    end.region.put(0, &[1; 8]);
    let wrong = Remote { rkey: peer.remote().rkey ^ 1, ..peer.remote() };
    end.qp.must_post(&[Request::write(1, &[end.sge(0..8)], wrong)])?;
    notes.equal("status", Status::REM_ACCESS_ERR, end.one()?.status);
    notes.equal("state", State::ERR, end.qp.state()?);
    notes.bytes("bytes there", &[0; 8], &peer.get(0..8)?);
    Ok(())
}

fn a_send_waits_for_a_receive_of_the_other_process(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (end, mut peer) = Peer::pair(bench, &Shape::default())?;
    end.qp.must_post(&[Request::send(1, &[end.sge(0..8)])])?;
    notes.equal("completions without a receive", "none".into(), end.cq.rest()?);
    peer.receive(5, 0..64)?;
    notes.equal("the send", "1 SUCCESS".into(), end.one()?.to_string());
    notes.equal("its receive", "5 SUCCESS".into(), peer.take()?.to_string());
    Ok(())
}

fn a_killed_process_is_not_reached(bench: &Bench, notes: &mut Notes) -> Outcome {
    // 0.5 s three times: the first write has to arrive on a slow machine, too.
    let terms = Terms { timeout: 17, retry_cnt: 2, ..Terms::default() };
    let (end, mut peer) = Peer::pair(bench, &Shape::on(terms))?;
    let write = |id| Request::write(id, &[end.sge(0..8)], peer.remote());
    let (first, second) = (write(1), write(2));
    end.qp.must_post(&[first])?;
    notes.equal("a write before", Status::SUCCESS, end.one()?.status);
    peer.kill()?;
    end.qp.must_post(&[second])?;
    notes.equal("a write after it", Status::RETRY_EXC_ERR, end.one()?.status);
    Ok(())
}
