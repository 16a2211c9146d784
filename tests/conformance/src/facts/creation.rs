//! Making queue pairs: what is granted, what is refused, and what they begin as.

use rdma_sys as sys;

use crate::fact::{Notes, Outcome, facts};
use crate::objects::{Bench, Qp, QpShape, answer};
use crate::shown::{Errno, State, hex};

facts! { "creation":
    a_queue_pair_is_granted_at_least_what_it_asks_for,
    the_limits_granted_are_those_that_the_query_gives,
    a_queue_pair_begins_in_reset,
    the_queue_pair_knows_what_it_was_made_of,
    numbers_have_24_bits_and_differ,
    more_requests_than_the_limit_are_refused,
    more_pieces_than_the_limit_are_refused,
    more_inline_data_than_any_device_has_is_refused,
    a_type_that_does_not_exist_is_refused,
    the_device_limits_can_be_used_to_the_last,
}

fn a_queue_pair_is_granted_at_least_what_it_asks_for(bench: &Bench, notes: &mut Notes) -> Outcome {
    let shape =
        QpShape { send_wr: 33, recv_wr: 5, send_sge: 2, recv_sge: 1, inline: 100, ..Default::default() };
    let granted = bench.lone_qp_of(&shape)?.granted();
    notes.holds("max_send_wr", "33 or more", granted.send_wr >= 33, granted.send_wr);
    notes.holds("max_recv_wr", "5 or more", granted.recv_wr >= 5, granted.recv_wr);
    notes.holds("max_send_sge", "2 or more", granted.send_sge >= 2, granted.send_sge);
    notes.holds("max_recv_sge", "1 or more", granted.recv_sge >= 1, granted.recv_sge);
    notes.holds("max_inline_data", "100 or more", granted.inline >= 100, granted.inline);
    Ok(())
}

fn the_limits_granted_are_those_that_the_query_gives(bench: &Bench, notes: &mut Notes) -> Outcome {
    let qp = bench.lone_qp()?;
    let (granted, queried) = (qp.granted(), qp.query()?);
    let limits = queried.limits();
    notes.equal("max_send_wr", granted.send_wr, limits.send_wr);
    notes.equal("max_recv_wr", granted.recv_wr, limits.recv_wr);
    notes.equal("max_send_sge", granted.send_sge, limits.send_sge);
    notes.equal("max_recv_sge", granted.recv_sge, limits.recv_sge);
    notes.equal("max_inline_data", granted.inline, limits.inline);
    notes.equal("both sets of the query", true, queried.initial_limits() == limits);
    Ok(())
}

fn a_queue_pair_begins_in_reset(bench: &Bench, notes: &mut Notes) -> Outcome {
    let qp = bench.lone_qp()?;
    notes.equal("state in the structure", State::RESET, qp.kept_state());
    notes.equal("state by the query", State::RESET, qp.state()?);
    Ok(())
}

fn the_queue_pair_knows_what_it_was_made_of(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pd = bench.pd()?;
    let (send_cq, recv_cq) = (bench.cq()?, bench.cq()?);
    for signal_all in [false, true] {
        let shape = QpShape { signal_all, context: 0x5678, ..Default::default() };
        let qp = Qp::new(&pd, &send_cq, &recv_cq, &shape)?;
        let (context, ours) = qp.fields();
        notes.equal("qp_context", 0x5678, context);
        notes.holds("context, pd, queues and type", "those it was made with", ours, ours);
        let init = qp.query()?.init;
        notes.equal("sq_sig_all by the query", signal_all, init.sq_sig_all != 0);
        notes.equal("qp_type by the query", sys::IBV_QPT_RC, init.qp_type);
    }
    Ok(())
}

fn numbers_have_24_bits_and_differ(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pd = bench.pd()?;
    let cq = bench.cq()?;
    let qps: Result<Vec<Qp>, _> = (0..8).map(|_| Qp::new(&pd, &cq, &cq, &QpShape::default())).collect();
    let mut numbers: Vec<u32> = qps?.iter().map(Qp::qpn).collect();
    let shown = numbers.iter().map(|number| hex(*number)).collect::<Vec<_>>().join(" ");
    // 0 and 1 are the subnet and the general services', and all ones is multicast's.
    let within = numbers.iter().all(|number| (2..0xff_ffff).contains(number));
    notes.holds("numbers", "2 to 0xfffffe", within, &shown);
    numbers.sort_unstable();
    numbers.dedup();
    notes.equal("different ones", 8, numbers.len());
    Ok(())
}

fn more_requests_than_the_limit_are_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let over = bench.device().limits()?.max_qp_wr as u32 + 1;
    let reasons = [Errno::EINVAL, Errno::ENOMEM];
    let send = answer(&bench.lone_qp_of(&QpShape { send_wr: over, ..Default::default() }));
    notes.either("max_send_wr", &reasons, send);
    let recv = answer(&bench.lone_qp_of(&QpShape { recv_wr: over, ..Default::default() }));
    notes.either("max_recv_wr", &reasons, recv);
    Ok(())
}

fn more_pieces_than_the_limit_are_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let over = bench.device().limits()?.max_sge as u32 + 1;
    let reasons = [Errno::EINVAL, Errno::ENOMEM];
    let send = answer(&bench.lone_qp_of(&QpShape { send_sge: over, ..Default::default() }));
    notes.either("max_send_sge", &reasons, send);
    let recv = answer(&bench.lone_qp_of(&QpShape { recv_sge: over, ..Default::default() }));
    notes.either("max_recv_sge", &reasons, recv);
    Ok(())
}

fn more_inline_data_than_any_device_has_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let errno = answer(&bench.lone_qp_of(&QpShape { inline: 1 << 20, ..Default::default() }));
    notes.either("1 MiB", &[Errno::EINVAL, Errno::ENOMEM], errno);
    Ok(())
}

fn a_type_that_does_not_exist_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let errno = answer(&bench.lone_qp_of(&QpShape { qp_type: 99, ..Default::default() }));
    notes.either("type 99", &[Errno::EINVAL, Errno::EOPNOTSUPP], errno);
    Ok(())
}

fn the_device_limits_can_be_used_to_the_last(bench: &Bench, notes: &mut Notes) -> Outcome {
    let limits = bench.device().limits()?;
    let pieces = limits.max_sge as u32;
    let shape = QpShape { send_sge: pieces, recv_sge: pieces, inline: 0, ..Default::default() };
    notes.equal("max_sge", Errno::DONE, answer(&bench.lone_qp_of(&shape)));
    notes.equal("max_cqe", Errno::DONE, answer(&bench.cq_of(limits.max_cqe)));
    Ok(())
}
