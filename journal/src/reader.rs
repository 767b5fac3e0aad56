//! Reading a journal while a program may write it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fiber_core::{Error, Result};

use crate::blocks::{damaged, read_record, slices};
use crate::folder::Folder;
use crate::format::SegmentKind;
use crate::lock::{self, Holder};
use crate::opening::{OpenError, open_segment};
use crate::record::{self, Record};
use crate::scan::{Found, scan};
use crate::slots::{SlotChange, Slots, read};
use crate::{CallId, CallLabel, Outcome, OutcomeKind, segment::Place, store::SlotValue};

/// A journal that is read. It changes nothing, and a program may write it meanwhile.
#[derive(Debug)]
pub struct Reader {
    folder: Folder,
}

/// The content of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The calls that have outcomes, in the order of their first ones.
    pub calls: Vec<CallSummary>,
    /// The slots, by name.
    pub slots: Vec<SlotsSummary>,
    /// The number of commits.
    pub commits: u64,
    /// The size of the segments and indexes in bytes.
    pub size: u64,
    /// The bytes behind the last commits: a commit that is being written, or that a killed program
    /// has not completed. They hold nothing that was reported as recorded.
    pub unfinished: u64,
    /// Damaged places on disk.
    pub damage: Vec<Damage>,
    /// The process that has the journal open for writing.
    pub holder: Option<Holder>,
}

/// A call, and its outcomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSummary {
    /// The identity of the call.
    pub label: CallLabel,
    /// The number of results.
    pub returned: u64,
    /// The number of tasks that have failed.
    pub failed: u64,
    /// The number of tasks whose workers died.
    pub abandoned: u64,
    /// The size of their records in bytes.
    pub bytes: u64,
}

/// The slots of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotsSummary {
    /// The name.
    pub name: String,
    /// The number of slots.
    pub count: u64,
    /// The size of their last values' records in bytes.
    pub bytes: u64,
}

/// A place in a journal that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Where the damage begins.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The problem, if none of the file can be read.
    pub problem: Option<String>,
}

/// An outcome, and where it belongs.
#[derive(Clone, Debug)]
pub struct RecordedOutcome<'a> {
    /// The call.
    pub call: &'a CallLabel,
    /// The task's position in its call.
    pub index: u64,
    /// The outcome.
    pub outcome: Outcome,
}

/// How often reading begins again when the writer removes a segment meanwhile.
const ATTEMPTS: u32 = 20;

impl Reader {
    /// Opens the journal in this folder.
    ///
    /// # Errors
    /// [`Error::Journal`] if there is none.
    pub fn open(path: &Path) -> Result<Reader> {
        let folder = Folder::open(path)?;
        if !is_journal(&folder) {
            return Err(folder.error("this folder is no journal: it has no segments"));
        }
        Ok(Reader { folder })
    }

    /// Returns the journal's folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Reads all of the journal and checks its checksums.
    ///
    /// # Errors
    /// [`Error::Journal`] if the system refuses to read, or a newer build has written the journal.
    /// Damage is no error.
    pub fn summary(&self) -> Result<Summary> {
        self.retried(|| {
            let mut summary = Summary { holder: lock::holder(&self.folder), ..Summary::default() };
            self.count_outcomes(&mut summary)?;
            let slots = self.read_slots(&mut summary)?;
            summary.slots = slots.names().map(|name| summary_of(name, &slots)).collect();
            summary.slots.sort_unstable_by(|one, two| one.name.cmp(&two.name));
            Ok(summary)
        })
    }

    fn count_outcomes(&self, summary: &mut Summary) -> Result<()> {
        let mut calls: BTreeMap<CallId, CallSummary> = BTreeMap::new();
        self.read(SegmentKind::Outcomes, summary, |part| {
            let SegmentPart::Record(_, _, (_, len, record)) = part else { return Ok(()) };
            match record {
                Record::Call(id, label) => {
                    calls.entry(id).or_insert(CallSummary {
                        label,
                        returned: 0,
                        failed: 0,
                        abandoned: 0,
                        bytes: 0,
                    });
                }
                Record::Outcome { call, kind, .. } => {
                    if let Some(call) = calls.get_mut(&call) {
                        call.bytes += len;
                        *match kind {
                            OutcomeKind::Returned => &mut call.returned,
                            OutcomeKind::Failed => &mut call.failed,
                            OutcomeKind::Abandoned => &mut call.abandoned,
                        } += 1;
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        summary.calls = calls.into_values().collect();
        Ok(())
    }

    fn read_slots(&self, summary: &mut Summary) -> Result<Slots> {
        let mut slots = Slots::default();
        self.read(SegmentKind::Slots, summary, |part| {
            match part {
                SegmentPart::Begin(number, file) => slots.add_segment(number, Arc::clone(file)),
                SegmentPart::Record(number, _, (offset, len, record)) => {
                    let change = SlotChange::of(record, Place { segment: number, offset, len });
                    change.into_iter().for_each(|change| slots.apply(change));
                }
            }
            Ok(())
        })?;
        Ok(slots)
    }

    /// Passes all outcomes that can be read, in the order of recording.
    ///
    /// # Errors
    /// As [`summary`](Reader::summary), and the first error of `visit`.
    pub fn outcomes(&self, mut visit: impl FnMut(RecordedOutcome<'_>) -> Result<()>) -> Result<()> {
        let mut calls: BTreeMap<CallId, CallLabel> = BTreeMap::new();
        let mut summary = Summary::default();
        self.read(SegmentKind::Outcomes, &mut summary, |part| {
            let SegmentPart::Record(number, file, (offset, _, record)) = part else {
                return Ok(());
            };
            match record {
                Record::Call(id, label) => {
                    calls.insert(id, label);
                    Ok(())
                }
                Record::Outcome { call, index, .. } => {
                    let Some(call) = calls.get(&call) else { return Ok(()) };
                    let outcome = self.outcome(number, file, offset)?;
                    visit(RecordedOutcome { call, index, outcome })
                }
                _ => Ok(()),
            }
        })
    }

    fn outcome(&self, number: u32, file: &File, offset: u64) -> Result<Outcome> {
        let kind = SegmentKind::Outcomes;
        let path = self.folder.segment(kind, number);
        let record = read_record(file, offset);
        let record = record.map_err(|error| self.folder.refusal("read", &path, error))?;
        let read = record.and_then(|bytes| match record::decode_whole(&bytes)? {
            Record::Outcome { kind, value, .. } => {
                let (bytes, blobs) = slices(&value, |range| bytes.slice(range));
                Some(Outcome { kind, bytes, blobs })
            }
            _ => None,
        });
        read.ok_or_else(|| damaged(&self.folder, kind, number, offset))
    }

    /// Passes the last values of all slots, with the names of the slots.
    ///
    /// # Errors
    /// As [`outcomes`](Reader::outcomes).
    pub fn slots(&self, mut visit: impl FnMut(&str, SlotValue) -> Result<()>) -> Result<()> {
        let slots = self.retried(|| self.read_slots(&mut Summary::default()))?;
        let mut names: Vec<_> = slots.names().collect();
        names.sort_unstable();
        for name in names {
            for (slot, place, file) in slots.places(name) {
                visit(name, read(&self.folder, slot, place, &file)?)?;
            }
        }
        Ok(())
    }

    /// Reads again if the writer has removed a segment of slots meanwhile.
    fn retried<T>(&self, read: impl Fn() -> Result<T>) -> Result<T> {
        let first = || Ok::<_, Error>(self.folder.segments(SegmentKind::Slots)?.first().copied());
        for _ in 0..ATTEMPTS {
            let before = first()?;
            let result = read();
            if first()? == before {
                return result;
            }
        }
        read()
    }

    /// Passes the records of all segments of a kind that can be read.
    fn read(
        &self,
        kind: SegmentKind,
        summary: &mut Summary,
        mut visit: impl FnMut(SegmentPart<'_>) -> Result<()>,
    ) -> Result<()> {
        let numbers = self.folder.segments(kind)?;
        for (at, number) in numbers.iter().copied().enumerate() {
            let has_successor = at + 1 < numbers.len();
            let path = self.folder.segment(kind, number);
            let opened = open_segment(&self.folder, kind, number, false);
            let (file, header) = match opened {
                Ok(opened) => opened,
                Err(OpenError::Damaged(error)) => {
                    let len = std::fs::metadata(&path).map_or(0, |data| data.len());
                    summary.size += len;
                    let problem = Some(error.to_string());
                    summary.damage.push(Damage { path, offset: 0, len, problem });
                    continue;
                }
                Err(OpenError::Refused(error)) => return Err(error),
                Err(OpenError::Missing(_)) => continue,
            };
            visit(SegmentPart::Begin(number, &file))?;
            let mut failed = None;
            let scanned = scan(&file, &header, has_successor, |found| {
                visit(SegmentPart::Record(number, &file, found)).map_err(|error| {
                    failed = Some(error);
                    io::Error::from(ErrorKind::Other)
                })
            });
            if let Some(error) = failed {
                return Err(error);
            }
            let scanned = scanned.map_err(|error| self.folder.refusal("read", &path, error))?;
            summary.commits += scanned.commits;
            summary.size += scanned.len;
            if kind == SegmentKind::Outcomes {
                let index = std::fs::metadata(self.folder.sidecar(number));
                summary.size += index.map_or(0, |data| data.len());
            }
            summary.unfinished += scanned.len - scanned.end;
            let damage = scanned.holes.iter().map(|hole| Damage {
                path: path.clone(),
                offset: hole.offset,
                len: hole.len,
                problem: None,
            });
            summary.damage.extend(damage);
        }
        Ok(())
    }
}

/// A part of a segment.
enum SegmentPart<'a> {
    Begin(u32, &'a Arc<File>),
    Record(u32, &'a File, Found),
}

fn summary_of(name: &str, slots: &Slots) -> SlotsSummary {
    let places = slots.places(name);
    let bytes = places.iter().map(|(_, place, _)| place.len).sum();
    SlotsSummary { name: name.to_owned(), count: places.len() as u64, bytes }
}

/// Returns the folders in this one that are journals, in ascending order.
///
/// # Errors
/// That of the system, if the folder can't be listed. A folder that is missing has none.
pub fn journals(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let files = match std::fs::read_dir(folder) {
        Ok(files) => files,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for file in files {
        let path = file?.path();
        if Folder::open(&path).is_ok_and(|folder| is_journal(&folder)) {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A copy may lack the lock. A journal without records has nothing else.
fn is_journal(folder: &Folder) -> bool {
    folder.path().join(lock::FILE).is_file() || folder.has_segments()
}
