//! Actors in the process of a child, which the tree shows below the child.

use std::fmt;
use std::sync::Arc;

use fiber_core::ExitReason;
use fiber_core::stats::EventKind;

use super::start::{ChildContext, Within};
use super::tree::{ChildKind, ChildState, Entry, EntryId};
use fiber_runtime::events::emit;

/// The place of a child in the tree, for the actors that run in its process.
#[derive(Clone, Debug)]
pub struct TreePlace {
    entry: EntryId,
    path: Arc<str>,
}

impl ChildContext {
    /// Returns the child's place in the tree, which all incarnations have.
    #[doc(hidden)]
    pub fn tree_place(&self) -> TreePlace {
        TreePlace { entry: self.entry, path: self.path().into() }
    }
}

impl TreePlace {
    /// Shows an actor in the child's process, until the value is dropped. `names` returns its
    /// registered names, and must not read the tree.
    pub fn add(
        &self,
        name: &str,
        names: impl Fn() -> Vec<String> + Send + Sync + 'static,
    ) -> Inside {
        let entry = Entry::new(Some(self.entry), name, ChildKind::Actor);
        entry.update(|data| data.names = Some(Arc::new(names)));
        Inside { entry, parent: Arc::clone(&self.path), name: name.into() }
    }
}

/// An actor in the process of a child, in the tree.
pub struct Inside {
    entry: Entry,
    parent: Arc<str>,
    name: Box<str>,
}

impl Inside {
    /// Shows that the actor has started with its process.
    pub fn started(&self) {
        self.entry.update(|data| {
            data.incarnation += 1;
            data.enter(ChildState::Running);
        });
    }

    /// Shows that the actor has ended with its process.
    pub fn ended(&self, reason: ExitReason) {
        self.entry.update(|data| data.note_within(Within::Failed(reason)));
    }

    /// Announces that the actor has ended for good, if it has failed too often.
    pub fn ended_for_good(&self, reason: &ExitReason) {
        if let ExitReason::IntensityReached { .. } = reason {
            emit(EventKind::GaveUp { child: self.path(), reason: reason.clone() });
        }
    }

    fn path(&self) -> String {
        format!("{}/{}", self.parent, self.name)
    }

    /// Shows and announces what has happened to the actor in its process.
    pub fn note(&self, event: Within) {
        let is_restart = matches!(event, Within::Restarted);
        self.entry.update(|data| data.note_within(event));
        if is_restart {
            announce_restart(self.path(), &self.entry);
        }
    }
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inside").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Emits the event that a child is restarted.
pub(super) fn announce_restart(child: String, entry: &Entry) {
    let reason = entry.last_exit().unwrap_or(ExitReason::Shutdown);
    emit(EventKind::ChildRestarted { child, names: entry.names(), reason });
}
