//! The children of a supervisor, for its references on any thread.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use fiber_core::{Error, Result};
use parking_lot::RwLock;

use super::identity::Identity;
use super::spec::ChildSpec;

#[derive(Default)]
pub(super) struct Directory(RwLock<HashMap<String, DirectoryEntry>>);

#[derive(Clone)]
pub(super) struct DirectoryEntry {
    pub(super) identity: Arc<Identity>,
    pub(super) handle: Option<Arc<dyn Any + Send + Sync>>,
}

impl Directory {
    pub(super) fn insert(&self, spec: &ChildSpec) {
        let handle = spec.start.lock().handle();
        let entry = DirectoryEntry { identity: spec.identity.clone(), handle };
        self.0.write().insert(spec.name().into(), entry);
    }

    pub(super) fn remove(&self, name: &str) {
        self.0.write().remove(name);
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
