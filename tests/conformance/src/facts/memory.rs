//! Registration: what is refused, and what a registration says of itself.

use rdma_sys as sys;

use crate::fact::{Notes, Obstacle, Outcome, facts};
use crate::objects::{ALL_ACCESS, Bench, PAGE, Pages, Region, Request, answer};
use crate::shown::{Errno, Opcode, Status};

facts! { "memory":
    a_registration_has_the_address_and_length_asked_for,
    part_of_a_page_can_be_registered,
    no_bytes_are_refused,
    remote_write_demands_local_write,
    remote_atomics_demand_local_write,
    remote_read_demands_no_local_write,
    access_flags_that_nobody_knows_are_refused,
    memory_that_is_not_mapped_is_refused,
    read_only_memory_is_refused_where_the_device_may_write,
    a_range_around_the_end_of_addresses_is_refused,
    registrations_may_overlap_and_have_keys_of_their_own,
    registering_and_ending_keep_the_contents,
    memory_registered_under_another_address_is_reached_by_it,
    an_optional_access_flag_may_be_asked_for,
}

const LOCAL: u32 = sys::IBV_ACCESS_LOCAL_WRITE;

fn a_registration_has_the_address_and_length_asked_for(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pages = Pages::new(2 * PAGE)?;
    let region = Region::new(&bench.pd()?, &pages, 0..2 * PAGE, ALL_ACCESS)?;
    let (address, length, ours) = region.fields();
    notes.equal("addr", pages.address(0), address);
    notes.equal("length", 2 * PAGE, length);
    notes.holds("context and pd", "those it was made on", ours, ours);
    Ok(())
}

fn part_of_a_page_can_be_registered(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pages = Pages::new(2 * PAGE)?;
    for (words, range) in [("1 byte", 77..78), ("across pages", PAGE - 3..PAGE + 5)] {
        let region = Region::new(&bench.pd()?, &pages, range.clone(), ALL_ACCESS);
        notes.equal(words, Errno::DONE, answer(&region));
        let fields = region.map(|region| region.fields());
        let expected = (pages.address(range.start), range.len(), true);
        notes.holds("fields", "as asked for", fields == Ok(expected), format!("{fields:x?}"));
    }
    Ok(())
}

fn no_bytes_are_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pages = Pages::new(PAGE)?;
    let refused = answer(&Region::new(&bench.pd()?, &pages, 0..0, LOCAL));
    notes.equal("0 bytes", Errno::EINVAL, refused);
    Ok(())
}

/// What registering a page with `access` answers.
fn with_access(bench: &Bench, access: u32) -> Result<Errno, Obstacle> {
    let pages = Pages::new(PAGE)?;
    Ok(answer(&Region::new(&bench.pd()?, &pages, 0..PAGE, access)))
}

fn remote_write_demands_local_write(bench: &Bench, notes: &mut Notes) -> Outcome {
    let remote = sys::IBV_ACCESS_REMOTE_WRITE;
    notes.equal("REMOTE_WRITE alone", Errno::EINVAL, with_access(bench, remote)?);
    notes.equal("with LOCAL_WRITE", Errno::DONE, with_access(bench, remote | LOCAL)?);
    Ok(())
}

fn remote_atomics_demand_local_write(bench: &Bench, notes: &mut Notes) -> Outcome {
    let remote = sys::IBV_ACCESS_REMOTE_ATOMIC;
    notes.equal("REMOTE_ATOMIC alone", Errno::EINVAL, with_access(bench, remote)?);
    Ok(())
}

fn remote_read_demands_no_local_write(bench: &Bench, notes: &mut Notes) -> Outcome {
    notes.equal("no flag", Errno::DONE, with_access(bench, 0)?);
    notes.equal("REMOTE_READ alone", Errno::DONE, with_access(bench, sys::IBV_ACCESS_REMOTE_READ)?);
    Ok(())
}

fn access_flags_that_nobody_knows_are_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let errno = with_access(bench, LOCAL | 1 << 19)?;
    notes.either("bit 19", &[Errno::EINVAL, Errno::EOPNOTSUPP], errno);
    Ok(())
}

fn memory_that_is_not_mapped_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    // The kernel maps nothing below vm.mmap_min_addr, 64 KiB, unless it is told to.
    let errno = answer(&Region::try_at(&bench.pd()?, PAGE as u64, PAGE, LOCAL));
    notes.equal("an address that is not mapped", Errno::EFAULT, errno);
    Ok(())
}

fn read_only_memory_is_refused_where_the_device_may_write(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pages = Pages::new(PAGE)?;
    pages.put(0, b"read me");
    pages.make_read_only()?;
    let pd = bench.pd()?;
    notes.equal("LOCAL_WRITE", Errno::EFAULT, answer(&Region::new(&pd, &pages, 0..PAGE, LOCAL)));
    let readable = Region::new(&pd, &pages, 0..PAGE, sys::IBV_ACCESS_REMOTE_READ);
    notes.equal("REMOTE_READ", Errno::DONE, answer(&readable));
    notes.bytes("contents", b"read me", &pages.get(0..7));
    Ok(())
}

fn a_range_around_the_end_of_addresses_is_refused(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pages = Pages::new(PAGE)?;
    let errno = answer(&Region::try_at(&bench.pd()?, pages.address(0), usize::MAX - PAGE + 1, LOCAL));
    notes.either("a length that wraps", &[Errno::EINVAL, Errno::ENOMEM, Errno::EFAULT], errno);
    Ok(())
}

fn registrations_may_overlap_and_have_keys_of_their_own(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pages = Pages::new(2 * PAGE)?;
    let pd = bench.pd()?;
    let all = Region::new(&pd, &pages, 0..2 * PAGE, ALL_ACCESS)?;
    let part = Region::new(&pd, &pages, 100..PAGE + 100, ALL_ACCESS)?;
    let again = Region::new(&bench.pd()?, &pages, 0..2 * PAGE, ALL_ACCESS)?;
    let different = |a: u32, b: u32, c: u32| a != b && b != c && a != c;
    let lkeys = (all.lkey(), part.lkey(), again.lkey());
    let rkeys = (all.rkey(), part.rkey(), again.rkey());
    notes.holds("lkeys", "different", different(lkeys.0, lkeys.1, lkeys.2), format!("{lkeys:x?}"));
    notes.holds("rkeys", "different", different(rkeys.0, rkeys.1, rkeys.2), format!("{rkeys:x?}"));
    notes.equal("ending one", Errno::DONE, part.end());
    all.put(200, b"still here");
    notes.bytes("bytes of another", b"still here", &again.get(200..210));
    Ok(())
}

fn registering_and_ending_keep_the_contents(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pages = Pages::new(3 * PAGE)?;
    let pattern: Vec<u8> = (0..3 * PAGE).map(|index| (index % 251) as u8).collect();
    pages.put(0, &pattern);
    let region = Region::new(&bench.pd()?, &pages, 10..2 * PAGE, ALL_ACCESS)?;
    notes.bytes("registered", &pattern, &pages.get(0..3 * PAGE));
    pages.put(PAGE, &[0xee; 16]);
    notes.equal("ending", Errno::DONE, region.end());
    notes.bytes("written meanwhile", &[0xee; 16], &pages.get(PAGE..PAGE + 16));
    notes.bytes("before that", &pattern[..PAGE], &pages.get(0..PAGE));
    notes.bytes("after that", &pattern[PAGE + 16..], &pages.get(PAGE + 16..3 * PAGE));
    pages.put(0, b"writable");
    notes.bytes("writable after the end", b"writable", &pages.get(0..8));
    Ok(())
}

fn memory_registered_under_another_address_is_reached_by_it(bench: &Bench, notes: &mut Notes) -> Outcome {
    let pair = bench.pair()?;
    let pages = Pages::new(2 * PAGE)?;
    // The same place within a page, as adapters with page tables need it.
    let iova = 0x5_0000_0000;
    let moved = Region::at_iova(&pair.target.pd, &pages, iova, ALL_ACCESS)?;
    notes.equal("addr", iova, moved.remote(0).addr);
    pair.initiator.region.put(0, b"by iova");
    let request = Request::write(1, &[pair.initiator.sge(0..7)], moved.remote(PAGE));
    pair.initiator.qp.must_post(&[request])?;
    let completion = pair.initiator.one()?;
    notes.equal("status", Status::SUCCESS, completion.status);
    notes.equal("opcode", Opcode::RDMA_WRITE, completion.opcode);
    notes.bytes("bytes at the target", b"by iova", &pages.get(PAGE..PAGE + 7));
    Ok(())
}

/// What stands in the optional range may be left unheeded, and is no reason to refuse.
fn an_optional_access_flag_may_be_asked_for(bench: &Bench, notes: &mut Notes) -> Outcome {
    let relaxed = with_access(bench, ALL_ACCESS | sys::IBV_ACCESS_RELAXED_ORDERING)?;
    notes.equal("RELAXED_ORDERING", Errno::DONE, relaxed);
    Ok(())
}
