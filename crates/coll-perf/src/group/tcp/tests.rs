use super::*;
use crate::plan::tests::plan;
use std::io::Read;
use std::net::{TcpListener, TcpStream};

/// A port that was just free.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn launch(rank: u32, n_ranks: u32, port: u16) -> Launch {
    Launch { rank, n_ranks, local_rank: None, by: "test".into(), host: "127.0.0.1".into(), port }
}

fn short_plan(n_ranks: u32, seconds: f64) -> Plan {
    let mut plan = plan(&["all_reduce"]);
    plan.n_ranks = n_ranks;
    plan.timeout_seconds = seconds;
    plan
}

/// Every rank's end does `work` in a thread of its own.
fn each<T: Send>(n_ranks: u32, work: impl Fn(TcpGroup) -> T + Sync) -> Vec<T> {
    let (port, plan) = (free_port(), short_plan(n_ranks, 30.0));
    let meet = |rank| TcpGroup::meet(&launch(rank, n_ranks, port), &plan).unwrap();
    std::thread::scope(|scope| {
        let one = |rank| {
            let (work, meet) = (&work, &meet);
            scope.spawn(move || work(meet(rank)))
        };
        let threads: Vec<_> = (0..n_ranks).map(one).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn everybody_gets_everybodys_blob_and_only_rank_0_gathers() {
    let seen = each(5, |mut end| {
        for turn in 0..20_u8 {
            let blobs = end.all_gather(&[end.rank() as u8, turn]).unwrap();
            assert_eq!(blobs, (0..5).map(|rank| vec![rank, turn]).collect::<Vec<_>>());
            end.barrier().unwrap();
        }
        assert!(end.any(end.rank() == 3).unwrap() && !end.any(false).unwrap());
        let gathered = end.gather(&[end.rank() as u8; 100_000]).unwrap();
        let clock = end.clock_offset().unwrap();
        end.barrier().unwrap();
        // One machine has one clock.
        assert!(clock.ahead_ns.unsigned_abs() <= clock.uncertainty_ns.max(1));
        gathered.map(|blobs| blobs.iter().map(Vec::len).sum::<usize>())
    });
    assert_eq!(seen, [Some(500_000), None, None, None, None]);
}

#[test]
fn a_failure_of_one_is_the_end_for_all_with_its_words() {
    let failed = each(3, |mut end| {
        if end.rank() == 2 {
            end.abort(&Error::new(ErrorKind::Memory, "there is no memory"));
        }
        let error = loop {
            if let Err(error) = end.barrier() {
                break error;
            }
        };
        assert!(end.alarm().is_raised(), "rank {}: {error:?}", end.rank());
        error.what
    });
    assert_eq!(failed[2], "there is no memory");
    for told in &failed[..2] {
        assert!(
            told.starts_with("rank 2 (host ") && told.ends_with("could not go on: there is no memory"),
            "{told}"
        );
    }
}

#[test]
fn a_rank_that_dies_is_named_everywhere() {
    let told = each(3, |mut end| {
        end.barrier().unwrap();
        if end.rank() == 1 {
            // As the kernel does for a process that is killed.
            end.links[0].socket.shutdown(std::net::Shutdown::Both).unwrap();
            std::thread::sleep(Duration::from_millis(200));
            return String::new();
        }
        end.barrier().unwrap_err().what
    });
    for told in [&told[0], &told[2]] {
        assert!(told.starts_with("rank 1 (host ") && told.contains("is gone"), "{told}");
    }
}

#[test]
fn ranks_that_do_not_come_are_named_to_those_that_did() {
    let (port, plan) = (free_port(), short_plan(4, 1.0));
    let (first, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| TcpGroup::meet(&launch(2, 4, port), &plan).err().unwrap());
        (TcpGroup::meet(&launch(0, 4, port), &plan).err().unwrap(), other.join().unwrap())
    });
    assert_eq!((first.kind, first.facts[0].value.as_str()), (ErrorKind::PeerTimeout, "rank 1, 3"));
    assert_eq!((other.kind, other.facts[0].value.as_str()), (ErrorKind::PeerTimeout, "rank 1, 3"));
}

#[test]
fn without_rank_0_a_rank_says_where_it_looked() {
    let error = TcpGroup::meet(&launch(1, 2, free_port()), &short_plan(2, 0.3)).err().unwrap();
    assert!(error.what.contains("rank 1 found no rank 0 at 127.0.0.1:"), "{}", error.what);
    assert_eq!(error.exit_status() as i32, 4);
}

#[test]
fn other_options_are_refused_on_both_sides() {
    let (port, plan) = (free_port(), short_plan(2, 30.0));
    let mut other_plan = plan.clone();
    other_plan.iterations = 7;
    let (first, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| TcpGroup::meet(&launch(1, 2, port), &other_plan).err().unwrap());
        (TcpGroup::meet(&launch(0, 2, port), &plan).err().unwrap(), other.join().unwrap())
    });
    assert!(first.what.contains("rank 1 ") && first.what.contains("other options"), "{}", first.what);
    assert!(first.facts[0].value.contains("iterations: 4 at rank 0, 7 there"));
    assert!(other.what.contains("other options"), "{}", other.what);
}

#[test]
fn strangers_at_the_door_do_not_disturb() {
    let (port, plan) = (free_port(), short_plan(2, 30.0));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| TcpGroup::meet(&launch(0, 2, port), &plan).unwrap().n_ranks());
        let knock = || loop {
            if let Ok(socket) = TcpStream::connect(("127.0.0.1", port)) {
                break socket;
            }
        };
        let silent = knock();
        let mut rude = knock();
        rude.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut liar = knock();
        liar.write_all(PREAMBLE_AND_A_HUGE_FRAME).unwrap();
        for socket in [&mut rude, &mut liar] {
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            assert_eq!(socket.read(&mut [0; 8]).unwrap_or(0), 0, "sent away");
        }
        let second = TcpGroup::meet(&launch(1, 2, port), &plan).unwrap();
        assert_eq!((first.join().unwrap(), second.n_ranks()), (2, 2));
        drop(silent);
    });
}

const PREAMBLE_AND_A_HUGE_FRAME: &[u8] = b"linkproof-coll/1\x01\xff\xff\xff\xff";
