//! The journals that a session has open.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use fiber_core::Result;
use parking_lot::{Condvar, Mutex};

use crate::folder::Folder;
use crate::format::Limits;
use crate::names::Names;
use crate::{Journal, Store};

/// The open journals of a session, and the names that the session uses in each.
#[derive(Default)]
pub struct Journals {
    /// By what identifies their folders.
    opened: Mutex<HashMap<(u64, u64), Opened>>,
}

/// A journal that was opened. Its names outlive the store: the next one of the session continues
/// their numbers.
struct Opened {
    path: PathBuf,
    store: Weak<Store>,
    /// Set for a journal that stays open.
    kept: Option<Arc<Store>>,
    ended: Arc<Ended>,
    names: Arc<Names>,
}

/// Whether a store's thread has ended, and with it its lock.
#[derive(Default)]
pub(crate) struct Ended {
    has_ended: Mutex<bool>,
    changed: Condvar,
}

impl Ended {
    pub(crate) fn set(&self) {
        *self.has_ended.lock() = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut has_ended = self.has_ended.lock();
        while !*has_ended {
            self.changed.wait(&mut has_ended);
        }
    }
}

impl Journals {
    /// Opens the journal in this folder, or returns the store that the session has open there.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(&self, path: &Path, options: &Journal) -> Result<Arc<Store>> {
        let store = self.store(Arc::new(Folder::create(path)?))?;
        store.apply(options);
        Ok(store)
    }

    /// Works as [`open`](Journals::open), and keeps the journal open until the session ends.
    /// Otherwise the order of calls, and which outcomes were taken, would depend on the moment at
    /// which the last handle is dropped.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_for_calls(&self, path: &Path, options: &Journal) -> Result<Arc<Store>> {
        let store = self.open(path, options)?;
        let mut opened = self.opened.lock();
        let same = |opened: &&mut Opened| opened.store.as_ptr() == Arc::as_ptr(&store);
        if let Some(opened) = opened.values_mut().find(same) {
            opened.kept.get_or_insert_with(|| Arc::clone(&store));
        }
        drop(opened);
        Ok(store)
    }

    /// Closes the journals that [`open_for_calls`](Journals::open_for_calls) keeps open.
    pub fn close(&self) {
        let kept: Vec<_> =
            self.opened.lock().values_mut().map(|opened| opened.kept.take()).collect();
        // Without the lock: it waits until all entries are recorded.
        drop(kept);
    }

    /// Frees the locks of all journals, as the end of a process does, although it has handles of
    /// them: nothing more is recorded.
    #[cfg(feature = "simulation")]
    pub fn abandon(&self) {
        for opened in self.opened.lock().values() {
            if let Some(store) = opened.store.upgrade() {
                store.close();
            }
            // One without users may be writing its last entries.
            opened.ended.wait();
        }
    }

    fn store(&self, folder: Arc<Folder>) -> Result<Arc<Store>> {
        let (identity, path) = (folder.identity()?, folder.path().to_path_buf());
        let mut all = self.opened.lock();
        let mut names = Arc::default();
        if let Some(opened) = all.get(&identity) {
            if let Some(store) = opened.store.upgrade() {
                return Ok(store);
            }
            // Its last user has dropped it. It may be writing the last entries.
            opened.ended.wait();
            if opened.path == path {
                names = Arc::clone(&opened.names);
            }
        }
        let ended = Arc::new(Ended::default());
        let limits = Limits::default();
        let store = Store::new(folder, limits, Arc::clone(&ended), Arc::clone(&names))?;
        let weak = Arc::downgrade(&store);
        all.insert(identity, Opened { path, store: weak, kept: None, ended, names });
        Ok(store)
    }
}

impl fmt::Debug for Journals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journals").finish_non_exhaustive()
    }
}
