//! The journals that this process has open.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use fiber_core::Result;
use parking_lot::{Condvar, Mutex};

use crate::Store;

/// The open stores, by what identifies their folders.
static STORES: Mutex<Option<HashMap<(u64, u64), Open>>> = Mutex::new(None);

struct Open {
    store: Weak<Store>,
    ended: Arc<Ended>,
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

/// Returns the store of a folder, and opens it if this process has not.
pub(crate) fn open(
    identity: (u64, u64),
    open: impl FnOnce(Arc<Ended>) -> Result<Arc<Store>>,
) -> Result<Arc<Store>> {
    let mut stores = STORES.lock();
    let stores = stores.get_or_insert_default();
    if let Some(found) = stores.get(&identity) {
        if let Some(store) = found.store.upgrade() {
            return Ok(store);
        }
        // Its last user has dropped it. It may be writing the last entries.
        found.ended.wait();
    }
    stores.retain(|_, open| open.store.strong_count() > 0 || !*open.ended.has_ended.lock());
    let ended = Arc::new(Ended::default());
    let store = open(Arc::clone(&ended))?;
    stores.insert(identity, Open { store: Arc::downgrade(&store), ended });
    Ok(store)
}
