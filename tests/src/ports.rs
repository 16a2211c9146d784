//! TCP ports that no other test uses.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::SOON;

/// Below the kernel's ephemeral range (32768 and up), so that no outgoing connection of another test takes one
/// between the choice and the bind, and above the registered servers that are likely on a developer's machine.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port that is free on IPv4 and IPv6, different at each call.
///
/// # Panics
/// Where none of some hundred can be had.
pub fn free_port() -> u16 {
    // Test binaries may run side by side: each begins at a place of its own.
    let place = std::process::id().wrapping_mul(211);
    for _ in 0..500 {
        let offset = place.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = (FIRST + offset) as u16;
        if is_free(port) {
            return port;
        }
    }
    panic!("no free TCP port among 500 from {FIRST} on");
}

fn is_free(port: u16) -> bool {
    // One after the other: a dual-stack listener would be in the way of the second.
    let v4 = TcpListener::bind(("0.0.0.0", port)).is_ok();
    let v6 = TcpListener::bind(("::", port)).map_or_else(|error| !in_use(&error), |_| true);
    v4 && v6
}

fn in_use(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::AddrInUse
}

/// Waits until some process listens on TCP port `port` of this host, without a connection, which it might take for its
/// client.
///
/// # Panics
/// Where none does in time.
pub fn wait_for_listener(port: u16) {
    let end = Instant::now() + SOON;
    while !is_listened_on(port) {
        assert!(Instant::now() < end, "nobody listens on TCP port {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// As the kernel's tables of sockets have it: local address and port in hex, then the peer's, then the state.
fn is_listened_on(port: u16) -> bool {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let is_it = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().is_some_and(|local| local.ends_with(&format!(":{port:04X}")));
        local && words.nth(1) == Some("0A")
    };
    tables.iter().flat_map(|table| table.lines()).any(is_it)
}
