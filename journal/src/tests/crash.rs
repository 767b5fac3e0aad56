//! Any sequence of records, crashes and openings, compared with a model.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use fiber_core::simulation::Fate;
use proptest::prelude::*;

use super::closure::{label, open, recorded};
use crate::folder::Folder;
use crate::format::SegmentKind;
use crate::opening::open_segment;
use crate::scan::scan;
use crate::{OutcomeKind, Store};

#[derive(Clone, Debug)]
enum Operation {
    /// Records all in one commit.
    Record(Vec<Write>),
    /// Takes an outcome of the task of this number.
    Take {
        task: u8,
        failures: bool,
    },
    Reopen,
    /// Records, and the machine loses power before it is on disk.
    Crash {
        lost: Vec<Write>,
        outcomes: Fate,
        slots: Fate,
    },
}

#[derive(Clone, Debug)]
enum Write {
    Outcome { task: u8, kind: OutcomeKind, value: Vec<u8>, blob: Option<Vec<u8>> },
    Put { name: bool, slot: u8, value: Vec<u8> },
    Remove { name: bool, slot: u8 },
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (any::<u8>(), 500..4000usize).prop_map(|(byte, len)| vec![byte; len]),
        // Large enough to be written from where it is.
        1 => any::<u8>().prop_map(|byte| vec![byte; 40_000]),
    ]
}

fn write() -> impl Strategy<Value = Write> {
    let kind = prop_oneof![
        3 => Just(OutcomeKind::Returned),
        1 => Just(OutcomeKind::Failed),
        1 => Just(OutcomeKind::Abandoned),
    ];
    prop_oneof![
        4 => (0..6u8, kind, value(), prop::option::of(value()))
            .prop_map(|(task, kind, value, blob)| Write::Outcome { task, kind, value, blob }),
        3 => (any::<bool>(), 0..4u8, value())
            .prop_map(|(name, slot, value)| Write::Put { name, slot, value }),
        1 => (any::<bool>(), 0..4u8).prop_map(|(name, slot)| Write::Remove { name, slot }),
    ]
}

/// The fate of the part of a file that was not on disk.
fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        Just(Fate::Kept),
        (0.0..1.0).prop_map(Fate::Cut),
        (0.0..1.0).prop_map(Fate::Zeroed),
        (0.0..1.0, 1..=255u8).prop_map(|(at, mask)| Fate::Garbled(at, mask)),
        prop::collection::vec(any::<u8>(), 1..100).prop_map(Fate::Longer),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let writes = || prop::collection::vec(write(), 1..5);
    prop_oneof![
        4 => writes().prop_map(Operation::Record),
        3 => (0..6u8, any::<bool>())
            .prop_map(|(task, failures)| Operation::Take { task, failures }),
        1 => Just(Operation::Reopen),
        2 => (writes(), fate(), fate())
            .prop_map(|(lost, outcomes, slots)| Operation::Crash { lost, outcomes, slots }),
    ]
}

/// An outcome's kind, value and blobs.
type Recorded = (OutcomeKind, Vec<u8>, Vec<Vec<u8>>);

/// The content of a journal.
#[derive(Clone, Debug, Default)]
struct Model {
    outcomes: HashMap<u8, Vec<Recorded>>,
    /// Recorded outcomes to take: the results in order, then the failures from the last one on.
    ready: HashMap<u8, Vec<Recorded>>,
    slots: BTreeMap<(bool, u8), Vec<u8>>,
}

impl Model {
    fn apply(&mut self, write: &Write, outcomes: bool, slots: bool) {
        match write {
            Write::Outcome { task, kind, value, blob } if outcomes => {
                let blobs = blob.iter().cloned().collect();
                self.outcomes.entry(*task).or_default().push((*kind, value.clone(), blobs));
            }
            Write::Put { name, slot, value } if slots => {
                self.slots.insert((*name, *slot), value.clone());
            }
            Write::Remove { name, slot } if slots => {
                self.slots.remove(&(*name, *slot));
            }
            _ => {}
        }
    }

    fn reopen(&mut self) {
        let ready = self.outcomes.iter().map(|(task, outcomes)| {
            let (results, failures): (Vec<_>, Vec<_>) =
                outcomes.iter().cloned().partition(|(kind, ..)| *kind == OutcomeKind::Returned);
            (*task, results.into_iter().chain(failures.into_iter().rev()).collect())
        });
        self.ready = ready.collect();
    }

    fn take(&mut self, task: u8, failures: bool) -> Option<Recorded> {
        let ready = self.ready.get_mut(&task)?;
        let is_wanted = |(kind, ..): &Recorded| failures || *kind == OutcomeKind::Returned;
        ready.first().is_some_and(is_wanted).then(|| ready.remove(0))
    }
}

fn name(name: bool) -> &'static str {
    if name { "actor/a" } else { "queue/b" }
}

fn key(store: &Store, task: u8) -> crate::TaskKey {
    let call = store.call(&label(&format!("#{}", task % 2)));
    store.keys(call).key(&[task], std::iter::empty())
}

fn record(store: &Arc<Store>, writes: &[Write]) {
    let keys: Vec<_> = (0..6).map(|task| key(store, task)).collect();
    let calls: Vec<_> = (0..2).map(|n| store.call(&label(&format!("#{n}")))).collect();
    let writes = writes.to_vec();
    recorded(store, move |recorder| {
        for write in &writes {
            match write {
                Write::Outcome { task, kind, value, blob } => {
                    let blobs: Vec<_> = blob.iter().map(Vec::as_slice).collect();
                    let task = usize::from(*task);
                    recorder.outcome(calls[task % 2], keys[task], 0, *kind, value, &blobs);
                }
                Write::Put { name: of, slot, value } => {
                    recorder.put(name(*of), (*slot).into(), value, &[]);
                }
                Write::Remove { name: of, slot } => recorder.remove(name(*of), (*slot).into()),
            }
        }
    });
}

/// The segments of a kind.
#[derive(Clone, Copy)]
struct Segments {
    first: u32,
    last: u32,
    /// The length of the last one.
    len: u64,
}

fn segments(path: &Path, kind: SegmentKind) -> Option<Segments> {
    let folder = Folder::open(path).expect("it exists");
    let numbers = folder.segments(kind).expect("it can be listed");
    let (first, last) = (*numbers.first()?, *numbers.last()?);
    let len = fs::metadata(folder.segment(kind, last)).expect("it is there").len();
    Some(Segments { first, last, len })
}

/// Loses a part of what the last commit has written. Returns whether it did.
fn lose(path: &Path, kind: SegmentKind, before: Option<Segments>, fate: &Fate) -> bool {
    let Some(Segments { first, last: number, len }) = segments(path, kind) else { return false };
    // A segment is removed when what was moved out of it is on disk.
    if before.is_some_and(|before| before.first != first) {
        return false;
    }
    let folder = Folder::open(path).expect("it exists");
    let (file, header) =
        open_segment(&folder, kind, number, false).unwrap_or_else(|_| panic!("it is fine"));
    let scanned = scan(&file, &header, false, |_| Ok(())).expect("it can be read");
    let start = match before {
        Some(before) if before.last == number => before.len,
        // The header is on disk before the file has its name.
        _ => 64,
    };
    if scanned.is_sealed || start == len {
        return false;
    }
    let file = folder.segment(kind, number);
    let mut bytes = fs::read(&file).expect("it can be read");
    let mut written = bytes.split_off(start as usize);
    fate.strike(&mut written);
    bytes.extend(written);
    let is_lost =
        !matches!(fate, Fate::Longer(_)) && fs::read(&file).expect("it is there") != bytes;
    fs::write(&file, bytes).expect("there is room");
    is_lost
}

fn check_slots(store: &Store, model: &Model) {
    for of in [false, true] {
        let found = store.slots(name(of)).expect("it can be read");
        let found: Vec<_> =
            found.iter().map(|(slot, value, _)| (*slot as u8, &value[..])).collect();
        let slots = model.slots.iter().filter(|((name, _), _)| *name == of);
        let expected: Vec<_> = slots.map(|((_, slot), value)| (*slot, &value[..])).collect();
        assert!(found == expected, "{} has other values", name(of));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_journal_has_what_was_recorded(operations in prop::collection::vec(operation(), 1..30)) {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path();
        let mut store = open(path);
        let mut model = Model::default();
        model.reopen();
        for operation in operations {
            match operation {
                Operation::Record(writes) => {
                    record(&store, &writes);
                    writes.iter().for_each(|write| model.apply(write, true, true));
                }
                Operation::Take { task, failures } => {
                    let taken = store.take(key(&store, task), failures).expect("it can be read");
                    let taken = taken.map(|outcome| {
                        let blobs = outcome.blobs.iter().map(|blob| blob.to_vec()).collect();
                        (outcome.kind, outcome.bytes.to_vec(), blobs)
                    });
                    prop_assert!(taken == model.take(task, failures));
                }
                Operation::Reopen => {
                    drop(store);
                    store = open(path);
                    model.reopen();
                }
                Operation::Crash { lost, outcomes, slots } => {
                    let kinds = [SegmentKind::Outcomes, SegmentKind::Slots];
                    let before = kinds.map(|kind| segments(path, kind));
                    record(&store, &lost);
                    drop(store);
                    let is_lost = [
                        lose(path, kinds[0], before[0], &outcomes),
                        lose(path, kinds[1], before[1], &slots),
                    ];
                    lost.iter().for_each(|write| model.apply(write, !is_lost[0], !is_lost[1]));
                    store = open(path);
                    model.reopen();
                }
            }
            check_slots(&store, &model);
        }
        drop(store);
        // Opening without the indexes finds the same.
        for file in fs::read_dir(path).expect("it exists") {
            let file = file.expect("it can be listed").path();
            if file.extension().is_some_and(|extension| extension == "index") {
                fs::remove_file(file).expect("it is there");
            }
        }
        let store = open(path);
        model.reopen();
        for task in 0..6 {
            while let Some((kind, value, _)) = model.take(task, true) {
                let taken = store.take(key(&store, task), true).expect("it can be read");
                let taken = taken.map(|outcome| (outcome.kind, outcome.bytes.to_vec()));
                prop_assert!(taken == Some((kind, value)));
            }
            prop_assert!(store.take(key(&store, task), true).expect("it is fine").is_none());
        }
        check_slots(&store, &model);
    }
}
