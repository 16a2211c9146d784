//! A path that changes one byte: between a client and a server over TCP, on the data connection.
//!
//! It passes the control channel on, but puts its own port in the place of the server's data port, so that the data
//! goes through it as well.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};

use serde_json::Value;

use crate::relay::Sender;

/// Bytes that each end says before the first frame of the control channel.
const PREAMBLE: usize = 16;
/// Bytes that a data connection says before the first message.
const GREETING: u64 = 16;
/// What the changed byte is changed by.
pub const FLIP: u8 = 0x40;

/// Stands between one client and a server.
pub struct Corruptor {
    /// Where the client connects, on 127.0.0.1.
    pub port: u16,
}

impl Corruptor {
    /// Changes the byte at `offset` of what `sender` sends over the data connections, each counted for itself and from
    /// its first message.
    ///
    /// # Panics
    /// Where it can't listen.
    pub fn to(server_port: u16, sender: Sender, offset: u64) -> Self {
        let (listener, port) = listen();
        std::thread::spawn(move || {
            let (client, server) = pair_up(&listener, server_port)?;
            let (mut up, mut down) = (client.try_clone().ok()?, server.try_clone().ok()?);
            std::thread::spawn(move || {
                std::io::copy(&mut up, &mut down).map(|_| down.shutdown(Shutdown::Write))
            });
            pass_control_on(server, client, sender, offset)
        });
        Self { port }
    }
}

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of 127.0.0.1");
    let port = listener.local_addr().expect("it has an address").port();
    (listener, port)
}

fn pair_up(listener: &TcpListener, port: u16) -> Option<(TcpStream, TcpStream)> {
    let (client, _) = listener.accept().ok()?;
    Some((client, TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?))
}

/// Passes the server's frames on, with the data port replaced; `None` when an end has hung up.
fn pass_control_on(mut server: TcpStream, mut client: TcpStream, sender: Sender, offset: u64) -> Option<()> {
    let mut preamble = [0; PREAMBLE];
    server.read_exact(&mut preamble).ok()?;
    client.write_all(&preamble).ok()?;
    loop {
        let mut length = [0; 4];
        server.read_exact(&mut length).ok()?;
        let mut payload = vec![0; u32::from_be_bytes(length) as usize];
        server.read_exact(&mut payload).ok()?;
        let mut frame: Value = serde_json::from_slice(&payload).ok()?;
        if let Some(port) = frame.pointer("/end/data_port").and_then(Value::as_u64) {
            frame["end"]["data_port"] = relay_data(port as u16, sender, offset).into();
            payload = serde_json::to_vec(&frame).ok()?;
        }
        client.write_all(&(payload.len() as u32).to_be_bytes()).ok()?;
        client.write_all(&payload).ok()?;
    }
}

/// Takes data connections for the server's data port; gives the port to connect to instead.
fn relay_data(server_port: u16, sender: Sender, offset: u64) -> u16 {
    let (listener, port) = listen();
    let flip = |whose, at| (whose == sender).then_some(at);
    let (of_client, of_server) = (flip(Sender::Client, GREETING + offset), flip(Sender::Server, offset));
    std::thread::spawn(move || {
        while let Some((client, server)) = pair_up(&listener, server_port) {
            let (Ok(up), Ok(down)) = (server.try_clone(), client.try_clone()) else { return };
            std::thread::spawn(move || pass_data_on(up, down, of_server));
            std::thread::spawn(move || pass_data_on(client, server, of_client));
        }
    });
    port
}

fn pass_data_on(mut from: TcpStream, mut to: TcpStream, flip_at: Option<u64>) {
    let mut seen = 0;
    let mut piece = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        let here = flip_at.and_then(|at| at.checked_sub(seen));
        if let Some(byte) = here.and_then(|at| piece[..count].get_mut(at as usize)) {
            *byte ^= FLIP;
        }
        seen += count as u64;
        if to.write_all(&piece[..count]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
