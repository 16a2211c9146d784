//! Reaching a server: from its name to a connected socket, or to the reason why there is none.

use std::io::ErrorKind as IoKind;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::source;
use crate::error::{Error, ErrorKind, Result, show_io_error};

/// How long a connection attempt may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Connects to `host`, from the address `source` where one is named, trying each of its addresses in turn.
///
/// # Errors
/// [`ErrorKind::Resolve`], [`ErrorKind::Refused`], [`ErrorKind::Unreachable`] or [`ErrorKind::SourceAddress`], each with
/// the address.
pub fn dial(host: &str, port: u16, source: Option<IpAddr>) -> Result<TcpStream> {
    let host = without_brackets(host);
    connect_any(host, &source::reachable(source, host, resolve(host, port)?)?, source)
}

/// An IPv6 address as it stands in a URL: `[fd77::1]`.
fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let failed = |words: String| {
        Error::new(ErrorKind::Resolve, format!("cannot find the address of {host}: {words}"))
            .hint("give the server's IP address, or see that its name resolves: getent hosts")
    };
    let addresses: Vec<_> =
        (host, port).to_socket_addrs().map_err(|error| failed(error.to_string()))?.collect();
    if addresses.is_empty() { Err(failed("the name has no address".to_owned())) } else { Ok(addresses) }
}

fn connect_any(host: &str, addresses: &[SocketAddr], source: Option<IpAddr>) -> Result<TcpStream> {
    let mut failure = None;
    for address in addresses {
        match source::connect(source, *address, CONNECT_LIMIT) {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = Some(connect_error(host, *address, &error)),
        }
    }
    Err(failure.unwrap_or_else(|| Error::new(ErrorKind::Resolve, format!("{host} has no address"))))
}

fn connect_error(host: &str, address: SocketAddr, error: &std::io::Error) -> Error {
    let target =
        if host == address.ip().to_string() { address.to_string() } else { format!("{host} ({address})") };
    match error.kind() {
        IoKind::ConnectionRefused => Error::new(
            ErrorKind::Refused,
            format!("nothing listens at {target}: connect: {}", show_io_error(error)),
        )
        .hint("start the server there first: the same command without the host name"),
        IoKind::TimedOut => Error::new(
            ErrorKind::Unreachable,
            format!("cannot reach {target}: no answer within {} s", CONNECT_LIMIT.as_secs()),
        )
        .hint(format!("see that the host is up and no firewall drops TCP port {}", address.port())),
        _ => Error::new(
            ErrorKind::Unreachable,
            format!("cannot reach {target}: connect: {}", show_io_error(error)),
        )
        .hint(format!("see that this host has a route to it: ip route get {}", address.ip())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn an_ipv6_address_may_have_brackets_and_a_zone() {
        let ip = |host| resolve(without_brackets(host), 1).unwrap()[0].to_string();
        assert_eq!([ip("[::1]"), ip("::1"), ip("127.0.0.1")], ["[::1]:1", "[::1]:1", "127.0.0.1:1"]);
        // The loopback is everybody's first interface.
        assert_eq!([ip("fe80::2%lo"), ip("[fe80::2%1]")], ["[fe80::2%1]:1", "[fe80::2%1]:1"]);
    }

    #[test]
    fn nothing_listening_is_refused_with_a_next_step() {
        // A port that was just free: bound and released.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let error = dial("127.0.0.1", port, None).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Refused);
        assert!(error.hint.unwrap().contains("start the server"));
    }
}
