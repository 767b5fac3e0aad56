//! Disks that are full, read-only or not allowed: real ones, in a mount namespace.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use fiber_core::{Error, Result};

use super::open;
use crate::tests::closure::{label, result};
use crate::{Journal, OutcomeKind, Store};

/// The folder that the test of a child process works on.
const FOLDER: &str = "FIBER_TEST_FOLDER";

/// Runs a test of this program in namespaces of its own, behind a command that prepares the folder.
#[track_caller]
fn in_namespace(options: &str, prepare: &str, test: &str) {
    let folder = tempfile::tempdir().expect("there is room");
    let program = env::current_exe().expect("it runs");
    let output = Command::new("unshare")
        .args([options, "sh", "-c"])
        .arg(format!("cd \"${FOLDER}\" && {prepare} && echo prepared && exec \"$0\" \"$@\""))
        .arg(program)
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(FOLDER, folder.path())
        .output()
        .expect("this test needs the program `unshare`");
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(
        said[0].contains("prepared"),
        "this test needs user and mount namespaces, which this system refuses: {}",
        said[1]
    );
    assert!(output.status.success() && said[0].contains("1 passed"), "{}{}", said[0], said[1]);
}

/// Returns the folder, in the process for which it was prepared.
fn prepared() -> Option<PathBuf> {
    env::var_os(FOLDER).map(PathBuf::from)
}

fn cause(error: &Error) -> String {
    assert!(matches!(error, Error::Journal { .. }), "{error:?}");
    error.to_string()
}

#[track_caller]
fn refused<T>(opened: Result<T>, words: &[&str]) {
    let Err(error) = opened else { panic!("it can't be used") };
    let error = cause(&error);
    for word in words {
        assert!(error.contains(word), "`{word}` is missing in: {error}");
    }
}

#[test]
fn a_full_disk_is_an_error_and_nothing_recorded_is_lost() {
    in_namespace(
        "-Urm",
        "mount -t tmpfs -o size=20m none .",
        "tests::store::disk::child_fills_the_disk",
    );
}

#[test]
#[ignore = "another test runs it on a disk of 20 MB"]
fn child_fills_the_disk() {
    let Some(folder) = prepared() else { return };
    let path = folder.join("journal");
    let filler = folder.join("filler");
    fs::write(&filler, vec![1; 3 << 20]).expect("there is room");
    let store = open(&path);
    let call = store.call(&label("#0"));
    let key = |store: &Store, n: u32| store.keys(call).key(&n.to_le_bytes(), std::iter::empty());
    let write = |store: &Store, n: u32| {
        let key = key(store, n);
        result(store, move |recorder| {
            let blob = vec![n as u8; 600_000];
            recorder.outcome(
                call,
                key,
                n.into(),
                OutcomeKind::Returned,
                &[n as u8; 1000],
                &[&blob],
            );
            recorder.put("actor/a", 0, &n.to_le_bytes(), &[]);
        })
    };
    let mut recorded = 0;
    let error = loop {
        match write(&store, recorded) {
            Ok(()) => recorded += 1,
            Err(error) => break cause(&error),
        }
    };
    assert!(recorded > 10, "{recorded}");
    for word in ["No space left", "Free space", "goes on from what is recorded"] {
        assert!(error.contains(word), "{error}");
    }
    // There is room again, but a result that came later must not be recorded without this one.
    fs::remove_file(&filler).expect("it is there");
    let later = result(&store, |recorder| recorder.put("actor/a", 0, b"later", &[]));
    assert_eq!(cause(&later.expect_err("the store is broken")), error);
    drop(store);

    let store = open(&path);
    let slots = store.slots("actor/a").expect("it can be read");
    assert_eq!(slots[0].1[..], (recorded - 1).to_le_bytes());
    for n in 0..recorded {
        let outcome = store.take(key(&store, n), false).expect("it can be read");
        let outcome = outcome.expect("it was recorded");
        assert!(
            outcome.blobs[0].len() == 600_000 && outcome.blobs[0].iter().all(|b| *b == n as u8)
        );
    }
    assert_eq!(store.take(key(&store, recorded), true).expect("it can be read"), None);
    write(&store, recorded).expect("there is room again");
}

#[test]
fn a_read_only_file_system_is_an_error() {
    in_namespace(
        "-Urm",
        "mount -t tmpfs none . && cd \"$PWD\" && mkdir old && mount -o remount,ro none .",
        "tests::store::disk::child_is_read_only",
    );
}

#[test]
#[ignore = "another test runs it on a read-only file system"]
fn child_is_read_only() {
    let Some(folder) = prepared() else { return };
    for path in [folder.join("old"), folder.join("new")] {
        let opened = Store::open(&path, &Journal::at(&path));
        refused(opened, &["Read-only file system", "Journal::at", &path.display().to_string()]);
    }
}

#[test]
fn a_folder_without_permission_is_an_error() {
    // Without a mapping, root has no privileges there.
    in_namespace("-U", "chmod 500 .", "tests::store::disk::child_has_no_permission");
}

#[test]
#[ignore = "another test runs it without privileges"]
fn child_has_no_permission() {
    let Some(folder) = prepared() else { return };
    for path in [folder.join("new"), folder] {
        refused(Store::open(&path, &Journal::at(&path)), &["Permission denied", "Journal::at"]);
    }
}

#[test]
fn a_new_folder_is_closed_to_other_users() {
    let folder = tempfile::tempdir().expect("there is room");
    let above = folder.path().join("above");
    let path = above.join("journal");
    drop(open(&path));
    for created in [above, path] {
        let mode = fs::metadata(created).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}

#[test]
fn a_folder_that_others_could_have_made_is_an_error() {
    let shared = tempfile::tempdir().expect("there is room");
    let path = shared.path().join("journal");
    fs::create_dir(&path).expect("there is room");
    for (folder, mode) in [(shared.path(), 0o1777), (&*path, 0o777)] {
        fs::set_permissions(folder, Permissions::from_mode(mode)).expect("it is mine");
    }
    let opened = Store::open(&path, &Journal::at(&path));
    refused(opened, &[&format!("other users can write `{}`: choose", path.display())]);
}

#[test]
fn a_file_in_the_place_of_the_folder_is_an_error() {
    let folder = tempfile::tempdir().expect("there is room");
    let file = folder.path().join("file");
    fs::write(&file, "something else").expect("there is room");
    for path in [file.clone(), file.join("below")] {
        let opened = Store::open(&path, &Journal::at(&path));
        refused(opened, &["Not a directory", "A journal is a folder"]);
    }
    assert_eq!(fs::read(&file).expect("it is there"), b"something else");
}
