//! Entities of a journal, also of a program that has ended.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::bail;
use bytes::Bytes;
use fiber_core::inspect::{EntityKey, EntityKeys, EntityRecord, RecordedReminder, RecordedValue};
use fiber_core::nearest;
use fiber_journal::Reader;
use fiber_values::blob::{Blob, Blobs};
use fiber_values::codec::{self, EncodedValue};
use serde::Deserialize;

use super::Listed;
use crate::journal::folder;

/// The beginning of the slots of entities. Their name follows, and then the part.
const PREFIX: &str = "entities/";
/// The part that a key follows. Slot 0 is its snapshot, and the others are its events.
const KEY: &str = "key/";
/// The part of all reminders.
const REMINDERS: &str = "reminders";

/// The entities of a journal.
pub(super) struct Recorded {
    reader: Reader,
    /// The number of keys, by the names of the entities.
    names: BTreeMap<String, u64>,
}

/// A reminder as it is recorded.
#[derive(Deserialize)]
struct Reminder {
    key: String,
    name: String,
    /// In milliseconds since 1970.
    due: u64,
    every: Option<u64>,
}

impl Recorded {
    pub(super) fn open(journal: &Path) -> anyhow::Result<Recorded> {
        let reader = Reader::open(&folder(journal)?)?;
        let mut names = BTreeMap::<_, u64>::new();
        for slots in reader.summary()?.slots {
            if let Some((name, part)) = parts(&slots.name) {
                *names.entry(name.into()).or_default() += u64::from(part.starts_with(KEY));
            }
        }
        Ok(Recorded { reader, names })
    }

    pub(super) fn list(&self) -> anyhow::Result<Vec<Listed>> {
        let journal = self.reader.path();
        let listed = |(name, keys): (&String, &u64)| Listed {
            name: name.clone(),
            of: None,
            session: None,
            processes: None,
            live: None,
            recorded: Some(*keys),
            journal: Some(journal.to_path_buf()),
        };
        Ok(self.names.iter().map(listed).collect())
    }

    pub(super) fn keys(&self, name: &str, prefix: &str, limit: u64) -> anyhow::Result<EntityKeys> {
        let mut keys = self.records(name, |key| key.starts_with(prefix))?.into_values();
        let shown = keys.by_ref().take(limit as usize).map(|record| record.of).collect();
        Ok(EntityKeys { keys: shown, more: keys.len() as u64 })
    }

    pub(super) fn record(&self, name: &str, key: &str) -> anyhow::Result<EntityRecord> {
        Ok(self.records(name, |known| known == key)?.remove(key).unwrap_or_default())
    }

    /// Returns the records of the chosen keys.
    fn records(
        &self,
        name: &str,
        is_chosen: impl Fn(&str) -> bool,
    ) -> anyhow::Result<BTreeMap<String, EntityRecord>> {
        if !self.names.contains_key(name) {
            let hint = match nearest(name, self.names.keys().map(String::as_str)) {
                Some(other) => format!("did you mean `{other}`?"),
                None => "`fiber entities list --journal` lists those of a journal".into(),
            };
            bail!("journal `{}` has no entities `{name}`: {hint}", self.reader.path().display());
        }
        let mut records = BTreeMap::<String, EntityRecord>::new();
        self.reader.slots(|slots, (slot, bytes, blobs)| {
            let Some((_, part)) = parts(slots).filter(|(of, _)| *of == name) else { return Ok(()) };
            if part == REMINDERS {
                let reminder: Reminder = decode(&bytes, &blobs)?;
                if is_chosen(&reminder.key) {
                    let record = records.entry(reminder.key.clone()).or_default();
                    record.reminders.push(reminder.into());
                }
            }
            let Some(key) = part.strip_prefix(KEY).filter(|key| is_chosen(key)) else {
                return Ok(());
            };
            let record = records.entry(key.into()).or_default();
            if slot == 0 {
                let (number, state): (u64, EncodedValue) = decode(&bytes, &blobs)?;
                let blobs = state.blobs.iter().map(|blob| blob.to_vec()).collect();
                let bytes = state.bytes.to_vec();
                record.snapshot = Some(RecordedValue { number, bytes, blobs });
            } else {
                let blobs = blobs.iter().map(|blob| blob.to_vec()).collect();
                let event = RecordedValue { number: slot, bytes: bytes.to_vec(), blobs };
                record.events.push(event);
            }
            Ok(())
        })?;
        for (key, record) in &mut records {
            record.reminders.sort_by(|one, other| one.name.cmp(&other.name));
            record.of = described(key, record);
        }
        Ok(records)
    }
}

fn described(key: &str, record: &EntityRecord) -> EntityKey {
    let snapshot = record.snapshot.as_ref();
    let last = record.events.last().or(snapshot);
    EntityKey {
        key: key.into(),
        last_event: last.map_or(0, |last| last.number),
        events: record.events.len() as u64,
        has_snapshot: snapshot.is_some(),
        reminders: record.reminders.len() as u64,
        ..EntityKey::default()
    }
}

/// Returns the name of the entities to which slots belong, and the part.
fn parts(slots: &str) -> Option<(&str, &str)> {
    slots.strip_prefix(PREFIX)?.split_once('/')
}

fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8], blobs: &[Bytes]) -> fiber_core::Result<T> {
    let blobs: Vec<_> = blobs.iter().cloned().map(Blob::private).collect();
    codec::decode_with(bytes, &Blobs::from(blobs))
}

impl From<Reminder> for RecordedReminder {
    fn from(Reminder { name, due, every, .. }: Reminder) -> RecordedReminder {
        let due = UNIX_EPOCH + Duration::from_millis(due);
        RecordedReminder { name, due, every: every.map(|every| every as f64 / 1000.0) }
    }
}
