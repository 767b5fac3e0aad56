//! The copies of programs on machines.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use fiber_test_support::trial;

use crate::machines::{builds, own_builds, program};

/// Returns the copies of programs on a machine.
fn copies(machine: &str) -> Vec<PathBuf> {
    let Ok(builds) = fs::read_dir(builds(machine)) else { return Vec::new() };
    let files = builds.flatten().filter_map(|build| fs::read_dir(build.path()).ok());
    files.flat_map(|files| files.flatten().map(|file| file.path())).collect()
}

fn run(machine: &str) {
    program("one task", machine).run().code(0).says(&["value: 7"]);
}

#[trial]
fn a_program_is_copied_once() {
    let _ = fs::remove_dir_all(builds("c"));
    run("c");
    let [copy] = &copies("c")[..] else { panic!("{:?}", copies("c")) };
    let first = fs::metadata(copy).expect("it is there");
    assert_eq!(first.mode() & 0o777, 0o700);
    run("c");
    assert_eq!(copies("c").len(), 1);
    let second = fs::metadata(copy).expect("it is there");
    assert_eq!((first.ino(), first.mtime_nsec()), (second.ino(), second.mtime_nsec()));
}

#[trial]
fn two_sessions_at_once_share_a_copy() {
    let _ = fs::remove_dir_all(builds("c"));
    let sessions = [(); 2].map(|()| program("one task", "c").start());
    sessions.into_iter().for_each(|session| drop(session.end().code(0).says(&["value: 7"])));
    assert_eq!(copies("c").len(), 1);
}

#[trial]
fn a_damaged_copy_is_replaced() {
    run("c");
    let copy = copies("c").remove(0);
    fs::write(&copy, "half of it").expect("it is not in use");
    run("c");
    assert!(fs::metadata(&copy).expect("it is there").len() > 1000);
}

/// Makes a build of another program, last used an hour ago.
fn old_build(name: &str) -> PathBuf {
    let folder = builds("c").join(name);
    fs::create_dir_all(&folder).expect("there is room");
    fs::write(folder.join("program"), [1; 1 << 20]).expect("there is room");
    folder
}

fn age(path: &Path, hours: &str) {
    let touch = Command::new("touch").args(["-d", hours]).arg(path).status();
    assert!(touch.expect("there is touch").success());
}

#[trial]
fn the_oldest_builds_are_removed_but_none_that_runs() {
    let _ = fs::remove_dir_all(builds("c"));
    let running = old_build("00000000000000000000000000000000000000aa");
    fs::copy("/bin/sleep", running.join("program")).expect("there is room");
    let mut process = Command::new(running.join("program"));
    let mut process = process.arg("60").spawn().expect("it can run");
    let (unused, recent) = (old_build("bb"), old_build("cc"));
    let foreign = old_build("of another program");
    age(&running, "3 hours ago");
    age(&foreign, "3 hours ago");
    age(&unused, "2 hours ago");
    let setup = program("one task", "c").env("FIBER_SSH_CACHE_SIZE", "1MiB");
    let ended = setup.run();
    process.kill().and_then(|()| process.wait()).expect("it is a child");
    ended.code(0).says(&["value: 7"]);
    assert!(running.exists() && recent.exists() && foreign.exists());
    assert!(!unused.exists());
    fs::remove_dir_all(builds("c")).expect("nothing uses it");
}

#[trial]
fn the_cache_can_be_elsewhere() {
    let directory = tempfile::tempdir().expect("there is room");
    let setup = program("one task", "a").env("FIBER_SSH_CACHE", directory.path());
    setup.run().code(0).says(&["value: 7"]);
    assert!(directory.path().join(own_builds()).exists());
}

#[trial]
fn a_cache_that_another_user_has_made_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: a test as another user takes root");
    }
    // Each user has a folder of its own in it.
    let shared = tempfile::tempdir().expect("there is room for a directory");
    fs::set_permissions(shared.path(), PermissionsExt::from_mode(0o1777))
        .expect("it is this one's");
    let folder = shared.path().join(own_builds());
    let mut stranger = Command::new("setpriv");
    stranger.args(["--reuid", "54321", "--regid", "54321", "--clear-groups", "mkdir", "-p"]);
    assert!(stranger.arg(&folder).status().expect("there is setpriv").success());
    let setup = program("one task", "a").env("FIBER_SSH_CACHE", shared.path());
    let problem = "other users of `a` own or can write ";
    setup.run().code(0).says(&["error: ", problem, &folder.display().to_string()]);
    let left = fs::read_dir(&folder).expect("it is there").flatten();
    for build in left {
        assert_eq!(fs::read_dir(build.path()).expect("a folder").count(), 0, "nothing was sent");
    }
}
