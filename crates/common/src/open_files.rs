//! Open files: how many descriptors a run needs against how many this process may have.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::error::{Error, ErrorKind, Result, show_errno};

/// What a process has besides the data sockets: the library's and the device's files, the control channel, and on a
/// server whoever knocks meanwhile (up to 64 that greet and 64 that wait, three each, and 64 at the data port).
const BESIDES: u64 = 512;

/// Sees that `sockets` data sockets can be opened, by raising the soft limit where it is in the way, as far as it has
/// to: that is what a soft limit is for, and it changes nothing that is measured.
///
/// # Errors
/// [`ErrorKind::OpenFiles`] with the limits, where the hard one is in the way.
pub fn make_room(sockets: u32) -> Result<()> {
    let need = u64::from(sockets) + BESIDES;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    if need <= soft {
        return Ok(());
    }
    if need > hard {
        return Err(Error::new(
            ErrorKind::OpenFiles,
            format!("this run needs {need} open files ({sockets} sockets) and this process may have {hard}"),
        )
        .fact("open files", format!("soft {soft}, hard {hard}"))
        .hint(
            "use fewer --qp, or have an administrator raise the limit (nofile in /etc/security/limits.conf, \
             LimitNOFILE in a systemd unit)",
        ));
    }
    setrlimit(Resource::RLIMIT_NOFILE, need, hard).map_err(|errno| {
        let what = format!(
            "cannot raise the limit of open files to {need}: setrlimit: {}",
            show_errno(errno as i32)
        );
        Error::new(ErrorKind::OpenFiles, what).fact("open files", format!("soft {soft}, hard {hard}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_gives_way_and_the_hard_one_does_not() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert!(make_room(1).is_ok());
        if let Ok(beyond) = u32::try_from(hard) {
            let error = make_room(beyond).unwrap_err();
            assert_eq!(error.kind, ErrorKind::OpenFiles);
            assert!(error.what.ends_with(&format!("may have {hard}")), "{}", error.what);
        }
        assert!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0 >= soft);
    }
}
