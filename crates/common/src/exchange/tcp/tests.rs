use super::*;
use std::net::TcpListener;

/// A channel on the accepting side, and the raw socket of whoever connected.
fn accepted(first: &[u8]) -> (Result<TcpChannel>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stranger.write_all(first).unwrap();
    let (socket, from) = listener.accept().unwrap();
    let mut channel = TcpChannel::accept(socket, from).unwrap();
    channel.fill(Duration::from_secs(5)).unwrap();
    (channel.answer_preamble(PeerProtocol::Auto).map(|_| channel), stranger)
}

fn receive(channel: &mut TcpChannel) -> Result<Message> {
    channel.expect_any(Duration::from_secs(5))
}

#[test]
fn a_stranger_is_shown_with_its_words() {
    let error = accepted(b"GET / HTTP/1.1\r\nHost: x\r\n").0.err().unwrap();
    assert_eq!(error.kind, ErrorKind::NotLinkproof);
    assert_eq!(error.facts[0].value, r#""GET / HTTP/1.1\r\n""#);
}

#[test]
fn another_version_is_told_ours() {
    let (channel, mut client) = accepted(b"linkproof/9\0\0\0\0\0");
    let error = channel.err().unwrap();
    assert_eq!(error.kind, ErrorKind::PeerVersion);
    assert!(
        error.what.ends_with("speaks version 9 of the control protocol, this end version 1"),
        "{}",
        error.what
    );
    let mut answer = [0; PREAMBLE_LEN];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, preamble());
}

#[test]
fn frames_come_whole_however_they_are_cut() {
    let (channel, mut client) = accepted(&preamble());
    let mut channel = channel.unwrap();
    let payload = br#"{"message":"ready"}"#;
    let mut bytes = (payload.len() as u32).to_be_bytes().to_vec();
    bytes.extend(payload);
    for byte in bytes.repeat(2) {
        client.write_all(&[byte]).unwrap();
    }
    assert_eq!(receive(&mut channel).unwrap(), Message::Ready);
    assert_eq!(receive(&mut channel).unwrap(), Message::Ready);
}

#[test]
fn a_frame_of_four_gigabytes_is_refused_before_it_is_read() {
    let (channel, mut client) = accepted(&preamble());
    client.write_all(&u32::MAX.to_be_bytes()).unwrap();
    let mut channel = channel.unwrap();
    assert_eq!(receive(&mut channel).unwrap_err().kind, ErrorKind::Protocol);
    assert!(channel.inbox.capacity() <= 2 * READ_PIECE);
}

#[test]
fn a_frame_of_nonsense_is_refused() {
    let (channel, mut client) = accepted(&preamble());
    client.write_all(b"\0\0\0\x02{]").unwrap();
    let error = receive(&mut channel.unwrap()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Protocol);
}

#[test]
fn a_peer_that_goes_is_noticed() {
    let (channel, client) = accepted(&preamble());
    drop(client);
    assert_eq!(receive(&mut channel.unwrap()).unwrap_err().kind, ErrorKind::PeerLost);
}

#[test]
fn a_silent_peer_runs_into_the_limit() {
    let (channel, _client) = accepted(&preamble());
    let error = channel.unwrap().expect_any(Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::PeerTimeout);
}

#[test]
fn a_waker_ends_the_wait() {
    let (channel, _client) = accepted(&preamble());
    let mut channel = channel.unwrap();
    channel.waker().wake();
    let begin = Instant::now();
    assert_eq!(channel.receive_within(Duration::from_secs(20)).unwrap(), None);
    assert!(begin.elapsed() < Duration::from_secs(10));
}

/// Two ends over loopback that have exchanged preambles.
fn both_ends() -> (TcpChannel, TcpChannel) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = std::thread::spawn(move || {
        TcpChannel::connect("127.0.0.1", port, None, PeerProtocol::Auto).unwrap().linkproof().unwrap()
    });
    let (socket, from) = listener.accept().unwrap();
    let mut server = TcpChannel::accept(socket, from).unwrap();
    while server.answer_preamble(PeerProtocol::Auto).unwrap().is_none() {
        std::thread::yield_now();
    }
    server.allow_frames(FrameLimit::Run);
    let client = client.join().unwrap();
    // Kernels grow them to megabytes else.
    for end in [&server, &client] {
        SockRef::from(&end.socket).set_send_buffer_size(64 << 10).unwrap();
        SockRef::from(&end.socket).set_recv_buffer_size(64 << 10).unwrap();
    }
    (server, client)
}

/// Longer than what the sockets between two ends hold while nobody reads.
fn long() -> Message {
    Message::End { per_qp: vec![u64::MAX; 60_000] }
}

#[test]
fn two_ends_that_send_long_messages_at_once_do_not_wait_for_each_other() {
    let (mut server, mut client) = both_ends();
    let begin = Instant::now();
    let both = |end: &mut TcpChannel| {
        end.send(&long()).unwrap();
        assert_eq!(receive(end).unwrap(), long());
    };
    std::thread::scope(|scope| {
        scope.spawn(|| both(&mut server));
        both(&mut client);
    });
    assert!(begin.elapsed() < SEND_LIMIT, "{:?}", begin.elapsed());
}

#[test]
fn an_end_that_works_takes_in_a_long_message() {
    let (mut server, mut client) = both_ends();
    let ready = crate::exchange::while_working(&mut server, || client.send(&long()));
    ready.unwrap();
    assert_eq!(receive(&mut server).unwrap(), long());
}
