//! Copying messages to and from a peer's region, as it is reached: mapped, through the kernel, or on a GPU.

use rdma_sys as sys;

use super::failure::Failure;
use super::local::Local;
use super::place::place;
use crate::fabric::Region;
use crate::shared::Segment;

/// Writes pieces one after the other; `own` as for [`Local::of`].
///
/// # Safety
/// The pieces are readable, and their range lies in the region.
pub(super) unsafe fn write_each(
    own: Option<&Segment>,
    region: &Region,
    mut offset: u64,
    pieces: &[sys::ibv_sge],
) -> Result<(), Failure> {
    for piece in pieces {
        // SAFETY: the caller vouches for the pieces and the range.
        unsafe { Local::of(own, piece)?.write_to(region, offset, piece.length.into())? };
        offset += u64::from(piece.length);
    }
    Ok(())
}

/// Copies pieces one after the other to where they are mapped.
///
/// # Safety
/// The pieces are readable, and there is room for them at `to`.
#[inline(always)]
pub(super) unsafe fn place_pieces(mut to: *mut u8, pieces: &[sys::ibv_sge]) {
    for piece in pieces {
        // Each piece's last byte is its last; the message's is the last piece's.
        // SAFETY: the caller vouches for both sides.
        unsafe {
            place(to, piece.addr as *const u8, piece.length as usize);
            to = to.add(piece.length as usize);
        }
    }
}

/// The next part of `len` bytes from `offset` on that is mapped throughout, or not at all: its length, and which.
fn part(region: &Region, offset: u64, len: u64) -> (u64, bool) {
    let mapped = &region.mapped;
    match offset {
        offset if mapped.contains(&offset) => (len.min(mapped.end - offset), true),
        offset if offset < mapped.start => (len.min(mapped.start - offset), false),
        _ => (len, false),
    }
}

/// Writes to a region of host memory, of which not all may be mapped.
///
/// # Safety
/// `from` is readable, and the range lies in the region.
pub(super) unsafe fn write_range(
    region: &Region,
    mut offset: u64,
    mut from: *const u8,
    mut len: u64,
) -> Result<(), Failure> {
    while len > 0 {
        let (part, mapped) = part(region, offset, len);
        // SAFETY: the caller vouches for both sides; a mapped part is written where it is mapped.
        unsafe {
            if mapped {
                place(region.base.wrapping_add(offset as usize), from, part as usize);
            } else {
                let written =
                    region.cross.map(|cross| cross.write(region.address + offset, from, part as usize));
                written
                    .ok_or(Failure::remote_operation(0))?
                    .map_err(|errno| Failure::remote_operation(errno.0))?;
            }
        }
        from = from.wrapping_add(part as usize);
        (offset, len) = (offset + part, len - part);
    }
    Ok(())
}

/// Reads from a region of host memory, of which not all may be mapped.
///
/// # Safety
/// `to` is writable, and the range lies in the region.
pub(super) unsafe fn read_range(
    region: &Region,
    mut offset: u64,
    mut to: *mut u8,
    mut len: u64,
) -> Result<(), Failure> {
    while len > 0 {
        let (part, mapped) = part(region, offset, len);
        // SAFETY: as above, the other way round.
        unsafe {
            if mapped {
                place(to, region.base.wrapping_add(offset as usize), part as usize);
            } else {
                let read = region.cross.map(|cross| cross.read(region.address + offset, to, part as usize));
                read.ok_or(Failure::remote_operation(0))?
                    .map_err(|errno| Failure::remote_operation(errno.0))?;
            }
        }
        to = to.wrapping_add(part as usize);
        (offset, len) = (offset + part, len - part);
    }
    Ok(())
}
