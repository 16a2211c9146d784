//! Two users of one machine: same fabric, same device, same time.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use linkproof_tests::{Running, Tool, binary, free_port, is_root, library, skip, works};

/// Users that no machine has, without any right.
const USERS: [u32; 2] = [61_001, 61_002];

/// The tools where every user can run them.
struct Tools {
    folder: tempfile::TempDir,
    fabric: String,
}

/// Starts a program as a user.
fn as_user(user: u32) -> String {
    format!("setpriv --reuid {user} --regid {user} --clear-groups --")
}

/// `None`, and a reason printed, where this process can't be another user.
fn tools(test: &str) -> Option<Tools> {
    if !is_root() {
        skip(test, "only root can start processes of two users");
        return None;
    }
    if !works(&format!("{} true", as_user(USERS[0]))) {
        skip(test, "setpriv can't change the user here");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let open = |path: &Path| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("the mode can be set");
    };
    open(folder.path());
    for path in [binary("write-bw"), library("softnic")] {
        let copy = folder.path().join(path.file_name().expect("a file"));
        std::fs::copy(&path, &copy).expect("the tools can be copied");
        open(&copy);
    }
    Some(Tools { folder, fabric: format!("users-{}", free_port()) })
}

impl Tools {
    fn end(&self, user: u32) -> Tool {
        Tool::program(&self.folder.path().join("write-bw"))
            .by_way_of(&as_user(user))
            .args("--soft-device")
            .env("LINKPROOF_SOFTNIC", format!("fabric={}", self.fabric))
    }

    fn server(&self, user: u32) -> (Running, u16) {
        let port = free_port();
        (self.end(user).serve(port), port)
    }

    fn client(&self, user: u32, port: u16, options: &str) -> Tool {
        self.end(user).args(&format!("127.0.0.1 -p {port} -s 4K {options}"))
    }
}

#[test]
fn two_users_run_at_the_same_time() {
    let Some(tools) = tools("two_users_run_at_the_same_time") else { return };
    let servers = USERS.map(|user| tools.server(user));
    for _ in 0..3 {
        let clients = [0, 1]
            .map(|user| tools.client(USERS[user], servers[user].1, "-b -q 2 -n 20000 --validate").start());
        for client in clients {
            let run = client.finish();
            run.exits(0);
            assert!(run.stdout.contains("all as sent"), "{}", run.stdout);
        }
    }
}

#[test]
fn one_user_does_not_reach_the_others_memory() {
    let Some(tools) = tools("one_user_does_not_reach_the_others_memory") else { return };
    let (server, port) = tools.server(USERS[0]);
    let stranger = tools.client(USERS[1], port, "-u 10 --retry-count 1 -n 100").run();
    stranger.exits(4).says(&["a write did not complete: RETRY_EXC_ERR (12)", "as one user"]);
    let own = tools.client(USERS[0], port, "-n 100 --validate").run();
    own.exits(0);
    // The same by hand: what the server shares is in its file descriptors.
    let list = format!("ls /proc/{}/fd/", server.pid());
    Tool::program(Path::new("/usr/bin/env")).args(&list).by_way_of(&as_user(USERS[0])).run().exits(0);
    Tool::program(Path::new("/usr/bin/env")).args(&list).by_way_of(&as_user(USERS[1])).run().exits(2);
}

#[test]
fn names_that_another_user_has_taken_are_gone_around() {
    let Some(tools) = tools("names_that_another_user_has_taken_are_gone_around") else { return };
    // Anybody may take any name: every second slot of the first user, all on this process's account.
    let taken: Vec<_> = (1..512)
        .step_by(2)
        .map(|slot| {
            let name = format!("linkproof-softnic/{}/{}/{slot}", USERS[0], tools.fabric);
            let address = SocketAddr::from_abstract_name(name).expect("a short name");
            UnixListener::bind_addr(&address).expect("a name that is free")
        })
        .collect();
    let (_server, port) = tools.server(USERS[0]);
    tools.client(USERS[0], port, "-n 100 --validate").run().exits(0);
    drop(taken);
}
