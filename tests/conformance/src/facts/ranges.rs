//! Values of attributes that no queue pair can have.

use rdma_sys as sys;

use crate::fact::{Notes, Outcome, facts};
use crate::objects::{Answer, Bench, Change};
use crate::shown::{Errno, State};

facts! { "ranges":
    a_port_that_does_not_exist_is_refused,
    a_partition_key_beyond_the_table_is_refused,
    a_path_mtu_that_is_none_is_refused,
    a_path_mtu_above_the_ports_is_refused,
    a_gid_index_beyond_the_table_is_refused,
    an_unused_gid_index_is_refused,
    a_route_without_a_gid_is_refused_on_ethernet,
    more_reads_in_flight_than_the_device_has_are_refused,
    a_timer_beyond_five_bits_is_refused,
    retries_beyond_three_bits_are_refused,
    the_largest_values_are_taken,
}

/// A change to `state` that is out of range is refused and leaves the state.
fn refused(
    bench: &Bench,
    notes: &mut Notes,
    words: &str,
    state: State,
    set: impl FnOnce(&mut sys::ibv_qp_attr),
) -> Outcome {
    let from = before(state);
    let answer = bench.attempt(from, |to| Change::toward(state, to).also(0, set))?;
    notes.equal(words, Answer::invalid(from), answer);
    Ok(())
}

fn before(state: State) -> State {
    match state {
        State::INIT => State::RESET,
        State::RTR => State::INIT,
        _ => State::RTR,
    }
}

fn a_port_that_does_not_exist_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let count = bench.device().limits()?.phys_port_cnt;
    refused(bench, notes, "port 0", State::INIT, |attr| attr.port_num = 0)?;
    refused(bench, notes, "the port after the last", State::INIT, |attr| attr.port_num = count + 1)
}

fn a_partition_key_beyond_the_table_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let end = bench.port().pkey_tbl_len;
    refused(bench, notes, "the table's length", State::INIT, |attr| attr.pkey_index = end)
}

fn a_path_mtu_that_is_none_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    refused(bench, notes, "0", State::RTR, |attr| attr.path_mtu = 0)?;
    refused(bench, notes, "6", State::RTR, |attr| attr.path_mtu = 6)
}

fn a_path_mtu_above_the_ports_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let active = bench.port().active_mtu;
    refused(bench, notes, "one more than active_mtu", State::RTR, |attr| attr.path_mtu = active + 1)
}

fn a_gid_index_beyond_the_table_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    // The attribute has eight bits, and tables may have as many entries.
    let Ok(end) = u8::try_from(bench.port().gid_tbl_len) else {
        notes.holds("the table", "more entries than indices", true, bench.port().gid_tbl_len);
        return Ok(());
    };
    refused(bench, notes, "the table's length", State::RTR, |attr| {
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.sgid_index = end;
    })
}

fn an_unused_gid_index_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let length = bench.port().gid_tbl_len.min(256) as u32;
    let port = u32::from(bench.port_num());
    let Some(unused) = (0..length).rev().find(|index| bench.device().gid_entry(port, *index, 0).is_err())
    else {
        notes.holds("the table", "full, or with an unused entry", true, "full");
        return Ok(());
    };
    let answer = bench.attempt(State::INIT, |to| {
        Change::to_rtr(to).also(0, |attr| {
            attr.ah_attr.is_global = 1;
            attr.ah_attr.grh.sgid_index = unused as u8;
        })
    })?;
    let allowed = [Errno::EINVAL, Errno::ENODATA].map(|errno| Answer::refused(errno, State::INIT));
    notes.either("an unused index", &allowed, answer);
    Ok(())
}

fn a_route_without_a_gid_is_refused_on_ethernet(bench: &Bench, notes: &mut Notes) -> Outcome {
    if u32::from(bench.port().link_layer) != sys::IBV_LINK_LAYER_ETHERNET {
        notes.equal("by LID", Answer::done(State::RTR), bench.attempt(State::INIT, Change::to_rtr)?);
        return Ok(());
    }
    refused(bench, notes, "is_global 0", State::RTR, |attr| attr.ah_attr.is_global = 0)
}

fn more_reads_in_flight_than_the_device_has_are_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let limits = bench.device().limits()?;
    let (here, there) = (limits.max_qp_init_rd_atom, limits.max_qp_rd_atom);
    let (Ok(here), Ok(there)) = (u8::try_from(here + 1), u8::try_from(there + 1)) else {
        notes.holds("the limits", "beyond the attributes", true, format!("{here}, {there}"));
        return Ok(());
    };
    refused(bench, notes, "max_rd_atomic", State::RTS, |attr| attr.max_rd_atomic = here)?;
    refused(bench, notes, "max_dest_rd_atomic", State::RTR, |attr| attr.max_dest_rd_atomic = there)
}

fn a_timer_beyond_five_bits_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    refused(bench, notes, "min_rnr_timer 32", State::RTR, |attr| attr.min_rnr_timer = 32)?;
    refused(bench, notes, "timeout 32", State::RTS, |attr| attr.timeout = 32)
}

fn retries_beyond_three_bits_are_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    refused(bench, notes, "retry_cnt 8", State::RTS, |attr| attr.retry_cnt = 8)?;
    refused(bench, notes, "rnr_retry 8", State::RTS, |attr| attr.rnr_retry = 8)
}

fn the_largest_values_are_taken(bench: &Bench, notes: &mut Notes) -> Outcome {
    let answer = bench.attempt(State::INIT, |to| {
        Change::to_rtr(to).also(0, |attr| {
            attr.min_rnr_timer = 31;
            attr.rq_psn = 0xff_ffff;
            attr.dest_qp_num = 0xff_fffe;
        })
    })?;
    notes.equal("to RTR", Answer::done(State::RTR), answer);
    let answer = bench.attempt(State::RTR, |to| {
        Change::to_rts(to).also(0, |attr| {
            (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (31, 7, 7);
            attr.sq_psn = 0xff_ffff;
        })
    })?;
    notes.equal("to RTS", Answer::done(State::RTS), answer);
    Ok(())
}
