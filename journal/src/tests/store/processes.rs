//! Other processes: the lock, and what a killed one leaves.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::open;
use crate::tests::closure::{label, record, recorded};
use crate::{Journal, OutcomeKind, Recorder, Store};

const FOLDER: &str = "FIBER_TEST_FOLDER";

/// Starts a process that has the journal open, and returns it when it has recorded something.
fn other(folder: &Path) -> (Child, String) {
    let mut child = Command::new(env::current_exe().expect("it runs"))
        .args(["--exact", "tests::store::processes::child_records", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it can be started");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut lines = lines.map(|line| line.expect("it is a text"));
    let recorded = lines.find(|line| line.contains("recorded")).expect("it records");
    (child, recorded)
}

#[test]
#[ignore = "other tests run it as another process"]
fn child_records() {
    let Some(folder) = env::var_os(FOLDER) else { return };
    let store = open(Path::new(&folder));
    let call = store.call(&label("#0"));
    for n in 0..u32::MAX {
        let key = store.keys(call).key(&n.to_le_bytes(), std::iter::empty());
        let outcome = move |recorder: &mut Recorder<'_>| {
            let bytes = n.to_le_bytes();
            recorder.outcome(call, key, n.into(), OutcomeKind::Returned, &bytes, &[&[7; 50_000]]);
        };
        if n == 99 {
            recorded(&store, outcome);
            println!("\nrecorded 100");
        } else {
            store.record(record(outcome));
        }
        if n > 1000 {
            store.flush();
        }
    }
}

#[test]
fn a_second_process_gets_an_error_that_names_the_first_one() {
    let folder = tempfile::tempdir().expect("there is room");
    let (mut child, _) = other(folder.path());
    let opened = Store::open(folder.path(), &Journal::at(folder.path()));
    let error = opened.expect_err("it is locked").to_string();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert!(error.contains(&format!("process {} on host {host}", child.id())), "{error}");
    child.kill().expect("it runs");
    child.wait().expect("it was started");
    // The lock of a dead process is free.
    open(folder.path());
}

#[test]
fn the_end_of_a_process_on_another_host_is_waited_for() {
    let folder = tempfile::tempdir().expect("there is room");
    let lock = std::fs::File::create(folder.path().join("lock")).expect("there is room");
    (&lock).write_all(b"7 another-host\n").expect("there is room");
    flock(&lock, FlockOperation::LockExclusive).expect("it is free");
    let path = folder.path().to_owned();
    let opening = std::thread::spawn(move || drop(open(&path)));
    // Longer than for a process of this host.
    std::thread::sleep(Duration::from_millis(500));
    assert!(!opening.is_finished());
    drop(lock);
    opening.join().expect("it opens the journal");
}

#[test]
fn what_a_killed_process_has_recorded_is_found() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().expect("there is room");
        let (mut child, _) = other(folder.path());
        child.kill().expect("it runs");
        child.wait().expect("it was started");
        let store = open(folder.path());
        let call = store.call(&label("#0"));
        let take = |n: u32| {
            let key = store.keys(call).key(&n.to_le_bytes(), std::iter::empty());
            store.take(key, false).expect("it can be read")
        };
        for n in 0..100 {
            assert_eq!(take(n).expect("it was recorded").bytes[..], n.to_le_bytes());
        }
    }
}
