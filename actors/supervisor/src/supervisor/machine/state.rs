//! The supervision, its phase and its children.

use std::collections::HashMap;
use std::time::Instant;

use fiber_core::stats::Strategy;
use fiber_core::{Error, ExitReason, Result, SortedMap};

use super::super::intensity::{Failures, RestartLimits};
use super::super::spec::check_name;
use super::child::{Child, Origin, Rules};
use super::event::{Effect, Key, Turn};
use super::timers::Timers;

/// A supervisor's knowledge of its children, and its plans for them.
#[derive(Debug)]
pub(in crate::supervisor) struct Supervision {
    /// The supervisor's full name.
    pub(super) path: String,
    pub(super) options: Options,
    pub(super) phase: Phase,
    pub(super) sequence: Sequence,
    pub(super) children: SortedMap<Key, Child>,
    pub(super) names: HashMap<String, Key>,
    pub(super) failures: Failures,
    pub(super) timers: Timers,
    last_key: u64,
}

/// The options that all incarnations of a supervisor have.
#[derive(Clone, Debug, Default)]
pub(in crate::supervisor) struct Options {
    pub(in crate::supervisor) strategy: Strategy,
    pub(in crate::supervisor) limits: RestartLimits,
    /// Whether its owner reports the ends of its children, in place of the supervisor.
    pub(in crate::supervisor) is_quiet: bool,
    /// Whether the tree shows its only child in its place, under its name.
    pub(in crate::supervisor) is_of_one: bool,
}

/// The phase of the supervisor as a whole.
#[derive(Debug)]
pub(super) enum Phase {
    /// The builder's children start.
    Starting,
    Running,
    /// All children stop; then the supervisor ends for this reason.
    Stopping(ExitReason),
    Ended,
}

/// Whether children start or stop one after the other at present.
#[derive(Debug)]
pub(super) enum Sequence {
    Idle,
    InProgress,
    /// Running siblings stop, but none starts before this time.
    Paused(Option<Instant>),
}

/// How the supervisor stops its children when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopMode {
    InOrder,
    AtOnce,
}

impl Supervision {
    /// Returns a supervision without children.
    pub(in crate::supervisor) fn new(path: &str, options: Options) -> Supervision {
        Supervision {
            path: path.into(),
            options,
            phase: Phase::Starting,
            sequence: Sequence::InProgress,
            children: SortedMap::new(),
            names: HashMap::new(),
            failures: Failures::default(),
            timers: Timers::default(),
            last_key: 0,
        }
    }

    /// Inserts a child, which is pending.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is wrong or taken, [`Error::ActorStopped`] if the supervisor
    /// stops.
    pub(in crate::supervisor) fn insert(
        &mut self,
        name: &str,
        rules: Rules,
        origin: Origin,
    ) -> Result<Key> {
        check_name("ChildSpec::new", name)?;
        if self.is_stopping() {
            return Err(Error::ActorStopped {
                name: self.path.clone(),
                reason: ExitReason::Shutdown,
            });
        }
        if self.names.contains_key(name) {
            let problem = format!("supervisor `{}` has a child `{name}` already", self.path);
            return Err(Error::invalid("SupervisorRef::add_child", problem));
        }
        self.last_key += 1;
        let key = Key(self.last_key);
        self.names.insert(name.into(), key);
        self.children.insert(key, Child::new(name.into(), rules, origin));
        Ok(key)
    }

    /// Removes a child that is not alive. `reason` is that of its last exit.
    pub(super) fn remove(&mut self, key: Key, reason: &ExitReason, turn: &mut Turn<'_>) {
        let Some(child) = self.children.remove(&key) else { return };
        self.names.remove(&child.name);
        // If the supervisor itself is restarted, its next incarnation starts the builder's children
        // again.
        let is_final = child.is_added() || !self.is_stopping();
        turn.push(Effect::Remove { key, reason: reason.clone(), is_final });
        if let Origin::Adding(request) = child.origin {
            let name = self.path_of(&child);
            let stopped = Error::ActorStopped { name, reason: ExitReason::Shutdown };
            turn.push(Effect::Answer(request, Err(stopped)));
        }
    }

    /// Returns the full name of a child.
    pub(super) fn path_of(&self, child: &Child) -> String {
        format!("{}/{}", self.path, child.name)
    }

    /// Returns when the supervision goes on although nothing happens.
    pub(in crate::supervisor) fn deadline(&self) -> Option<Instant> {
        self.timers.first()
    }

    /// Returns whether a child was added to the running supervisor.
    pub(in crate::supervisor) fn is_added(&self, key: Key) -> bool {
        self.children.get(&key).is_some_and(Child::is_added)
    }

    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping(_) | Phase::Ended)
    }
}
