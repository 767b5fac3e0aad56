//! A supervisor's state: its children, and what it is doing with them as a whole.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use fiber_core::ExitReason;
use tokio::sync::{mpsc, oneshot};

use super::backoff::Backoff;
use super::child::{Child, Origin, Phase};
use super::directory::Directory;
use super::event::{Event, Key, Timer};
use super::identity::Identity;
use super::intensity::{Failures, Intensity};
use super::spec::ChildSpec;
use super::start::ChildContext;
use super::strategy::Strategy;
use super::tree::{Entry, EntryId};

/// A supervisor: an actix actor that starts, watches, restarts and ends its children.
///
/// Made by [`Supervisor::builder`], used through a [`SupervisorRef`](super::SupervisorRef).
pub struct Supervisor {
    pub(super) identity: Arc<Identity>,
    pub(super) options: Options,
    pub(super) children: BTreeMap<Key, Child>,
    pub(super) names: HashMap<String, Key>,
    pub(super) directory: Arc<Directory>,
    pub(super) entry: EntryId,
    pub(super) doing: Doing,
    pub(super) turns: Turns,
    pub(super) failures: Failures,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) inbox: Rc<RefCell<mpsc::UnboundedReceiver<Event>>>,
    next: u64,
    outcome: Outcome,
}

/// What a supervisor does, but for its children.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) strategy: Strategy,
    pub(super) intensity: Intensity,
    pub(super) backoff: Backoff,
}

/// Why the supervisor ended, once it has.
pub(super) type Outcome = Rc<OnceCell<ExitReason>>;

/// What the supervisor as a whole is doing.
pub(super) enum Doing {
    /// It starts the builder's children; then it says so.
    Launching(oneshot::Sender<()>),
    Working,
    Ending {
        reason: ExitReason,
    },
}

/// Whether children wait for each other to start or to end.
pub(super) enum Turns {
    Idle,
    Busy,
    /// Nothing is started in turn before this ends.
    Paused(Timer),
}

/// How children are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    InTurn,
    AtOnce,
}

impl Supervisor {
    pub(super) fn new(
        child: &ChildContext,
        options: Options,
        specs: impl IntoIterator<Item = ChildSpec>,
        directory: Arc<Directory>,
        launched: oneshot::Sender<()>,
        outcome: Outcome,
    ) -> Supervisor {
        let (events, inbox) = mpsc::unbounded_channel();
        let mut supervisor = Supervisor {
            identity: child.identity.clone(),
            options,
            children: BTreeMap::new(),
            names: HashMap::new(),
            directory,
            entry: child.entry,
            doing: Doing::Launching(launched),
            turns: Turns::Busy,
            failures: Failures::default(),
            events,
            inbox: Rc::new(RefCell::new(inbox)),
            next: 0,
            outcome,
        };
        for spec in specs {
            supervisor.insert(spec, Origin::SupervisorBuilder);
        }
        supervisor
    }

    /// Takes a child in. It is not started yet.
    pub(super) fn insert(&mut self, spec: ChildSpec, origin: Origin) -> Key {
        self.next += 1;
        let key = Key(self.next);
        let kind = spec.start.lock().kind();
        spec.identity.taken(self.identity.path());
        self.directory.list(&spec);
        self.names.insert(spec.name().into(), key);
        let entry = Entry::new(Some(self.entry), spec.name(), kind);
        let child = Child::new(spec, origin, entry);
        debug_assert!(matches!(child.state, Phase::Due), "a new child has not been started");
        self.children.insert(key, child);
        key
    }

    /// Takes a child that is not alive off the list.
    pub(super) fn remove(&mut self, key: Key, reason: &ExitReason) {
        let Some(child) = self.children.remove(&key) else { return };
        self.names.remove(child.spec.name());
        // The builder's children belong to the supervisor's own supervisor, which may start it
        // again with them.
        if child.is_added() || !self.is_ending() {
            self.directory.strike(child.spec.name());
            child.spec.forget(reason);
        }
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self.doing, Doing::Ending { .. })
    }

    pub(super) fn finish(&mut self, reason: ExitReason) {
        // The first reason stays.
        let _ = self.outcome.set(reason);
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // After an orderly end there are none left. Else they end as they are dropped, the last one
        // first.
        let reason = self.outcome.get().cloned().unwrap_or(ExitReason::Shutdown);
        while let Some((_, child)) = self.children.pop_last() {
            let added = child.is_added();
            let Child { spec, state, entry, .. } = child;
            drop((state, entry));
            if added {
                self.directory.strike(spec.name());
                spec.forget(&reason);
            }
        }
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor")
            .field("path", &self.identity.path())
            .field("options", &self.options)
            .field("children", &self.children.len())
            .finish_non_exhaustive()
    }
}
