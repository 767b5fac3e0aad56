//! Other users of a host: they neither see a session nor reach its inspector.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fiber_test_support::program::Setup;
use rustix::process::{Signal, geteuid};
use tempfile::TempDir;

/// Two users that have no other processes, and a copy of the command that both can run.
struct Users {
    folder: TempDir,
    own: u32,
    stranger: u32,
}

impl Users {
    fn new() -> Users {
        let folder = tempfile::tempdir().expect("there is room for a directory");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("it is mine");
        fs::copy(env!("CARGO_BIN_EXE_fiber"), folder.path().join("fiber")).expect("there is room");
        let own = 50_000 + 2 * (std::process::id() % 5_000);
        Users { folder, own, stranger: own + 1 }
    }

    fn fiber(&self, user: u32, arguments: &[&str]) -> Setup {
        let setup = Setup::with_executable("", &self.folder.path().join("fiber"));
        let home = setup.directory().display().to_string();
        setup.args(arguments).env("HOME", home).user(user)
    }

    /// The directories of a user's sockets.
    fn directories(user: u32) -> [PathBuf; 2] {
        ["/tmp", "/dev/shm"].map(|parent| Path::new(parent).join(format!("fiber-{user}")))
    }

    /// Returns whether `fiber ps` of a user lists the session of this head.
    fn lists(&self, user: u32, head: u32) -> bool {
        let listed = self.fiber(user, &["ps"]).run().code(0).out;
        listed.lines().any(|line| line.trim_start().starts_with(&format!("pid {head} ")))
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        for directory in [self.own, self.stranger].map(Users::directories).as_flattened() {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

#[test]
fn another_user_does_not_see_a_session_and_can_not_reach_it() {
    if !geteuid().is_root() {
        return eprintln!("skipped: a test as another user takes root");
    }
    let users = Users::new();
    // The stranger has the place in which the session would be first, and a socket's name there.
    let [taken, next] = Users::directories(users.own);
    let squat = format!("mkdir -m 777 {0} && touch {0}/00000000000000ff", taken.display());
    let shell = |command: &str| {
        let setup = Setup::with_executable("", Path::new("sh")).args(&["-c", command]);
        setup.user(users.stranger)
    };
    shell(&squat).run().code(0);

    let endless = ["map", "--", "sh", "-c", "touch $0; exec sleep 600", ":::", "runs"];
    let setup = users.fiber(users.own, &endless);
    let runs = setup.directory().join("runs");
    let session = setup.start();
    session.wait_until("its command", || runs.exists());
    let head = session.pid();
    for user in [users.own, 0] {
        session.wait_until("it is listed", || users.lists(user, head));
    }
    assert!(!users.lists(users.stranger, head));
    let pid = head.to_string();
    for command in [&["top", "--once"][..], &["stack"], &["kill"]] {
        let ending = users.fiber(users.stranger, &[command, &[&*pid]].concat()).run().code(1);
        assert!(ending.errors.contains("there is no session"), "{}", ending.errors);
    }
    // Not even its name can be learnt.
    let looked = shell(&format!("ls {}", next.display())).run();
    assert_ne!(looked.exit_code(), Some(0), "{}", looked.out);
    assert!(session.has_not_ended());
    session.signal(Signal::TERM);
    session.end().signal(Signal::TERM);
}
