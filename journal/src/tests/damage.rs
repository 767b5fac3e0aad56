//! Damage of what was on disk is an error, never a loss that nobody sees.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::closure::{label, open, recorded, try_open};
use crate::format::{SegmentHeader, VERSION};
use crate::{Journal, OutcomeKind, Store};

/// Makes a journal of ten commits, with some outcomes and slots each, in one segment of each kind.
fn journal(path: &Path) {
    let store = Store::open(path, &Journal::at(path)).expect("it can be opened");
    let call = store.call(&label("#0"));
    for n in 0..10u8 {
        let key = store.keys(call).key(&[n], std::iter::empty());
        recorded(&store, move |recorder| {
            recorder.outcome(call, key, n.into(), OutcomeKind::Returned, &[n; 20], &[&[n; 5]]);
            recorder.put("actor/a", 0, &[n; 20], &[]);
        });
    }
}

fn files(path: &Path) -> [PathBuf; 2] {
    ["00000001.outcomes", "00000001.slots"].map(|name| path.join(name))
}

#[track_caller]
fn refused(path: &Path, words: &[&str]) {
    let error = try_open(path).expect_err("it is damaged").to_string();
    for word in words {
        assert!(error.contains(word), "`{word}` is missing in: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn damage_before_the_last_commit_is_an_error(at in 0.0..1.0, mask in 1..=255u8) {
        let folder = tempfile::tempdir().expect("there is room");
        journal(folder.path());
        for file in files(folder.path()) {
            let whole = fs::read(&file).expect("it is there");
            let commit = (whole.len() - SegmentHeader::LEN) / 10;
            let mut bytes = whole.clone();
            bytes[((whole.len() - commit - 40) as f64 * at) as usize] ^= mask;
            fs::write(&file, bytes).expect("there is room");
            refused(folder.path(), &["damaged", &file.display().to_string(), "prune --damaged"]);
            fs::write(&file, whole).expect("there is room");
        }
        try_open(folder.path()).expect("it is as before");
    }
}

#[test]
fn a_newer_version_of_the_format_is_refused_in_words() {
    let folder = tempfile::tempdir().expect("there is room");
    journal(folder.path());
    let file = &files(folder.path())[0];
    let mut bytes = fs::read(file).expect("it is there");
    bytes[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let crc = crc32fast::hash(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    fs::write(file, bytes).expect("there is room");
    refused(folder.path(), &["version 2 of the format", "up to 1", "newer fiber"]);
}

#[test]
fn a_sealed_segment_that_has_become_shorter_is_an_error() {
    let folder = tempfile::tempdir().expect("there is room");
    let store = open(folder.path());
    let call = store.call(&label("#0"));
    for n in 0..4 {
        let key = store.keys(call).key(&[n], std::iter::empty());
        recorded(&store, move |recorder| {
            recorder.outcome(call, key, 0, OutcomeKind::Returned, &[n; 2000], &[]);
        });
    }
    drop(store);
    assert!(folder.path().join("00000002.outcomes").exists());
    let file = fs::File::options().write(true).open(&files(folder.path())[0]);
    let file = file.expect("it is there");
    let len = file.metadata().expect("it is open").len();
    for cut in [1, 40, 41, 100, 2000] {
        file.set_len(len - cut).expect("there is room");
        refused(folder.path(), &["damaged", "00000001.outcomes"]);
    }
}

#[test]
fn damage_under_an_index_is_an_error_when_the_outcome_is_read() {
    let folder = tempfile::tempdir().expect("there is room");
    let store = open(folder.path());
    let call = store.call(&label("#0"));
    let key = |store: &Store, n: u8| store.keys(call).key(&[n], std::iter::empty());
    for n in 0..3 {
        let key = key(&store, n);
        recorded(&store, move |recorder| {
            recorder.outcome(call, key, 0, OutcomeKind::Returned, &[n; 2000], &[]);
        });
    }
    drop(store);
    let file = &files(folder.path())[0];
    let mut bytes = fs::read(file).expect("it is there");
    let at = bytes.iter().position(|byte| *byte == 1).expect("the second one is in it");
    let at = at.max(bytes.windows(100).position(|part| part == [1; 100]).expect("it is in it"));
    bytes[at + 50] = 7;
    fs::write(file, bytes).expect("there is room");
    let store = open(folder.path());
    let error = store.take(key(&store, 1), true).expect_err("it is damaged").to_string();
    assert!(error.contains("damaged") && error.contains("00000001.outcomes"), "{error}");
    assert!(store.take(key(&store, 0), true).expect("it is fine").is_some());
    assert!(store.take(key(&store, 2), true).expect("it is fine").is_some());
}
