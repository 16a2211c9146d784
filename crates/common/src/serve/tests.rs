use super::*;
use crate::exchange::{Channel, Message, PeerProtocol, message::preamble};
use crate::host::HostFiles;
use crate::plan::{Role, tests::plan};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

fn host(role: Role) -> Host {
    Host::this_machine(role, "0.1.0", &HostFiles::this_machine())
}

fn server() -> (Server, u16) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let host = || host(Role::Server);
    let manners = Manners {
        tool: "write-bw",
        protocol: PeerProtocol::Auto,
        host: Box::new(host),
        complain: Box::new(|_| {}),
    };
    (Server::open(None, port, manners).unwrap(), port)
}

fn propose(port: u16) -> TcpChannel {
    let channel = TcpChannel::connect("127.0.0.1", port, None, PeerProtocol::Auto).unwrap();
    let mut channel = channel.linkproof().unwrap();
    channel.send(&Message::Hello { tool: "write-bw".to_owned(), host: host(Role::Client) }).unwrap();
    assert_eq!(channel.expect_any(Duration::from_secs(5)).unwrap().name(), "hello");
    channel.send(&Message::Propose { plan: plan(), link: None }).unwrap();
    channel
}

#[test]
fn a_taken_port_is_refused() {
    let (_server, port) = server();
    let error = listen::on(None, port).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Listen);
    assert!(error.hint.unwrap().contains("--port"));
}

#[test]
fn a_client_comes_with_its_proposal_past_those_who_say_nothing() {
    let (server, port) = server();
    let _silent: Vec<_> = (0..80).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let mut half = TcpStream::connect(("127.0.0.1", port)).unwrap();
    half.write_all(&preamble()[..9]).unwrap();
    let begin = Instant::now();
    let _client = propose(port);
    let mut client = server.next_client().unwrap().unwrap();
    assert!(begin.elapsed() < newcomer::GREETING_LIMIT, "it did not wait for anybody's deadline");
    let Greeting::Linkproof(hosts) = &client.greeting else { panic!("of ours") };
    assert_eq!(hosts.iter().map(|host| host.role).collect::<Vec<_>>(), [Role::Client, Role::Server]);
    assert_eq!(client.channel.expect_any(Duration::from_secs(5)).unwrap().name(), "propose");
}

#[test]
fn who_waits_is_told_for_whom_and_keeps_its_proposal() {
    let (server, port) = server();
    let _first = propose(port);
    let served = server.next_client().unwrap().unwrap();
    let mut second = propose(port);
    for _ in 0..2 {
        let told = second.receive_within(Duration::from_secs(5)).unwrap();
        assert_eq!(told, Some(Message::Wait { serving: Some(show_address(served.from)), ahead: 0 }));
    }
    let mut client = server.next_client().unwrap().unwrap();
    assert_eq!(client.channel.expect_any(Duration::from_secs(5)).unwrap().name(), "propose");
}

#[test]
fn who_gives_up_waiting_leaves_the_queue() {
    let (server, port) = server();
    let _first = propose(port);
    let _served = server.next_client().unwrap().unwrap();
    drop(propose(port));
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut seen = false;
    while !seen || !server.shared.lock().waiting.is_empty() {
        seen |= !server.shared.lock().waiting.is_empty();
        assert!(Instant::now() < deadline, "the client stays in the queue");
        std::thread::sleep(Duration::from_millis(5));
    }
}
