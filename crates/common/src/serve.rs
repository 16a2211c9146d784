//! The server that stays: it listens, and serves one client after another until it is stopped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Socket, Type};

use crate::error::{Error, ErrorKind, Result, show_io_error};
use crate::interrupt;

/// Clients that may wait their turn.
const BACKLOG: i32 = 128;
/// How often an idle server looks whether it shall stop.
const LOOK_AROUND_MS: u8 = 100;

/// A listening control port.
pub struct Listener(TcpListener);

impl Listener {
    /// Listens on `port` of every address, IPv6 and IPv4 alike.
    ///
    /// # Errors
    /// [`ErrorKind::Listen`], naming the port.
    pub fn bind(port: u16) -> Result<Self> {
        // A host without IPv6 has only the second.
        dual_stack(port)
            .or_else(|error| match error.raw_os_error() {
                Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => v4_only(port),
                _ => Err(error),
            })
            .map(Self)
            .map_err(|error| taken(port, &error))
    }

    /// Listens on `port` of `address` only, or of every address where none is named.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn bind_at(address: Option<IpAddr>, port: u16) -> Result<Self> {
        let Some(address) = address else { return Self::bind(port) };
        let address = SocketAddr::new(address, port);
        Socket::new(Domain::for_address(address), Type::STREAM, None)
            .and_then(|socket| listening(socket, address))
            .map(Self)
            .map_err(|error| taken(port, &error))
    }

    /// The next client; `None` where the user has asked to stop.
    ///
    /// # Errors
    /// [`ErrorKind::Listen`] where nothing can be accepted any more.
    pub fn next_client(&self) -> Result<Option<(TcpStream, SocketAddr)>> {
        while !interrupt::requested() {
            let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut fds, PollTimeout::from(LOOK_AROUND_MS));
            match self.0.accept() {
                Ok(client) => return Ok(Some(client)),
                Err(error) if may_pass(&error) => {}
                Err(error) => {
                    return Err(Error::new(
                        ErrorKind::Listen,
                        format!("cannot accept clients: {}", show_io_error(&error)),
                    ));
                }
            }
        }
        Ok(None)
    }
}

/// Nobody there, a signal, or a client that left before it was accepted.
fn may_pass(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as Io;
    matches!(error.kind(), Io::WouldBlock | Io::Interrupted | Io::ConnectionAborted | Io::ConnectionReset)
}

fn dual_stack(port: u16) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
    socket.set_only_v6(false)?;
    listening(socket, SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
}

fn v4_only(port: u16) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    listening(socket, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
}

fn listening(socket: Socket, address: SocketAddr) -> std::io::Result<TcpListener> {
    // A server can be restarted while connections of the last one linger in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn taken(port: u16, error: &std::io::Error) -> Error {
    let failure =
        Error::new(ErrorKind::Listen, format!("cannot listen on TCP port {port}: {}", show_io_error(error)));
    match error.kind() {
        std::io::ErrorKind::AddrInUse => failure.hint(format!(
            "another server runs there (ss -ltnp 'sport = :{port}'); choose another with --port on both ends"
        )),
        std::io::ErrorKind::PermissionDenied => {
            failure.hint("ports below 1024 need privileges; choose another with --port on both ends")
        }
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_clients_of_both_families_and_refuses_a_taken_port() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let listener = Listener::bind(free).unwrap();
        let _v4 = TcpStream::connect(("127.0.0.1", free)).unwrap();
        assert!(listener.next_client().unwrap().is_some());
        let error = Listener::bind(free).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Listen);
        assert!(error.hint.unwrap().contains("--port"));
    }
}
