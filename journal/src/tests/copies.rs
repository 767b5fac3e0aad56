//! Copies of journals: without the lock, and in folders that can't be written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;

use super::closure::{label, open, recorded, result, try_open};
use crate::{Journal, OutcomeKind, Reader, Store, journals};

/// Names the folder that [`in_a_folder_that_cannot_be_written`] opens.
const READ_ONLY: &str = "FIBER_TEST_READ_ONLY";

fn journal(path: &Path) {
    let store = open(path);
    let call = store.call(&label("#0"));
    let key = store.keys(call).key(&[1], std::iter::empty());
    recorded(&store, move |recorder| {
        recorder.outcome(call, key, 0, OutcomeKind::Returned, &[7], &[]);
        recorder.put("actor/a", 0, &[8], &[]);
    });
}

#[test]
fn a_copy_of_a_journal_without_its_lock_is_one() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("copy");
    journal(&path);
    fs::remove_file(path.join("lock")).expect("it is there");
    assert_eq!(journals(folder.path()).expect("it can be listed"), [path.as_path()]);
    let summary = Reader::open(&path).expect("it is a journal").summary().expect("it is whole");
    assert_eq!((summary.calls[0].returned, summary.slots.len()), (1, 1));
    try_open(&path).expect("a program opens it too");
}

#[test]
fn a_folder_without_segments_is_no_journal() {
    let folder = tempfile::tempdir().expect("there is room");
    fs::create_dir(folder.path().join("00000001.outcomes.d")).expect("there is room");
    fs::write(folder.path().join("notes.txt"), "none").expect("there is room");
    assert_eq!(journals(folder.path()).expect("it can be listed").len(), 0);
    let error = Reader::open(folder.path()).expect_err("it has no segments").to_string();
    assert!(error.contains("no journal"), "{error}");
}

/// Runs [`in_a_folder_that_cannot_be_written`] in a process that sees the folder read-only.
#[test]
fn a_journal_in_a_folder_that_cannot_be_written_gives_what_it_has() {
    for has_lock in [true, false] {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("journal");
        journal(&path);
        if !has_lock {
            fs::remove_file(path.join("lock")).expect("it is there");
        }
        let files = |path: &Path| {
            let files = fs::read_dir(path).expect("it can be listed");
            let mut files: Vec<_> = files
                .map(|file| file.expect("it can be listed").path())
                .map(|path| (fs::read(&path).expect("it can be read"), path))
                .collect();
            files.sort();
            files
        };
        let before = files(&path);
        let set_modes = |of_folder, of_files| {
            let set = |path: &Path, mode| {
                fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is mine");
            };
            set(&path, of_folder);
            before.iter().for_each(|(_, path)| set(path, of_files));
        };
        let me = std::env::current_exe().expect("the system knows it");
        // Permissions don't stop root, a file system does.
        let mut command = if geteuid().is_root() {
            let mut command = Command::new("unshare");
            let mount =
                "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
            command.args(["--mount", "sh", "-ec", mount]).arg(&path).arg(me);
            command
        } else {
            set_modes(0o555, 0o444);
            Command::new(me)
        };
        command.args(["--exact", "tests::copies::in_a_folder_that_cannot_be_written"]);
        let output = command.arg("--ignored").env(READ_ONLY, &path).output().expect("it starts");
        set_modes(0o755, 0o644);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
        assert!(files(&path) == before, "nothing has changed");
    }
}

#[test]
#[ignore = "the test above runs it, in a process of its own"]
fn in_a_folder_that_cannot_be_written() {
    let path = std::env::var_os(READ_ONLY).expect("the test above sets it");
    let path = Path::new(&path);
    assert!(fs::write(path.join("new"), "").is_err(), "the folder can be written");
    let store = open(path);
    let call = store.call(&label("#0"));
    let key = store.keys(call).key(&[1], std::iter::empty());
    let outcome = store.take(key, false).expect("it can be read").expect("it is recorded");
    assert_eq!(&outcome.bytes[..], [7]);
    assert_eq!(store.slots("actor/a").expect("they can be read")[0].1[..], [8]);
    let error = result(&store, move |recorder| {
        recorder.outcome(call, key, 1, OutcomeKind::Returned, &[9], &[]);
    });
    let error = error.expect_err("it can't be written").to_string();
    assert!(error.contains("can't be written") && error.contains("copy the journal"), "{error}");
    drop(store);
    // A folder without a journal is an error at once, as ever.
    let empty = path.join("empty");
    Store::open(&empty, &Journal::at(&empty)).expect_err("it can't be made");
}
