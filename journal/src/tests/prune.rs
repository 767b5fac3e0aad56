//! Reading and pruning whole journals.

use std::fs;
use std::path::Path;

use super::closure::{label, open, recorded, try_open};
use crate::{OutcomeKind, Prune, Pruned, Reader, Summary, prune};

const NONE: Prune<'static> = Prune { calls: &|_| false, failures: false, damaged: false };

/// Makes a journal of several segments: three calls with 20 tasks each, whose last ones have failed
/// and were abandoned, and slots.
fn journal(path: &Path) {
    let store = open(path);
    for name in ["#0", "#1", "named"] {
        let call = store.call(&label(name));
        for n in 0..20u8 {
            let key = store.keys(call).key(&[n], std::iter::empty());
            let kind = match n {
                18 => OutcomeKind::Failed,
                19 => OutcomeKind::Abandoned,
                _ => OutcomeKind::Returned,
            };
            recorded(&store, move |recorder| {
                recorder.outcome(call, key, n.into(), kind, &[n; 150], &[&[n; 5]]);
                recorder.put("actor/a", u64::from(n) % 3, &[n; 100], &[]);
            });
        }
    }
    recorded(&store, |recorder| recorder.remove("actor/a", 2));
}

fn summary(path: &Path) -> Summary {
    Reader::open(path).expect("it is a journal").summary().expect("it can be read")
}

/// Returns how many results, failures and abandoned tasks each call has.
fn counts(summary: &Summary) -> Vec<(&str, u64, u64, u64)> {
    let calls = summary.calls.iter();
    calls.map(|call| (&*call.label.name, call.returned, call.failed, call.abandoned)).collect()
}

fn pruned(path: &Path, what: &Prune<'_>) -> Pruned {
    prune(path, what).expect("it can be pruned")
}

#[test]
fn a_reader_sees_what_a_store_records() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path();
    assert!(Reader::open(path).expect_err("it is empty").to_string().contains("no journal"));
    journal(path);
    let store = open(path);
    let found = summary(path);
    let expected = ["#0", "#1", "named"].map(|name| (name, 18, 1, 1));
    assert_eq!(counts(&found), expected);
    assert_eq!((&*found.slots[0].name, found.slots[0].count), ("actor/a", 2));
    assert_eq!((found.unfinished, found.damage), (0, vec![]));
    let holder = found.holder.expect("the store is open").to_string();
    assert!(holder.contains(&std::process::id().to_string()), "{holder}");
    let mut indexes = Vec::new();
    let reader = Reader::open(path).expect("it is a journal");
    let read = reader.outcomes(|outcome| {
        assert_eq!(outcome.outcome.bytes, vec![outcome.index as u8; 150]);
        assert_eq!(outcome.outcome.blobs, [vec![outcome.index as u8; 5]]);
        indexes.push((outcome.call.name.clone(), outcome.index));
        Ok(())
    });
    read.expect("it can be read");
    let all = ["#0", "#1", "named"].iter().flat_map(|name| (0..20).map(|n| (name.to_string(), n)));
    assert_eq!(indexes, all.collect::<Vec<_>>());
    let mut slots = Vec::new();
    let read = reader.slots(|name, (slot, bytes, _)| {
        slots.push((name.to_owned(), slot, bytes[0]));
        Ok(())
    });
    read.expect("it can be read");
    assert_eq!(slots, [("actor/a".to_owned(), 0, 18), ("actor/a".to_owned(), 1, 19)]);
    let error = prune(path, &NONE).expect_err("it is open");
    assert!(error.to_string().contains("records in it"), "{error}");
    drop(store);
    assert_eq!(summary(path).holder, None);
}

#[test]
fn calls_failures_and_superseded_slots_are_removed() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path();
    journal(path);
    let before = summary(path);
    let first = pruned(path, &NONE);
    // The store has removed most superseded values itself.
    assert!(first.outcomes == 0 && (1..59).contains(&first.slots), "{first:?}");
    assert!(first.size < first.size_before, "{first:?}");
    assert_eq!(counts(&summary(path)), counts(&before));
    assert_eq!(pruned(path, &NONE).slots, 0);

    let calls = pruned(path, &Prune { calls: &|label| label.name == "#1", ..NONE });
    assert_eq!(calls.outcomes, 20);
    assert_eq!(counts(&summary(path)), [("#0", 18, 1, 1), ("named", 18, 1, 1)]);
    let failures = pruned(path, &Prune { failures: true, ..NONE });
    assert_eq!(failures.outcomes, 4);
    let after = summary(path);
    assert_eq!(counts(&after), [("#0", 18, 0, 0), ("named", 18, 0, 0)]);
    assert_eq!((after.slots, after.damage), (before.slots, vec![]));

    // A program goes on with it.
    let store = open(path);
    for (name, count) in [("#0", 18), ("#1", 0), ("named", 18)] {
        let call = store.call(&label(name));
        let key = |n: u8| store.keys(call).key(&[n], std::iter::empty());
        for n in 0..20 {
            let taken = store.take(key(n), true).expect("it can be read");
            assert_eq!(taken.is_some(), n < count, "{n} of {name}");
        }
        let key = key(18);
        recorded(&store, move |recorder| {
            recorder.outcome(call, key, 18, OutcomeKind::Returned, b"again", &[]);
        });
    }
    drop(store);
    let expected = [("#0", 19, 0, 0), ("#1", 1, 0, 0), ("named", 19, 0, 0)];
    let mut found = summary(path);
    found.calls.sort_unstable_by(|one, two| one.label.cmp(&two.label));
    assert_eq!(counts(&found), expected);
}

#[test]
fn what_can_be_read_behind_damage_stays() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path();
    journal(path);
    let file = path.join("00000002.outcomes");
    let mut bytes = fs::read(&file).expect("it is there");
    // The second record of the file, and the header of a commit.
    bytes[400] ^= 1;
    let magic = bytes.windows(4).rposition(|part| part == b"FJc1").expect("there are commits");
    let magic = bytes[..magic].windows(4).rposition(|part| part == b"FJc1").expect("and others");
    bytes[magic] ^= 1;
    fs::write(&file, bytes).expect("there is room");
    fs::remove_file(path.join("00000002.index")).expect("it is there");
    // And the header of a whole segment.
    let header = path.join("00000003.outcomes");
    let mut bytes = fs::read(&header).expect("it is there");
    bytes[0] ^= 1;
    fs::write(&header, bytes).expect("there is room");

    let found = summary(path);
    let places: Vec<_> = found.damage.iter().map(|damage| &damage.path).collect();
    assert_eq!(places, [&file, &file, &header]);
    let error = prune(path, &NONE).expect_err("it is damaged").to_string();
    assert!(error.contains("--damaged"), "{error}");
    try_open(path).expect_err("it is damaged");
    let removed = pruned(path, &Prune { damaged: true, ..NONE });
    assert!(removed.damaged > 0, "{removed:?}");
    let after = summary(path);
    assert_eq!(after.damage, []);
    assert_eq!(counts(&after), counts(&found));
    let all: u64 = counts(&after).iter().map(|(_, returned, ..)| returned).sum();
    assert!((30..54).contains(&all), "{all} results");
    open(path);
}
