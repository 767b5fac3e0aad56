//! An open journal.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use fiber_core::Result;
use parking_lot::Mutex;

use crate::blocks::Blocks;
use crate::call::Calls;
use crate::committer::{self, Queue};
use crate::folder::Folder;
use crate::format::Limits;
use crate::index::Index;
use crate::lock::Lock;
use crate::names::Names;
use crate::recorder::Entry;
use crate::registry::Ended;
use crate::slots::{self, Slots};
use crate::{CallFunction, CallId, CallKeys, CallLabel, Claim, Journal, Outcome, TaskKey, opening};

/// A slot's number, its last value and the value's blobs.
pub type SlotValue = (u64, Bytes, Vec<Bytes>);

/// An open journal. At most one process has it open at a time.
pub struct Store {
    folder: Arc<Folder>,
    calls: Arc<Calls>,
    recorded: Mutex<(Index, Blocks)>,
    slots: Arc<Mutex<Slots>>,
    queue: Arc<Queue>,
    names: Arc<Names>,
    thread: Option<JoinHandle<()>>,
}

impl Store {
    /// Opens the journal in this folder, beside those of any session. A torn end is cut off. If
    /// this process can't write there, the journal gives what is recorded, and an entry that is to
    /// be recorded fails.
    ///
    /// # Errors
    /// [`fiber_core::Error::Journal`] if the folder can't be used, if another process or session
    /// has the journal open, or if it is damaged.
    pub fn open(path: &Path, options: &Journal) -> Result<Arc<Store>> {
        Store::open_with(path, options, Limits::default())
    }

    pub(crate) fn open_with(path: &Path, options: &Journal, limits: Limits) -> Result<Arc<Store>> {
        let folder = Arc::new(Folder::create(path)?);
        let store = Store::new(folder, limits, Arc::default(), Arc::default())?;
        store.apply(options);
        Ok(store)
    }

    /// Records with sync from now on, if the options say so.
    pub(crate) fn apply(&self, options: &Journal) {
        if options.is_synced {
            self.queue.require_sync();
        }
    }

    pub(crate) fn new(
        folder: Arc<Folder>,
        limits: Limits,
        ended: Arc<Ended>,
        names: Arc<Names>,
    ) -> Result<Arc<Store>> {
        let lock = Lock::take(&folder)?;
        let opened = opening::open(&folder, limits, lock.refusal(&folder))?;
        let queue = Arc::new(Queue::default());
        let thread = std::thread::Builder::new().name("fiber-journal".into()).spawn({
            let queue = Arc::clone(&queue);
            move || {
                committer::run(&queue, opened.writer);
                drop(lock);
                ended.set();
            }
        });
        let thread =
            thread.map_err(|error| folder.refusal("start a thread for", folder.path(), error))?;
        Ok(Arc::new(Store {
            calls: opened.calls,
            recorded: Mutex::new((opened.index, Blocks::new(&folder))),
            slots: opened.slots,
            queue,
            names,
            thread: Some(thread),
            folder,
        }))
    }

    /// Returns the journal's folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Begins the next call of a function, as the options name it.
    ///
    /// # Errors
    /// [`fiber_core::Error::Invalid`] if another function has the call's name, or if the name is
    /// one of fiber's own.
    pub fn begin_call(&self, options: &Journal, function: &CallFunction) -> Result<CallId> {
        let name = self.names.of_call(options.call_name(), function)?;
        let (function, version) = (function.signature.clone(), options.version_name().to_string());
        Ok(self.call(&CallLabel { name, function, version }))
    }

    /// Claims the name of an object, unless another object of the session has it.
    pub fn claim(&self, name: &str) -> Option<Claim> {
        self.names.claim(name)
    }

    /// Returns the number, from 0, of the next of the session's objects that have a name one after
    /// the other.
    pub fn next_number(&self, name: &str) -> u64 {
        self.names.next_number(name)
    }

    /// Returns the id of a call, which it gets with its first record.
    pub fn call(&self, label: &CallLabel) -> CallId {
        self.calls.id(label)
    }

    /// Returns what makes the keys of a call's tasks.
    ///
    /// # Panics
    /// If the call has no id of this store.
    pub fn keys(&self, call: CallId) -> CallKeys {
        CallKeys(self.calls.get(call).expect("the store has given the id"))
    }

    /// Takes a recorded outcome of a task with this key, which no task has taken since the journal
    /// was opened. Failures are taken if `failures` is set, after all results.
    ///
    /// # Errors
    /// [`fiber_core::Error::Journal`] if the outcome can't be read.
    pub fn take(&self, key: TaskKey, failures: bool) -> Result<Option<Outcome>> {
        let (index, blocks) = &mut *self.recorded.lock();
        let place = index.take(key, failures);
        place.map(|(segment, offset)| blocks.outcome(segment, offset)).transpose()
    }

    /// Records an entry, together with others.
    pub fn record(&self, entry: Box<dyn Entry>) {
        self.queue.push(entry);
    }

    /// Returns the names that begin with this and have slots, in no order.
    pub fn slot_names(&self, prefix: &str) -> Vec<String> {
        let slots = self.slots.lock();
        slots.names().filter(|name| name.starts_with(prefix)).map(str::to_owned).collect()
    }

    /// Returns the slots of a name with their last values, in ascending order.
    ///
    /// # Errors
    /// [`fiber_core::Error::Journal`] if a value can't be read.
    pub fn slots(&self, slots: &str) -> Result<Vec<SlotValue>> {
        let places = self.slots.lock().places(slots);
        let read =
            |(slot, place, file): (_, _, Arc<_>)| slots::read(&self.folder, slot, place, &file);
        places.into_iter().map(read).collect()
    }

    /// Lets the store's thread end when it has recorded all entries.
    #[cfg(feature = "simulation")]
    pub(crate) fn close(&self) {
        self.queue.close();
    }

    /// Blocks until all entries are recorded that were passed to [`record`](Store::record) before.
    pub fn flush(&self) {
        self.queue.flush();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("path", &self.path()).finish_non_exhaustive()
    }
}

impl Drop for Store {
    /// Waits until all entries are recorded.
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take()
            // An entry may hold the last reference.
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
