//! The state of actors, rings and queues that outlives the program: slots of a journal.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use fiber_core::{Error, Result};
use fiber_journal::{Claim, Entry, Journal, Journals, Recorder, Store};
use fiber_values::blob::{Blob, Blobs};
use fiber_values::codec::EncodedValue;
use parking_lot::Mutex;

use crate::runtime::Runtime;

/// The kinds of durable objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// The state of a managed actor: its last snapshot.
    Actor,
    /// The checkpoints of a ring's ranks.
    Ring,
    /// The elements of a queue.
    Queue,
    /// The states of actors by key, and their reminders.
    Entities,
}

impl ObjectKind {
    /// Returns the word for an object, and the option that makes it durable.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            ObjectKind::Actor => ("actor", "ManagerBuilder::durable"),
            ObjectKind::Ring => ("ring", "RingBuilder::durable"),
            ObjectKind::Queue => ("queue", "QueueBuilder::durable"),
            ObjectKind::Entities => ("entities", "EntitiesBuilder::durable"),
        }
    }

    /// Returns the error of an object that can't be durable.
    pub fn refused(self, problem: impl Into<String>) -> Error {
        Error::invalid(self.words().1, problem)
    }
}

/// The part of a journal that belongs to one durable object.
pub struct DurableState {
    store: Arc<Store>,
    name: String,
    claim: Mutex<Option<Claim>>,
}

/// A change of slots.
pub enum Change {
    /// Sets the value of a slot, whether or not it has one.
    Put {
        /// The name of the slots: [`DurableState::slots`] or [`DurableState::slots_of`].
        slots: Arc<str>,
        /// The number of the slot among those of this name.
        slot: u64,
        /// The new value.
        value: EncodedValue,
    },
    /// Removes the value of a slot.
    Remove {
        /// The name of the slots, as for [`Put`](Change::Put).
        slots: Arc<str>,
        /// The number of the slot among those of this name.
        slot: u64,
    },
}

impl DurableState {
    /// Opens the part of an object that at most one object of the program may have at a time.
    ///
    /// # Errors
    /// [`Error::Invalid`] outside of the head, without a usable name, or if another object has it;
    /// [`Error::Journal`].
    pub fn open(
        runtime: &Runtime,
        journal: &Journal,
        kind: ObjectKind,
        name: Option<&str>,
    ) -> Result<DurableState> {
        let state = DurableState::open_shared(runtime, journal, kind, name)?;
        // An earlier object of the name may have changes on their way.
        state.store.flush();
        *state.claim.lock() = Some(state.store.claim(&state.name).ok_or_else(|| {
            let ((word, _), name) = (kind.words(), name.unwrap_or_default());
            kind.refused(format!(
                "the program has a durable {word} `{name}` in journal `{}` already: give this one \
                 another name, or end the other one first",
                state.store.path().display()
            ))
        })?);
        Ok(state)
    }

    /// Opens the next of the parts that objects of this name have one after the other.
    ///
    /// # Errors
    /// As [`open`](DurableState::open).
    pub fn open_next(
        runtime: &Runtime,
        journal: &Journal,
        kind: ObjectKind,
        name: Option<&str>,
    ) -> Result<DurableState> {
        let mut state = DurableState::open_shared(runtime, journal, kind, name)?;
        state.name = format!("{}#{}", state.name, state.store.next_number(&state.name));
        Ok(state)
    }

    fn open_shared(
        runtime: &Runtime,
        journal: &Journal,
        kind: ObjectKind,
        name: Option<&str>,
    ) -> Result<DurableState> {
        let (word, _) = kind.words();
        if !runtime.is_head() {
            return Err(kind.refused(format!(
                "only the program's first process can have a durable {word}: make it there, and \
                 pass what this process needs of it"
            )));
        }
        let Some(name) = name else {
            return Err(kind.refused(format!(
                "a durable {word} needs a name, by which it is found again: set it with `name`"
            )));
        };
        if name.is_empty() || name.contains(SEPARATORS) {
            return Err(kind.refused(format!(
                "`{name}` can't be the name of a durable {word}: it must not be empty, nor contain \
                 `/`, `@` or `#`"
            )));
        }
        if let Some(call) = journal.call_name() {
            return Err(kind.refused(format!(
                "`Journal::call` names calls of a pool (here `{call}`); a {word} has its own name"
            )));
        }
        let name = match journal.version_name() {
            "" => format!("{word}/{name}"),
            version => format!("{word}/{name}@{version}"),
        };
        let journals: &Journals = runtime.part();
        let store = journals.open(&journal.path(runtime.config())?, journal)?;
        Ok(DurableState { store, name, claim: Mutex::default() })
    }

    /// Lets another object have the name, although changes of this one may be on their way.
    pub fn release(&self) {
        self.claim.lock().take();
    }

    /// Returns the name of the object's slots.
    pub fn slots(&self) -> Arc<str> {
        self.name.as_str().into()
    }

    /// Returns the name of the slots of a part of the object.
    pub fn slots_of(&self, part: impl std::fmt::Display) -> Arc<str> {
        format!("{}/{part}", self.name).into()
    }

    /// Returns the names of slots that begin with this and have values, in no order.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        self.store.slot_names(prefix)
    }

    /// Returns the folder of the journal.
    pub fn journal(&self) -> &Path {
        self.store.path()
    }

    /// Returns the folder of the journal, for messages.
    pub fn journal_name(&self) -> String {
        self.journal().display().to_string()
    }

    /// Returns the values of slots, by their numbers in ascending order.
    pub fn read(&self, slots: &str) -> Result<Vec<(u64, EncodedValue)>> {
        let value = |(slot, bytes, blobs): (u64, Bytes, Vec<Bytes>)| {
            let blobs = blobs.into_iter().map(Blob::private).collect::<Vec<_>>();
            (slot, EncodedValue { bytes, blobs: Blobs::from(blobs) })
        };
        Ok(self.store.slots(slots)?.into_iter().map(value).collect())
    }

    /// Records changes together, after all earlier ones. `then` runs on the journal's thread when
    /// they are on the disk, or with the error that prevented it.
    pub fn record(&self, changes: Vec<Change>, then: impl FnOnce(Result<()>) + Send + 'static) {
        self.store.record(Box::new(Changes { changes, then }));
    }

    /// Returns the error of a state that doesn't fit the program.
    pub fn unusable(&self, problem: impl Into<String>) -> Error {
        let cause: Box<dyn std::error::Error + Send + Sync> =
            format!("{}: {}", self.name, problem.into()).into();
        Error::Journal { journal: self.store.path().to_path_buf(), cause: cause.into() }
    }
}

/// The characters that separate the parts of a slot's name.
const SEPARATORS: [char; 3] = ['/', '@', '#'];

/// Changes of slots as one entry.
struct Changes<F> {
    changes: Vec<Change>,
    then: F,
}

impl<F: FnOnce(Result<()>) + Send> Entry for Changes<F> {
    fn record(&self, recorder: &mut Recorder<'_>) {
        for change in &self.changes {
            match change {
                Change::Put { slots, slot, value } => {
                    let blobs: Vec<&[u8]> = value.blobs.iter().map(|blob| &**blob).collect();
                    recorder.put(slots, *slot, &value.bytes, &blobs);
                }
                Change::Remove { slots, slot } => recorder.remove(slots, *slot),
            }
        }
    }

    fn recorded(self: Box<Self>, result: Result<()>) {
        (self.then)(result);
    }
}
