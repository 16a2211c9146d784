//! The order in which objects can be destroyed: what is in use can't be.

use crate::fact::{Notes, Outcome, facts};
use crate::objects::{Bench, Qp, QpShape, Receive, Request};
use crate::shown::{Errno, Status};

facts! { "teardown":
    a_domain_with_a_registration_is_busy,
    a_domain_with_a_queue_pair_is_busy,
    a_completion_queue_with_a_queue_pair_is_busy,
    each_of_two_completion_queues_is_busy,
    a_channel_with_a_completion_queue_is_busy,
    a_refused_destruction_harms_nothing,
    a_connected_queue_pair_can_be_destroyed,
}

fn a_domain_with_a_registration_is_busy(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pd = bench.pd()?;
    let region = bench.region(&pd)?;
    notes.equal("with the registration", Errno::EBUSY, pd.free());
    notes.equal("ending it", Errno::DONE, region.end());
    notes.equal("without", Errno::DONE, pd.free());
    Ok(())
}

fn a_domain_with_a_queue_pair_is_busy(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (pd, cq) = (bench.pd()?, bench.cq()?);
    let qp = Qp::new(&pd, &cq, &cq, &QpShape::default())?;
    notes.equal("with the queue pair", Errno::EBUSY, pd.free());
    notes.equal("destroying it", Errno::DONE, qp.destroy());
    notes.equal("without", Errno::DONE, pd.free());
    Ok(())
}

fn a_completion_queue_with_a_queue_pair_is_busy(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (pd, cq) = (bench.pd()?, bench.cq()?);
    let qp = Qp::new(&pd, &cq, &cq, &QpShape::default())?;
    notes.equal("with the queue pair", Errno::EBUSY, cq.destroy());
    notes.equal("destroying it", Errno::DONE, qp.destroy());
    notes.equal("without", Errno::DONE, cq.destroy());
    Ok(())
}

fn each_of_two_completion_queues_is_busy(bench: &Bench, notes: &mut Notes) -> Outcome {
    let (pd, send_cq, recv_cq) = (bench.pd()?, bench.cq()?, bench.cq()?);
    let qp = Qp::new(&pd, &send_cq, &recv_cq, &QpShape::default())?;
    notes.equal("the send queue's", Errno::EBUSY, send_cq.destroy());
    notes.equal("the receive queue's", Errno::EBUSY, recv_cq.destroy());
    drop(qp);
    notes.equal("the send queue's, without", Errno::DONE, send_cq.destroy());
    notes.equal("the receive queue's, without", Errno::DONE, recv_cq.destroy());
    Ok(())
}

fn a_channel_with_a_completion_queue_is_busy(bench: &Bench, notes: &mut Notes) -> Outcome {
    let channel = bench.channel()?;
    let cq = bench.cq_with(Some(&channel), 0, 0)?;
    notes.equal("with the queue", Errno::EBUSY, channel.destroy());
    notes.equal("destroying it", Errno::DONE, cq.destroy());
    notes.equal("without", Errno::DONE, channel.destroy());
    Ok(())
}

fn a_refused_destruction_harms_nothing(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    notes.equal("the domain", Errno::EBUSY, pair.target.pd.free());
    notes.equal("the completion queue", Errno::EBUSY, pair.initiator.cq.destroy());
    pair.initiator.region.put(0, b"unharmed");
    let request = Request::write(1, &[pair.initiator.sge(0..8)], pair.target.remote(0));
    pair.initiator.qp.must_post(&[request])?;
    notes.equal("a write", Status::SUCCESS, pair.initiator.one()?.status);
    notes.bytes("its bytes", b"unharmed", &pair.target.region.get(0..8));
    Ok(())
}

fn a_connected_queue_pair_can_be_destroyed(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.target.qp.must_receive(&[Receive::new(1, &[pair.target.sge(0..64)])])?;
    notes.equal("with a receive outstanding", Errno::DONE, pair.target.qp.destroy());
    notes.equal("its peer", Errno::DONE, pair.initiator.qp.destroy());
    Ok(())
}
