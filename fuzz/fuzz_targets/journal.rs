//! A journal whose files have any bytes, also behind checksums that are right. Opening, reading and
//! pruning it is an error, or gives values; it never panics, and takes no more memory than the
//! files have.

#![no_main]

use std::fs;

use fiber_journal::{Journal, Prune, Reader, Store, TaskKey, prune};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Files {
    outcomes: Vec<Segment>,
    slots: Vec<Segment>,
    index: Vec<u8>,
    then: Vec<Action>,
}

#[derive(Arbitrary, Debug)]
enum Segment {
    Raw(Vec<u8>),
    Commits { version: u8, commits: Vec<Commit>, rest: Vec<u8> },
}

#[derive(Arbitrary, Debug)]
enum Commit {
    Raw(Vec<u8>),
    Whole { seal: u8, sequence: u64, synced: u64, records: Vec<Record>, count: Option<u32> },
}

#[derive(Arbitrary, Debug)]
struct Record {
    kind: u8,
    detail: u8,
    body: Vec<u8>,
}

#[derive(Arbitrary, Debug)]
enum Action {
    Read,
    Open { takes: Vec<([u8; 16], bool)>, slots: Vec<String> },
    Prune { failures: bool, damaged: bool },
}

const STAMP: u64 = 7;

fuzz_target!(|files: Files| {
    let folder = std::env::temp_dir().join(format!("fiber-fuzz-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).expect("there is room");
    fs::write(folder.join("lock"), "").expect("there is room");
    for (segments, kind, extension) in
        [(&files.outcomes, 1, "outcomes"), (&files.slots, 2, "slots")]
    {
        for (segment, number) in segments.iter().zip(1..) {
            let path = folder.join(format!("{number:08}.{extension}"));
            fs::write(path, segment.encode(kind, number)).expect("there is room");
        }
    }
    fs::write(folder.join("00000001.index"), &files.index).expect("there is room");
    for action in &files.then {
        match action {
            Action::Read => {
                if let Ok(reader) = Reader::open(&folder) {
                    let _ = reader.summary();
                    let _ = reader.outcomes(|_| Ok(()));
                    let _ = reader.slots(|_, _| Ok(()));
                }
            }
            Action::Open { takes, slots } => {
                let Ok(store) = Store::open(&folder, &Journal::at(&folder)) else { continue };
                for (key, failures) in takes {
                    let _ = store.take(TaskKey(*key), *failures);
                }
                for slots in slots {
                    let _ = store.slots(slots);
                }
            }
            Action::Prune { failures, damaged } => {
                let (failures, damaged) = (*failures, *damaged);
                let _ = prune(&folder, &Prune { calls: &|_| false, failures, damaged });
                if damaged {
                    let reader = Reader::open(&folder).expect("it is a journal");
                    if let Ok(summary) = reader.summary() {
                        assert_eq!(summary.damage, [], "pruning leaves damage");
                    }
                }
            }
        }
    }
});

impl Segment {
    fn encode(&self, kind: u8, number: u32) -> Vec<u8> {
        let (version, commits, rest) = match self {
            Segment::Raw(bytes) => return bytes.clone(),
            Segment::Commits { version, commits, rest } => (version, commits, rest),
        };
        let mut bytes = b"FIBERJNL".to_vec();
        bytes.extend(u32::from(version % 3).to_le_bytes());
        bytes.extend([kind, 0, 0, 0]);
        bytes.extend([9; 16]);
        bytes.extend(number.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(STAMP.to_le_bytes());
        bytes.resize(60, 0);
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        for commit in commits {
            commit.encode(&mut bytes);
        }
        bytes.extend(rest);
        bytes
    }
}

impl Commit {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let (seal, sequence, synced, records, count) = match self {
            Commit::Raw(raw) => return bytes.extend(raw),
            Commit::Whole { seal, sequence, synced, records, count } => {
                (seal, sequence, synced, records, count)
            }
        };
        let all: Vec<u8> = records.iter().flat_map(Record::encode).collect();
        let mut header = b"FJc1".to_vec();
        header.extend([*seal, 0, 0, 0]);
        header.extend(sequence.to_le_bytes());
        header.extend(synced.to_le_bytes());
        header.extend((all.len() as u64).to_le_bytes());
        header.extend(count.unwrap_or(records.len() as u32).to_le_bytes());
        let offset = (bytes.len() as u64).to_le_bytes();
        let crc = crc32fast::hash(&[&STAMP.to_le_bytes()[..], &offset, &header].concat());
        bytes.extend(header);
        bytes.extend(crc.to_le_bytes());
        bytes.extend(all);
    }
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        // Kinds that exist are the more frequent ones.
        let mut bytes = vec![self.kind % 6, self.detail % 4, 0, 0];
        bytes.extend((self.body.len() as u64).to_le_bytes());
        bytes.extend(&self.body);
        [&crc32fast::hash(&bytes).to_le_bytes()[..], &bytes].concat()
    }
}
