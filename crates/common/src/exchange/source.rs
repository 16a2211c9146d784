//! The address that this end's connections come from, where the user names one (`--bind-source-ip`).

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::addresses::{HostAddress, host_addresses};
use crate::error::{Error, ErrorKind, Result, show_io_error};

/// Connects to `address`, from `source` where one is named.
///
/// # Errors
/// The system's; also where the two are of different families.
pub fn connect(source: Option<IpAddr>, address: SocketAddr, limit: Duration) -> std::io::Result<TcpStream> {
    let Some(source) = source else { return TcpStream::connect_timeout(&address, limit) };
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::new(source, 0).into())?;
    socket.connect_timeout(&address.into(), limit)?;
    Ok(socket.into())
}

/// Whether this machine has `source`; otherwise with what it has.
///
/// # Errors
/// [`ErrorKind::SourceAddress`].
pub fn check(source: IpAddr) -> Result<()> {
    let address = SocketAddr::new(source, 0);
    let bound = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))
        .and_then(|socket| socket.bind(&address.into()));
    bound.map_err(|error| {
        Error::new(
            ErrorKind::SourceAddress,
            format!("cannot use {source} as the local address: bind: {}", show_io_error(&error)),
        )
        .fact("present", present())
        .hint("give one of them to --bind-source-ip, or leave it out: the route then decides")
    })
}

/// Those of `addresses` that can be reached from `source`.
///
/// # Errors
/// [`ErrorKind::SourceAddress`] where all are of the other family.
pub fn reachable(source: Option<IpAddr>, host: &str, addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>> {
    let Some(source) = source else { return Ok(addresses) };
    let (same, other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == source.is_ipv4());
    if same.is_empty() {
        let family = |v4: bool| if v4 { "IPv4" } else { "IPv6" };
        let other: Vec<String> = other.iter().map(|address| address.ip().to_string()).collect();
        return Err(Error::new(
            ErrorKind::SourceAddress,
            format!("{source} is {} and {host} has no such address", family(source.is_ipv4())),
        )
        .fact("it has", other.join(", "))
        .hint(format!("give an {} address to --bind-source-ip", family(source.is_ipv6()))));
    }
    Ok(same)
}

/// The machine's addresses, each with its interface.
fn present() -> String {
    let show = |address: HostAddress| format!("{} ({})", address.ip, address.interface);
    let addresses: Vec<String> = host_addresses().into_iter().map(show).collect();
    if addresses.is_empty() { "none".to_owned() } else { addresses.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_connection_comes_from_the_address_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let source = "127.0.0.9".parse().unwrap();
        let socket = connect(Some(source), to, Duration::from_secs(5)).unwrap();
        assert_eq!(socket.local_addr().unwrap().ip(), source);
        assert_eq!(listener.accept().unwrap().1.ip(), source);
    }

    #[test]
    fn an_address_of_another_machine_is_refused_with_those_present() {
        assert!(check("127.0.0.1".parse().unwrap()).is_ok());
        // RFC 5737: an address for documentation.
        let error = check("192.0.2.1".parse().unwrap()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::SourceAddress);
        assert!(error.what.contains("192.0.2.1") && error.what.contains("EADDRNOTAVAIL"), "{}", error.what);
        assert!(error.facts[0].value.contains("127.0.0.1 (lo)"), "{:?}", error.facts);
    }

    #[test]
    fn only_addresses_of_the_same_family_are_tried() {
        let both: Vec<SocketAddr> = vec!["[::1]:1".parse().unwrap(), "127.0.0.1:1".parse().unwrap()];
        let source = "127.0.0.1".parse().unwrap();
        assert_eq!(reachable(Some(source), "x", both.clone()).unwrap(), both[1..]);
        assert_eq!(reachable(None, "x", both.clone()).unwrap(), both);
        let error = reachable(Some(source), "x", both[..1].to_vec()).unwrap_err();
        assert_eq!(error.what, "127.0.0.1 is IPv4 and x has no such address");
    }
}
