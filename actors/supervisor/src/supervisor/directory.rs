//! The children of a supervisor, for its references on any thread.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

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
    pub(super) start: Arc<Mutex<dyn Start>>,
}

impl Directory {
    pub(super) fn insert(&self, spec: &ChildSpec) {
        let handle = spec.start.lock().handle();
        let (identity, start) = (spec.identity.clone(), spec.start.clone());
        let entry = DirectoryEntry { identity, handle, start };
        self.0.write().insert(spec.name().into(), entry);
    }

    pub(super) fn remove(&self, name: &str) {
        self.0.write().remove(name);
    }

    /// Returns whether the end of one of the children needs this thread.
    pub(super) fn end_here(&self) -> bool {
        self.0.read().values().any(|child| child.start.lock().ends_here())
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
