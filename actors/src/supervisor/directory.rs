//! Where a supervisor's references find its children, from any thread.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use fiber_core::{Error, Result};
use parking_lot::RwLock;

use super::identity::Identity;
use super::spec::ChildSpec;

#[derive(Default)]
pub(super) struct Directory(RwLock<HashMap<String, Listed>>);

#[derive(Clone)]
pub(super) struct Listed {
    pub(super) identity: Arc<Identity>,
    pub(super) handle: Option<Arc<dyn Any + Send + Sync>>,
}

impl Directory {
    pub(super) fn list(&self, spec: &ChildSpec) {
        let listed = Listed { identity: spec.identity.clone(), handle: spec.start.lock().handle() };
        self.0.write().insert(spec.name().into(), listed);
    }

    pub(super) fn strike(&self, name: &str) {
        self.0.write().remove(name);
    }

    pub(super) fn find(&self, owner: &str, name: &str) -> Result<Listed> {
        self.0.read().get(name).cloned().ok_or_else(|| unknown(owner, name))
    }
}

pub(super) fn unknown(owner: &str, name: &str) -> Error {
    Error::invalid("SupervisorRef::child", format!("supervisor `{owner}` has no child `{name}`"))
}
