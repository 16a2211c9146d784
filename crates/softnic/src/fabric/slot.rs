//! Slots: taking one, and reaching the process that has one.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::errno::{Errno, Result};
use crate::shared::SLOT_BITS;

/// Slots of a fabric. Slot 0 is nobody's: queue pair numbers 0 and 1 are special.
const SLOTS: u32 = 1 << SLOT_BITS;
/// Connections that wait to be taken: the kernel's own limit.
const BACKLOG: i32 = 4096;

/// This process's slot.
pub(crate) struct Slot {
    number: u32,
    listener: OwnedFd,
}

impl Slot {
    /// Takes a free slot of `fabric`.
    ///
    /// # Errors
    /// `EAGAIN` where every slot is taken.
    pub(crate) fn take(fabric: &str) -> Result<Self> {
        // Begun at another place by each process, so that numbers of one that is gone are not soon another's.
        let first = std::process::id() % (SLOTS - 1);
        for step in 0..SLOTS - 1 {
            let number = 1 + (first + step) % (SLOTS - 1);
            match listen(&name(fabric, number)) {
                Ok(listener) => return Ok(Self { number, listener }),
                Err(Errno(libc::EADDRINUSE)) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::AGAIN)
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Takes the connections that wait, and closes them, so that the queue of them never fills.
    pub(crate) fn take_visitors(&self) {
        loop {
            // SAFETY: takes a connection of a socket that is ours.
            let fd = unsafe {
                let nobody = std::ptr::null_mut();
                libc::accept4(self.listener.as_raw_fd(), nobody, std::ptr::null_mut(), libc::SOCK_CLOEXEC)
            };
            if fd < 0 {
                return;
            }
            // SAFETY: the descriptor is new and nobody else's.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }

    /// Closes the listener's descriptor in a child of this process: with it open there, the slot would outlive its
    /// owner.
    pub(crate) fn listener_fd(&self) -> RawFd {
        self.listener.as_raw_fd()
    }
}

/// The id of the process that has `slot`.
///
/// # Errors
/// `ECONNREFUSED` where the slot is nobody's, `EPERM` where it is another user's.
pub(super) fn process_of(fabric: &str, slot: u32) -> Result<i32> {
    let connection = socket()?;
    let (address, len) = address(&name(fabric, slot))?;
    // SAFETY: the address is ours, and of the length given.
    if unsafe { libc::connect(connection.as_raw_fd(), (&raw const address).cast(), len) } != 0 {
        return Err(Errno::last());
    }
    let owner = owner(&connection)?;
    // The name has the user's number in it, but anybody may take any name.
    // SAFETY: asks for this process's user.
    if owner.uid != unsafe { libc::geteuid() } || owner.pid <= 0 {
        return Err(Errno(libc::EPERM));
    }
    Ok(owner.pid)
}

fn name(fabric: &str, slot: u32) -> String {
    // SAFETY: asks for this process's user.
    let uid = unsafe { libc::geteuid() };
    format!("linkproof-softnic/{uid}/{fabric}/{slot}")
}

fn socket() -> Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the descriptor is new and nobody else's.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, kind, 0);
        if fd < 0 { Err(Errno::last()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

fn listen(name: &str) -> Result<OwnedFd> {
    let socket = socket()?;
    let (address, len) = address(name)?;
    // SAFETY: the address is ours, and of the length given.
    unsafe {
        if libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) != 0
            || libc::listen(socket.as_raw_fd(), BACKLOG) != 0
        {
            return Err(Errno::last());
        }
    }
    Ok(socket)
}

/// An abstract address: the first byte of the path is 0, and the length tells where the name ends.
fn address(name: &str) -> Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: all zeros is an address without a name.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let room = address.sun_path.get_mut(1..1 + name.len()).ok_or(Errno::INVALID)?;
    room.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte as libc::c_char);
    let len = offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    Ok((address, len as libc::socklen_t))
}

fn owner(connection: &OwnedFd) -> Result<libc::ucred> {
    let mut owner = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: fills a struct of ours, of the length given.
    let status = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut owner).cast(),
            &mut len,
        )
    };
    if status != 0 { Err(io::Error::last_os_error().into()) } else { Ok(owner) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_takers_have_two_slots_and_a_dropped_one_is_free_again() {
        let first = Slot::take("test-two-takers").unwrap();
        let second = Slot::take("test-two-takers").unwrap();
        assert_ne!(first.number(), second.number());
        let number = first.number();
        drop(first);
        assert_eq!(Slot::take("test-two-takers").unwrap().number(), number);
    }

    #[test]
    fn a_slot_tells_whose_it_is_as_often_as_it_is_asked() {
        let slot = Slot::take("test-whose").unwrap();
        for _ in 0..3 {
            assert_eq!(process_of("test-whose", slot.number()), Ok(std::process::id() as i32));
            slot.take_visitors();
        }
    }

    #[test]
    fn nobody_answers_for_a_free_slot() {
        assert_eq!(process_of("test-nobody", 1), Err(Errno(libc::ECONNREFUSED)));
    }
}
