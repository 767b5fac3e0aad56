//! Recording, and finding it again after the journal was opened again.

mod disk;
mod large;
mod processes;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use super::closure::{label, record, recorded};
use crate::{Journal, Journals, Store};

/// Opens a journal in the session of all tests.
fn open(path: &Path) -> Arc<Store> {
    static JOURNALS: LazyLock<Journals> = LazyLock::new(Journals::default);
    JOURNALS.open(path, &Journal::at(path)).expect("it can be opened")
}

#[test]
fn keys_differ_by_call_argument_and_blobs() {
    let folder = tempfile::tempdir().expect("there is room");
    let store = open(folder.path());
    let key = |name: &str, argument: &[u8], blobs: &[&[u8]]| {
        store.keys(store.call(&label(name))).key(argument, blobs.iter().copied())
    };
    let keys = [
        key("#0", b"12", &[]),
        key("#1", b"12", &[]),
        key("#0", b"1", &[]),
        key("#0", b"1", &[b"2"]),
        key("#0", b"1", &[b"2", b""]),
        key("#0", b"", &[b"12"]),
        key("#0", b"", &[b"1", b"2"]),
    ];
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(keys.iter().position(|other| other == key), Some(at));
    }
    assert_eq!(keys[0], key("#0", b"12", &[]));
}

#[test]
fn slots_have_their_last_values() {
    let folder = tempfile::tempdir().expect("there is room");
    let store = open(folder.path());
    recorded(&store, |recorder| {
        recorder.put("actor/a", 0, b"old", &[]);
        recorder.put("queue/q", 7, b"seven", &[b"blob"]);
        recorder.put("queue/q", 3, b"three", &[]);
        recorder.put("queue/q", 5, b"five", &[]);
        recorder.remove("queue/q", 5);
        recorder.remove("queue/none", 5);
        recorder.put("actor/a", 0, b"new", &[]);
    });
    for store in [Arc::clone(&store), {
        drop(store);
        open(folder.path())
    }] {
        let slots = |name| store.slots(name).expect("it can be read");
        let (seven, blob) = (b"seven"[..].into(), b"blob"[..].into());
        let queue = vec![(3, b"three"[..].into(), vec![]), (7, seven, vec![blob])];
        assert_eq!(slots("queue/q"), queue);
        assert_eq!(slots("actor/a"), [(0, b"new"[..].into(), vec![])]);
        assert_eq!(slots("actor/b"), []);
    }
}

#[test]
fn a_session_has_one_store_of_a_folder() {
    let folder = tempfile::tempdir().expect("there is room");
    let store = open(folder.path());
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).expect("there is room");
    assert!(Arc::ptr_eq(&store, &open(&link)));
    drop(store);
    // It is closed when the next one is opened.
    for _ in 0..20 {
        let store = open(folder.path());
        store.record(record(|recorder| recorder.put("a", 1, b"value", &[])));
    }
    assert_eq!(open(folder.path()).slots("a").expect("it can be read").len(), 1);
}

#[test]
fn a_folder_is_created_with_those_above_it() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("a/b/c");
    let store = Store::open(&path, &Journal::at(&path)).expect("it can be created");
    assert_eq!(store.path(), path);
}

#[test]
fn a_flush_waits_for_all_entries_before_it() {
    let folder = tempfile::tempdir().expect("there is room");
    let store = open(folder.path());
    for slot in 0..100 {
        store.record(record(move |recorder| recorder.put("a", slot, b"", &[])));
    }
    store.flush();
    assert_eq!(store.slots("a").expect("it can be read").len(), 100);
}
