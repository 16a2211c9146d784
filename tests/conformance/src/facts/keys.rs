//! Keys, bounds and rights: what a peer, or this process, can reach.

use rdma_sys as sys;

use crate::fact::{Notes, Obstacle, Outcome, facts};
use crate::objects::{ALL_ACCESS, Bench, PAGE, Pages, Pair, Region, Remote, Request, Sge, Shape, Terms};
use crate::shown::{Errno, State, Status};

facts! { "keys":
    a_wrong_remote_key_is_refused,
    a_local_key_is_no_remote_key_of_another_region,
    the_key_of_an_ended_registration_is_refused,
    an_old_key_does_not_open_a_new_registration,
    a_remote_key_of_another_domain_is_refused,
    one_byte_beyond_the_end_is_refused,
    one_byte_before_the_beginning_is_refused,
    an_address_that_wraps_is_refused,
    the_last_byte_can_be_written,
    a_region_without_remote_write_is_refused,
    a_queue_pair_without_remote_write_is_refused,
    a_refused_write_leaves_both_ends_in_err,
    a_wrong_local_key_fails_here,
    the_local_key_of_an_ended_registration_fails_here,
    a_local_key_of_another_domain_fails_here,
    one_byte_beyond_the_local_end_fails_here,
    a_local_failure_leaves_the_target_in_peace,
    a_region_without_rights_can_be_sent_from,
}

const LEN: usize = PAGE;

/// A region of the target besides its usual one.
fn region(pair: &Pair, access: u32) -> Result<Region, Obstacle> {
    Ok(Region::new(&pair.target.pd, &Pages::new(LEN)?, 0..LEN, access)?)
}

/// Writes eight bytes to `remote`, which has to fail with REM_ACCESS_ERR.
fn refused(pair: &Pair, notes: &mut Notes, remote: Remote) -> Outcome {
    pair.initiator.region.put(0, &[0xaa; 8]);
    let completion = pair.run(Request::write(1, &[pair.initiator.sge(0..8)], remote))?;
    notes.equal("status", Status::REM_ACCESS_ERR, completion.status);
    Ok(())
}

fn a_wrong_remote_key_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    // Another key of the same slot, and one that nobody has.
    for flip in [0x01, 0xffff_ff00] {
        let pair = bench.pair()?;
        let remote = pair.target.remote(0);
        refused(&pair, notes, Remote { rkey: remote.rkey ^ flip, ..remote })?;
        notes.bytes("bytes at the target", &[0; 8], &pair.target.region.get(0..8));
    }
    Ok(())
}

fn a_local_key_is_no_remote_key_of_another_region(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let local_only = region(&pair, sys::IBV_ACCESS_LOCAL_WRITE)?;
    refused(&pair, notes, Remote { rkey: local_only.lkey(), addr: local_only.remote(0).addr })?;
    notes.bytes("bytes at the target", &[0; 8], &local_only.get(0..8));
    Ok(())
}

fn the_key_of_an_ended_registration_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let ended = region(&pair, ALL_ACCESS)?;
    let remote = ended.remote(0);
    notes.equal("ending it", Errno::DONE, ended.end());
    refused(&pair, notes, remote)?;
    notes.bytes("bytes at the target", &[0; 8], &ended.get(0..8));
    Ok(())
}

fn an_old_key_does_not_open_a_new_registration(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let pages = Pages::new(LEN)?;
    let register = || Region::new(&pair.target.pd, &pages, 0..LEN, ALL_ACCESS);
    let old = register()?;
    let remote = old.remote(0);
    notes.equal("ending it", Errno::DONE, old.end());
    let new = register()?;
    notes.holds("the new key", "another", new.rkey() != remote.rkey, format!("{:#x}", new.rkey()));
    refused(&pair, notes, remote)
}

fn a_remote_key_of_another_domain_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let foreign = bench.region(&bench.pd()?)?;
    refused(&pair, notes, foreign.remote(0))?;
    notes.bytes("bytes at the target", &[0; 8], &foreign.get(0..8));
    Ok(())
}

fn one_byte_beyond_the_end_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    // Half a page: what follows is there, and not to be written.
    let half = Region::new(&pair.target.pd, &Pages::new(LEN)?, 0..LEN / 2, ALL_ACCESS)?;
    refused(&pair, notes, half.remote(LEN / 2 - 7))?;
    notes.bytes("bytes at the target", &[0; 16], &half.pages().get(LEN / 2 - 8..LEN / 2 + 8));
    Ok(())
}

fn one_byte_before_the_beginning_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let half = Region::new(&pair.target.pd, &Pages::new(LEN)?, LEN / 2..LEN, ALL_ACCESS)?;
    let first = half.remote(0);
    refused(&pair, notes, Remote { addr: first.addr - 1, ..first })?;
    notes.bytes("bytes at the target", &[0; 16], &half.pages().get(LEN / 2 - 8..LEN / 2 + 8));
    Ok(())
}

fn an_address_that_wraps_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    refused(&pair, notes, Remote { addr: u64::MAX - 3, ..pair.target.remote(0) })
}

fn the_last_byte_can_be_written(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let half = Region::new(&pair.target.pd, &Pages::new(LEN)?, 0..LEN / 2, ALL_ACCESS)?;
    pair.initiator.region.put(0, &[0xaa; 8]);
    let request = Request::write(1, &[pair.initiator.sge(0..8)], half.remote(LEN / 2 - 8));
    notes.equal("status", Status::SUCCESS, pair.run(request)?.status);
    let expected = [[0xaa; 8], [0; 8]].concat();
    notes.bytes("bytes at the target", &expected, &half.pages().get(LEN / 2 - 8..LEN / 2 + 8));
    Ok(())
}

fn a_region_without_remote_write_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let readable = region(&pair, sys::IBV_ACCESS_LOCAL_WRITE | sys::IBV_ACCESS_REMOTE_READ)?;
    refused(&pair, notes, readable.remote(0))?;
    notes.bytes("bytes at the target", &[0; 8], &readable.get(0..8));
    Ok(())
}

/// The specification has it as an invalid request; adapters answer that the access is refused.
fn a_queue_pair_without_remote_write_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let terms = Terms { access: sys::IBV_ACCESS_REMOTE_READ, ..Terms::default() };
    let pair = bench.pair_of(&Shape::on(terms))?;
    pair.initiator.region.put(0, &[0xaa; 8]);
    let status = pair.run(pair.write(1, 0..8))?.status;
    notes.either("status", &[Status::REM_INV_REQ_ERR, Status::REM_ACCESS_ERR], status);
    notes.bytes("bytes at the target", &[0; 8], &pair.target.region.get(0..8));
    Ok(())
}

fn a_refused_write_leaves_both_ends_in_err(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    pair.target.receive(5, 0..8)?;
    refused(&pair, notes, Remote { rkey: pair.target.remote(0).rkey ^ 1, ..pair.target.remote(0) })?;
    notes.equal("state of the initiator", State::ERR, pair.initiator.qp.state()?);
    notes.equal("state of the target", State::ERR, pair.target.qp.state()?);
    notes.equal("the target's receive", "5 WR_FLUSH_ERR".into(), pair.target.one()?.to_string());
    Ok(())
}

/// Writes `piece`, which has to fail with LOC_PROT_ERR.
fn fails_here(pair: &Pair, notes: &mut Notes, piece: Sge) -> Outcome {
    let completion = pair.run(Request::write(1, &[piece], pair.target.remote(0)))?;
    notes.equal("status", Status::LOC_PROT_ERR, completion.status);
    notes.equal("state", State::ERR, pair.initiator.qp.state()?);
    Ok(())
}

fn a_wrong_local_key_fails_here(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let piece = pair.initiator.sge(0..8);
    fails_here(&pair, notes, Sge { lkey: piece.lkey ^ 1, ..piece })
}

fn the_local_key_of_an_ended_registration_fails_here(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let ended = Region::new(&pair.initiator.pd, &Pages::new(LEN)?, 0..LEN, ALL_ACCESS)?;
    let piece = ended.sge(0..8);
    notes.equal("ending it", Errno::DONE, ended.end());
    fails_here(&pair, notes, piece)
}

fn a_local_key_of_another_domain_fails_here(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let foreign = bench.region(&bench.pd()?)?;
    fails_here(&pair, notes, foreign.sge(0..8))
}

fn one_byte_beyond_the_local_end_fails_here(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let half = Region::new(&pair.initiator.pd, &Pages::new(LEN)?, 0..LEN / 2, ALL_ACCESS)?;
    let piece = half.sge(LEN / 2 - 8..LEN / 2);
    fails_here(&pair, notes, Sge { len: 9, ..piece })
}

fn a_local_failure_leaves_the_target_in_peace(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let piece = pair.initiator.sge(0..8);
    fails_here(&pair, notes, Sge { lkey: piece.lkey ^ 1, ..piece })?;
    notes.equal("state of the target", State::RTS, pair.target.qp.state()?);
    notes.bytes("bytes at the target", &[0; 8], &pair.target.region.get(0..8));
    Ok(())
}

fn a_region_without_rights_can_be_sent_from(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let source = Region::new(&pair.initiator.pd, &Pages::new(LEN)?, 0..LEN, 0)?;
    source.put(0, b"readable");
    let request = Request::write(1, &[source.sge(0..8)], pair.target.remote(0));
    notes.equal("status", Status::SUCCESS, pair.run(request)?.status);
    notes.bytes("bytes at the target", b"readable", &pair.target.region.get(0..8));
    Ok(())
}
