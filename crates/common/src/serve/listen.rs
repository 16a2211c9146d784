//! The listening socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

use crate::error::{Error, ErrorKind, Result, show_io_error};

/// Connections that may wait to be accepted: for milliseconds only, the doorkeeper is always there.
const BACKLOG: i32 = 128;

/// Listens on `port` of `address` only, or of every address, IPv6 and IPv4 alike, where none is named.
///
/// # Errors
/// [`ErrorKind::Listen`], naming the port.
pub(super) fn on(address: Option<IpAddr>, port: u16) -> Result<TcpListener> {
    if let Some(address) = address {
        let address = SocketAddr::new(address, port);
        return Socket::new(Domain::for_address(address), Type::STREAM, None)
            .and_then(|socket| listening(socket, address))
            .map_err(|error| taken(port, &error));
    }
    // A host without IPv6 has only the second.
    dual_stack(port)
        .or_else(|error| match error.raw_os_error() {
            Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => v4_only(port),
            _ => Err(error),
        })
        .map_err(|error| taken(port, &error))
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
