//! Durable calls: outcomes are recorded in a journal before the caller gets them.
//!
//! The [feeder](super::feeder) looks up each task before it submits it. A recorded outcome goes to
//! the exchange at once ([`recorded`]). The keys of all other tasks stay with the exchange
//! ([`task_keys`]) until the scheduler completes them: their outcomes then go to the journal, and
//! from there to the caller ([`recording`]). A task that takes outputs of others is looked up when
//! these are there ([`held`]).

mod held;
mod recorded;
mod recording;
mod task_keys;

use std::any::type_name;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use fiber_core::{Error, Meta, Result};
use fiber_journal::{CallForm, CallFunction, CallKeys, Journal, Journals, Outcome, Store, TaskKey};
use fiber_values::blob::Blobs;
use fiber_values::codec::EncodedValue;
use fiber_values::{Parts, TypedEntry};
use parking_lot::Mutex;

use self::recorded::Recorded;
use self::task_keys::TaskKeys;
use super::exchange::Exchange;
use super::state::{Cancellation, PoolState};

/// Describes the function of a call, as its journal knows it.
pub(super) fn called<A, T>(function: &TypedEntry<A, T>, form: CallForm) -> CallFunction {
    let signature = format!("{} -> {}", function.entry.name(), type_name::<T>());
    CallFunction { signature, id: function.function, form }
}

/// The journal of a pool's handle, which its first call opens.
pub(super) struct JournalOption {
    journal: Journal,
    open: OnceLock<Arc<Store>>,
}

impl fmt::Debug for JournalOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.journal.fmt(f)
    }
}

impl JournalOption {
    pub(super) fn new(journal: Journal) -> JournalOption {
        JournalOption { journal, open: OnceLock::new() }
    }

    /// Begins a call.
    ///
    /// # Errors
    /// [`Error::Journal`] if the journal can't be opened; [`Error::Invalid`] outside of the
    /// session's first process, or if the call can't be identified.
    pub(super) fn begin(
        &self,
        pool: &Arc<PoolState>,
        function: &CallFunction,
        meta: Meta,
    ) -> Result<Arc<DurableCall>> {
        if !pool.runtime.is_head() {
            return Err(Error::invalid(
                "Pool::durable",
                "only the program's first process makes durable calls, and this is a process that \
                 it has started: record the call there whose task makes this one",
            ));
        }
        let store = match self.open.get() {
            Some(store) => store,
            None => {
                let path = self.journal.path(pool.runtime.config())?;
                let journals: &Journals = pool.runtime.part();
                let opened = journals.open_for_calls(&path, &self.journal)?;
                self.open.get_or_init(|| opened)
            }
        };
        let id = store.begin_call(&self.journal, function)?;
        Ok(Arc::new(DurableCall {
            id,
            call_keys: store.keys(id),
            store: Arc::clone(store),
            journal: store.path().display().to_string().into(),
            keeps_failures: self.journal.keeps_failures(),
            keys: TaskKeys::default(),
            recorded: Mutex::default(),
            delivered: AtomicU64::new(0),
            pool: Arc::downgrade(pool),
            meta,
        }))
    }
}

/// The journal's part in a call: it records the call's outcomes.
pub(super) struct DurableCall {
    store: Arc<Store>,
    /// The journal's folder, for messages.
    pub(super) journal: Arc<str>,
    id: fiber_journal::CallId,
    call_keys: CallKeys,
    keeps_failures: bool,
    /// The keys of tasks that were submitted and are not completed.
    keys: TaskKeys,
    /// Recorded outcomes that were not delivered yet.
    recorded: Mutex<Recorded>,
    /// How many recorded outcomes were delivered.
    delivered: AtomicU64,
    pool: Weak<PoolState>,
    /// The resources of the workers, which start with the first task that has to run.
    pub(super) meta: Meta,
}

impl DurableCall {
    /// Returns the key of a task with these encoded arguments.
    pub(super) fn key(&self, arguments: &[u8], blobs: &Blobs) -> TaskKey {
        self.call_keys.key(arguments, blobs.iter().map(|blob| &**blob))
    }

    /// Returns the key of a task that takes outputs of others, which are there.
    fn key_of_parts(&self, parts: &Parts) -> Result<TaskKey> {
        let digest = |value: &EncodedValue| {
            fiber_journal::digest(&value.bytes, value.blobs.iter().map(|blob| &**blob))
        };
        Ok(self.call_keys.key_of_parts(&parts.identity(digest)?))
    }

    /// Takes the recorded outcome of a task.
    pub(super) fn find(&self, key: TaskKey) -> Result<Option<Outcome>> {
        self.store.take(key, self.keeps_failures)
    }

    /// Returns the error of an outcome that can't be read.
    #[cold]
    pub(super) fn unreadable(&self, error: Error) -> Error {
        error.recorded(Some(&self.journal))
    }

    /// Returns how many recorded outcomes were delivered.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }
}

impl Exchange {
    /// Notes the keys of consecutive tasks of a durable call, before they are submitted.
    pub(super) fn note_keys(&self, first: u64, keys: Vec<TaskKey>) {
        if let Some(call) = &self.durable {
            call.keys.insert(first, keys);
        }
    }
}

/// Ends a call whose tasks can no more be fed or recorded.
pub(super) fn break_off(pool: &PoolState, exchange: &Exchange, error: Error) {
    exchange.deliver_waiting();
    pool.cancel(exchange.id, Cancellation::LetFinish);
    exchange.end(error);
}
