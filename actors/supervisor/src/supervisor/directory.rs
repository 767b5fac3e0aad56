//! The children of a supervisor, for its references on any thread.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use fiber_core::{Error, Result};
use parking_lot::{Mutex, RwLock};

use super::identity::Identity;
use super::spec::ChildSpec;
use super::start::Start;

#[derive(Default)]
pub(super) struct Directory(RwLock<HashMap<String, DirectoryEntry>>);

#[derive(Clone)]
pub(super) struct DirectoryEntry {
    pub(super) identity: Arc<Identity>,
    pub(super) handle: Option<Arc<dyn Any + Send + Sync>>,
    /// Only the supervisor owns it: it may have an address of this supervisor.
    start: Weak<Mutex<dyn Start>>,
}

impl DirectoryEntry {
    /// Returns whether the child's end needs this thread.
    pub(super) fn ends_here(&self) -> bool {
        self.start.upgrade().is_some_and(|start| start.lock().ends_here())
    }
}

impl Directory {
    pub(super) fn insert(&self, spec: &ChildSpec) {
        let handle = spec.start.lock().handle();
        let (identity, start) = (spec.identity.clone(), Arc::downgrade(&spec.start));
        let entry = DirectoryEntry { identity, handle, start };
        self.0.write().insert(spec.name().into(), entry);
    }

    pub(super) fn remove(&self, name: &str) {
        self.0.write().remove(name);
    }

    /// Returns whether the end of one of the children needs this thread.
    pub(super) fn end_here(&self) -> bool {
        self.0.read().values().any(DirectoryEntry::ends_here)
    }

    /// Finds a child of the supervisor `supervisor`.
    pub(super) fn find(&self, supervisor: &str, name: &str) -> Result<DirectoryEntry> {
        self.0.read().get(name).cloned().ok_or_else(|| unknown(supervisor, name))
    }
}

pub(super) fn unknown(supervisor: &str, name: &str) -> Error {
    let problem = format!("supervisor `{supervisor}` has no child `{name}`");
    Error::invalid("SupervisorRef::child", problem)
}
