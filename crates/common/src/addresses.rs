//! The IP addresses of this host, as the kernel lists them.

use std::net::IpAddr;

use nix::sys::socket::SockaddrStorage;

/// One address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// The interface.
    pub interface: String,
    /// The address.
    pub ip: IpAddr,
    /// The length of its subnet prefix, where the kernel says.
    pub prefix_len: Option<u8>,
}

/// Every address of this host; none where the kernel doesn't say.
pub fn host_addresses() -> Vec<HostAddress> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let with_ip = interfaces.filter_map(|interface| {
        let ip = to_ip(&interface.address?)?;
        let prefix_len = interface.netmask.as_ref().and_then(to_ip).map(ones);
        Some(HostAddress { interface: interface.interface_name, ip, prefix_len })
    });
    with_ip.collect()
}

fn to_ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

fn ones(mask: IpAddr) -> u8 {
    match mask {
        IpAddr::V4(mask) => mask.to_bits().count_ones() as u8,
        IpAddr::V6(mask) => mask.to_bits().count_ones() as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_a_socket_has_is_among_them_with_its_prefix() {
        let loopback: IpAddr = "127.0.0.1".parse().unwrap();
        let found = host_addresses().into_iter().find(|address| address.ip == loopback).unwrap();
        assert_eq!((found.interface.as_str(), found.prefix_len), ("lo", Some(8)));
    }
}
