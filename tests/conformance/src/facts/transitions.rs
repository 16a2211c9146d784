//! The state machine of a reliable connection: what leads from state to state, and what does not.

use rdma_sys as sys;

use crate::fact::{Notes, Outcome, facts};
use crate::objects::{Answer, Bench, Change, Terms};
use crate::shown::{Errno, State, Status};

facts! { "transitions":
    the_usual_way_leads_through_the_states,
    init_demands_its_attributes,
    rtr_demands_its_attributes,
    rts_demands_its_attributes,
    attributes_of_other_transitions_are_refused,
    states_are_not_skipped_nor_gone_back_to,
    reset_and_err_are_reached_from_everywhere,
    a_state_that_does_not_exist_is_refused,
    a_wrong_current_state_is_refused,
    init_can_be_changed_while_in_it,
    rts_can_be_changed_while_in_it,
    what_rts_cannot_change_is_refused,
    a_queue_pair_taken_back_to_reset_works_again,
    reset_forgets_receives,
    a_drained_queue_pair_goes_on,
}

type Attribute = (&'static str, u32);

const TO_INIT: [Attribute; 3] = [
    ("PKEY_INDEX", sys::IBV_QP_PKEY_INDEX),
    ("PORT", sys::IBV_QP_PORT),
    ("ACCESS_FLAGS", sys::IBV_QP_ACCESS_FLAGS),
];
const TO_RTR: [Attribute; 6] = [
    ("AV", sys::IBV_QP_AV),
    ("PATH_MTU", sys::IBV_QP_PATH_MTU),
    ("DEST_QPN", sys::IBV_QP_DEST_QPN),
    ("RQ_PSN", sys::IBV_QP_RQ_PSN),
    ("MAX_DEST_RD_ATOMIC", sys::IBV_QP_MAX_DEST_RD_ATOMIC),
    ("MIN_RNR_TIMER", sys::IBV_QP_MIN_RNR_TIMER),
];
const TO_RTS: [Attribute; 5] = [
    ("SQ_PSN", sys::IBV_QP_SQ_PSN),
    ("TIMEOUT", sys::IBV_QP_TIMEOUT),
    ("RETRY_CNT", sys::IBV_QP_RETRY_CNT),
    ("RNR_RETRY", sys::IBV_QP_RNR_RETRY),
    ("MAX_QP_RD_ATOMIC", sys::IBV_QP_MAX_QP_RD_ATOMIC),
];

fn the_usual_way_leads_through_the_states(bench: &Bench, notes: &mut Notes) -> Outcome {
    let qp = bench.lone_qp()?;
    let to = bench.connection(qp.qpn(), Terms::default());
    for state in [State::INIT, State::RTR, State::RTS, State::ERR, State::RESET] {
        notes.equal(&format!("to {state}"), Errno::DONE, qp.modify(Change::toward(state, &to)));
        notes.equal("state by the query", state, qp.state()?);
        notes.equal("state in the structure", state, qp.kept_state());
    }
    Ok(())
}

/// Going from `from` to `state` is refused without any one of the attributes.
fn demands(bench: &Bench, notes: &mut Notes, from: State, state: State, attributes: &[Attribute]) -> Outcome {
    for (name, mask) in attributes {
        let answer = bench.attempt(from, |to| Change::toward(state, to).without(*mask))?;
        notes.equal(&format!("without {name}"), Answer::invalid(from), answer);
    }
    Ok(())
}

fn init_demands_its_attributes(bench: &Bench, notes: &mut Notes) -> Outcome {
    demands(bench, notes, State::RESET, State::INIT, &TO_INIT)
}

fn rtr_demands_its_attributes(bench: &Bench, notes: &mut Notes) -> Outcome {
    demands(bench, notes, State::INIT, State::RTR, &TO_RTR)
}

fn rts_demands_its_attributes(bench: &Bench, notes: &mut Notes) -> Outcome {
    demands(bench, notes, State::RTR, State::RTS, &TO_RTS)
}

/// One that is refused, with the words for it, from a state to itself or another.
fn refused(bench: &Bench, notes: &mut Notes, from: State, state: State, also: &[Attribute]) -> Outcome {
    for (name, mask) in also {
        let answer = bench.attempt(from, |to| with(Change::toward(state, to), *mask))?;
        notes.equal(&format!("{from} to {state} with {name}"), Answer::invalid(from), answer);
    }
    Ok(())
}

/// Adds attributes with values that would do.
fn with(change: Change, mask: u32) -> Change {
    change.also(mask, |attr| {
        attr.path_mtu = attr.path_mtu.max(sys::IBV_MTU_256);
        attr.port_num = 1;
    })
}

fn attributes_of_other_transitions_are_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let qkey = ("QKEY", sys::IBV_QP_QKEY);
    refused(bench, notes, State::RESET, State::INIT, &[qkey, TO_RTS[0], TO_RTR[2], TO_RTR[1]])?;
    refused(bench, notes, State::INIT, State::RTR, &[qkey, TO_RTS[0], TO_RTS[1], TO_RTS[2], TO_INIT[1]])?;
    refused(bench, notes, State::RTR, State::RTS, &[qkey, TO_RTR[2], TO_RTR[1], TO_RTR[3], TO_INIT[1]])?;
    refused(bench, notes, State::RTS, State::ERR, &[TO_RTS[1], TO_INIT[2]])?;
    refused(bench, notes, State::RTS, State::RESET, &[TO_INIT[2]])
}

fn states_are_not_skipped_nor_gone_back_to(bench: &Bench, notes: &mut Notes) -> Outcome {
    let wrong: [(State, &[State]); 5] = [
        (State::RESET, &[State::RTR, State::RTS, State::SQD]),
        (State::INIT, &[State::RTS, State::SQD, State::SQE]),
        (State::RTR, &[State::INIT, State::RTR, State::SQD]),
        (State::RTS, &[State::INIT, State::RTR, State::SQE]),
        (State::ERR, &[State::INIT, State::RTR, State::RTS, State::SQD]),
    ];
    for (from, states) in wrong {
        for state in states {
            let answer = bench.attempt(from, |to| Change::toward(*state, to))?;
            notes.equal(&format!("{from} to {state}"), Answer::invalid(from), answer);
        }
    }
    Ok(())
}

fn reset_and_err_are_reached_from_everywhere(bench: &Bench, notes: &mut Notes) -> Outcome {
    for state in [State::RESET, State::ERR] {
        for from in [State::INIT, State::RTR, State::RTS, State::SQD, State::ERR] {
            let answer = bench.attempt(from, |_| Change::to(state))?;
            notes.equal(&format!("{from} to {state}"), Answer::done(state), answer);
        }
    }
    Ok(())
}

fn a_state_that_does_not_exist_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    for number in [7, 99] {
        let answer = bench.attempt(State::INIT, |_| Change::to(State(number)))?;
        notes.equal(&format!("state {number}"), Answer::invalid(State::INIT), answer);
    }
    Ok(())
}

/// CUR_STATE is the state that the caller believes it in.
fn a_wrong_current_state_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let believed_in = |believed: State| {
        bench.attempt(State::RTR, |to| {
            Change::to_rts(to).also(sys::IBV_QP_CUR_STATE, |attr| attr.cur_qp_state = believed.0)
        })
    };
    notes.equal("RTR, believed in RTR", Answer::done(State::RTS), believed_in(State::RTR)?);
    notes.equal("RTR, believed in RTS", Answer::invalid(State::RTR), believed_in(State::RTS)?);
    Ok(())
}

fn init_can_be_changed_while_in_it(bench: &Bench, notes: &mut Notes) -> Outcome {
    let qp = bench.lone_qp()?;
    qp.take_to(State::INIT, &bench.connection(qp.qpn(), Terms::default()))?;
    let mut less = bench.connection(0, Terms { access: sys::IBV_ACCESS_REMOTE_READ, ..Terms::default() });
    notes.equal("all attributes", Errno::DONE, qp.modify(Change::to_init(&less)));
    notes.equal("access flags", sys::IBV_ACCESS_REMOTE_READ, qp.query()?.attr.qp_access_flags);
    less.terms.access = 0;
    let only_access = Change::to_init(&less).without(sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT);
    notes.equal("access flags alone", Errno::DONE, qp.modify(only_access));
    notes.equal("access flags after it", 0, qp.query()?.attr.qp_access_flags);
    notes.equal("state", State::INIT, qp.state()?);
    Ok(())
}

fn rts_can_be_changed_while_in_it(bench: &Bench, notes: &mut Notes) -> Outcome {
    let qp = bench.lone_qp()?;
    qp.take_to(State::RTS, &bench.connection(qp.qpn(), Terms::default()))?;
    let mask = sys::IBV_QP_ACCESS_FLAGS | sys::IBV_QP_MIN_RNR_TIMER;
    let change = Change::to(State::RTS).also(mask, |attr| {
        attr.qp_access_flags = sys::IBV_ACCESS_REMOTE_WRITE;
        attr.min_rnr_timer = 20;
    });
    notes.equal("with RTS as the state", Errno::DONE, qp.modify(change));
    let attr = qp.query()?.attr;
    notes.equal("access flags", sys::IBV_ACCESS_REMOTE_WRITE, attr.qp_access_flags);
    notes.equal("min_rnr_timer", 20, attr.min_rnr_timer);
    let stay = Change::nothing().also(sys::IBV_QP_MIN_RNR_TIMER, |attr| attr.min_rnr_timer = 21);
    notes.equal("without a state", Errno::DONE, qp.modify(stay));
    notes.equal("min_rnr_timer after it", 21, qp.query()?.attr.min_rnr_timer);
    notes.equal("state", State::RTS, qp.state()?);
    Ok(())
}

fn what_rts_cannot_change_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    for (name, mask) in TO_RTS.iter().chain(&TO_RTR[..5]).chain(&TO_INIT[1..2]) {
        let answer = bench.attempt(State::RTS, |_| with(Change::to(State::RTS), *mask))?;
        notes.equal(name, Answer::invalid(State::RTS), answer);
    }
    Ok(())
}

fn a_queue_pair_taken_back_to_reset_works_again(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    for round in 1..=3u8 {
        pair.initiator.region.put(0, &[round; 8]);
        notes.equal("a write", Status::SUCCESS, pair.run(pair.write(round.into(), 0..8))?.status);
        notes.bytes("its bytes", &[round; 8], &pair.target.region.get(0..8));
        pair.reconnect(bench)?;
    }
    Ok(())
}

fn reset_forgets_receives(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.target.receive(1, 0..8)?;
    pair.reconnect(bench)?;
    notes.equal("completions of the first receive", "none".into(), pair.target.cq.rest()?);
    pair.target.receive(2, 8..16)?;
    notes.equal("a send", Status::SUCCESS, pair.run(pair.send(7, 0..8))?.status);
    notes.equal("the receive taken", 2, pair.target.one()?.id);
    Ok(())
}

fn a_drained_queue_pair_goes_on(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    notes.equal("a write before", Status::SUCCESS, pair.run(pair.write(1, 0..8))?.status);
    notes.equal("to SQD", Errno::DONE, pair.initiator.qp.modify(Change::to(State::SQD)));
    notes.equal("state", State::SQD, pair.initiator.qp.state()?);
    pair.initiator.qp.must_post(&[pair.write(2, 0..8)])?;
    notes.equal("completions in SQD", "none".into(), pair.initiator.cq.rest()?);
    notes.equal("back to RTS", Errno::DONE, pair.initiator.qp.modify(Change::to(State::RTS)));
    notes.equal("completions in RTS", "2 SUCCESS".into(), pair.initiator.cq.some(1)?);
    pair.initiator.qp.must_post(&[pair.write(3, 0..8)])?;
    notes.equal("completions after another write", "3 SUCCESS".into(), pair.initiator.cq.up_to(3)?);
    Ok(())
}
