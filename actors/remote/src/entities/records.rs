//! The records of entities, at their coordinator: in memory, or in a journal.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use fiber_core::{Error, Result};
use fiber_runtime::durable::{Change, DurableState};
use fiber_runtime::mesh::CallFailure;
use fiber_values::codec::EncodedValue;
use tokio::sync::oneshot;

use super::reminders::Entry;
use super::wire::{Record, RecordChange, failure};

/// The slot of a key's snapshot. Those of its events have their numbers, from 1.
const SNAPSHOT: u64 = 0;
/// The slots of all reminders.
const REMINDERS: &str = "reminders";

/// See the module's documentation.
pub(super) enum Records {
    Memory(RefCell<HashMap<String, Record>>),
    Journal(DurableState),
}

impl Records {
    pub(super) fn new(durable: Option<DurableState>) -> Records {
        durable.map_or_else(|| Records::Memory(RefCell::default()), Records::Journal)
    }

    /// Returns the keys that have a record and begin with this.
    pub(super) fn keys(&self, prefix: &str) -> BTreeSet<String> {
        match self {
            Records::Memory(records) => {
                let records = records.borrow();
                records.keys().filter(|key| key.starts_with(prefix)).cloned().collect()
            }
            Records::Journal(state) => {
                let slots = slots_of(state, prefix);
                let before = slots.len() - prefix.len();
                state.names(&slots).into_iter().map(|slots| slots[before..].into()).collect()
            }
        }
    }

    /// Returns the journal, if it is one.
    pub(super) fn journal(&self) -> Option<PathBuf> {
        match self {
            Records::Memory(_) => None,
            Records::Journal(state) => Some(state.journal().to_path_buf()),
        }
    }

    /// Returns the record of a key.
    pub(super) fn load(&self, key: &str) -> Result<Record, CallFailure> {
        match self {
            Records::Memory(records) => Ok(records.borrow().get(key).cloned().unwrap_or_default()),
            Records::Journal(state) => read(state, key).map_err(|error| failure(&error)),
        }
    }

    /// Changes records. The returned future is ready when the changes count.
    pub(super) fn write(
        &self,
        changes: Vec<RecordChange>,
    ) -> impl Future<Output = Result<(), CallFailure>> + 'static {
        let written = match self {
            Records::Memory(records) => {
                let records = &mut *records.borrow_mut();
                changes.into_iter().for_each(|change| apply(records, change));
                None
            }
            Records::Journal(state) => {
                let mut slots = Vec::with_capacity(changes.len());
                changes.into_iter().for_each(|change| add_slots(state, change, &mut slots));
                Some(record(state, slots))
            }
        };
        recorded(written)
    }

    /// Records a reminder under its number, or that there is none any more.
    pub(super) fn remind(
        &self,
        number: u64,
        reminder: Option<&Entry>,
    ) -> impl Future<Output = Result<(), CallFailure>> + 'static {
        let written = match self {
            Records::Memory(_) => None,
            Records::Journal(state) => {
                let slots = state.slots_of(REMINDERS);
                let change = match reminder.map(EncodedValue::new).transpose() {
                    Ok(Some(value)) => Change::Put { slots, slot: number, value },
                    Ok(None) => Change::Remove { slots, slot: number },
                    Err(error) => unreachable!("a reminder can be encoded: {error}"),
                };
                Some(record(state, vec![change]))
            }
        };
        recorded(written)
    }

    /// Returns the recorded reminders, by their numbers.
    pub(super) fn reminders(&self) -> Result<Vec<(u64, Entry)>> {
        let Records::Journal(state) = self else { return Ok(Vec::new()) };
        let recorded = state.read(&state.slots_of(REMINDERS))?;
        recorded.into_iter().map(|(number, value)| Ok((number, value.decode()?))).collect()
    }

    /// Waits until all changes up to now count.
    pub(super) fn settled(&self) -> impl Future<Output = Result<(), CallFailure>> + 'static {
        self.write(Vec::new())
    }

    /// Lets other entities have the name.
    pub(super) fn release(&self) {
        if let Records::Journal(state) = self {
            state.release();
        }
    }
}

fn apply(records: &mut HashMap<String, Record>, change: RecordChange) {
    match change {
        RecordChange::Event(key, number, event) => {
            records.entry(key).or_default().events.push((number, event));
        }
        RecordChange::Snapshot { key, number, state, .. } => {
            let record = records.entry(key).or_default();
            record.events.retain(|(event, _)| *event > number);
            record.snapshot = Some((number, state));
        }
    }
}

fn add_slots(state: &DurableState, change: RecordChange, changes: &mut Vec<Change>) {
    match change {
        RecordChange::Event(key, number, event) => {
            changes.push(Change::Put { slots: slots_of(state, &key), slot: number, value: event });
        }
        RecordChange::Snapshot { key, from, number, state: snapshot } => {
            let slots = slots_of(state, &key);
            let value = EncodedValue::new(&(number, &snapshot)).expect("it is encoded already");
            changes.push(Change::Put { slots: slots.clone(), slot: SNAPSHOT, value });
            let remove = |slot| Change::Remove { slots: slots.clone(), slot };
            changes.extend((from..=number).map(remove));
        }
    }
}

fn slots_of(state: &DurableState, key: &str) -> std::sync::Arc<str> {
    state.slots_of(format_args!("key/{key}"))
}

fn read(state: &DurableState, key: &str) -> Result<Record> {
    let mut slots = state.read(&slots_of(state, key))?.into_iter().peekable();
    let snapshot = slots.next_if(|(slot, _)| *slot == SNAPSHOT);
    let snapshot = snapshot.map(|(_, value)| value.decode()).transpose()?;
    Ok(Record { snapshot, events: slots.collect() })
}

fn record(state: &DurableState, changes: Vec<Change>) -> oneshot::Receiver<Result<()>> {
    let (done, answer) = oneshot::channel();
    state.record(changes, |result| drop(done.send(result)));
    answer
}

/// Waits until the journal has recorded changes. Without a journal, changes count at once.
async fn recorded(answer: Option<oneshot::Receiver<Result<()>>>) -> Result<(), CallFailure> {
    let Some(answer) = answer else { return Ok(()) };
    let ended = |_| Err(Error::system("recording failed", "the journal's thread has ended"));
    answer.await.unwrap_or_else(ended).map_err(|error| failure(&error))
}
