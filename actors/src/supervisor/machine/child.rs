//! A child and its phase.

use std::time::{Duration, Instant};

use fiber_core::stats::EventKind;
use fiber_core::{ExitReason, Result};
use tokio::sync::oneshot;

use super::super::identity::DownGuard;
use super::super::spec::ChildSpec;
use super::super::start::Control;
use super::super::tree::Entry;
use super::event::{Task, Timer};
use crate::stats::emit;

pub(super) struct Child {
    pub(super) spec: ChildSpec,
    pub(super) origin: Origin,
    pub(super) phase: ChildPhase,
    /// Whether the child is alive and a group restart under way will stop and start it.
    pub(super) restarts_with_group: bool,
    pub(super) incarnation: u64,
    /// Failures that lengthen the pause before the next restart. A long run resets them.
    pub(super) failures_in_a_row: u32,
    pub(super) last_start_failed: bool,
    pub(super) entry: Entry,
}

impl Child {
    /// Emits the event that this child is restarted.
    pub(super) fn announce_restart(&self) {
        let reason = self.entry.last_exit().unwrap_or(ExitReason::Shutdown);
        let child = self.spec.identity.path().to_string();
        emit(EventKind::ChildRestarted { child, reason });
    }
}

/// How the supervisor got the child.
pub(super) enum Origin {
    Builder,
    /// A caller adds it, and waits for its first start.
    Adding(oneshot::Sender<Result<()>>),
    Added,
}

pub(super) enum ChildPhase {
    /// The sequence starts it.
    Pending,
    /// It is restarted when the timer expires.
    BackingOff(Timer),
    Starting {
        task: Task,
        down_guard: DownGuard,
        order: StartOrder,
    },
    Running {
        control: Box<dyn Control>,
        task: Task,
        down_guard: DownGuard,
        since: Instant,
    },
    Stopping(Stopping),
    /// It ended by itself and is not restarted.
    Finished,
}

/// The state of a child that the supervisor stops.
pub(super) struct Stopping {
    pub(super) control: Box<dyn Control>,
    pub(super) cause: StopCause,
    pub(super) step: StopStep,
    /// The deadline of the step.
    pub(super) timer: Option<Timer>,
    /// Callers that wait for the end.
    pub(super) waiters: Vec<oneshot::Sender<()>>,
    pub(super) _task: Task,
    pub(super) down_guard: DownGuard,
    pub(super) since: Instant,
}

/// Whether the sequence waits for a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartOrder {
    Sequential,
    Concurrent,
}

/// Why the supervisor stops a child. A later variant takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StopCause {
    /// A caller kills it; that counts as a failure.
    Kill,
    /// It stops with its siblings, or with the supervisor.
    Group,
    /// It is removed.
    Remove,
}

pub(super) enum StopStep {
    Asked,
    Killed(ExitReason),
}

/// How far an incarnation got before its end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Uptime {
    NotStarted(StartOrder),
    Ran(Duration),
}

impl Uptime {
    /// Returns how long the incarnation ran, or `None` if it did not start.
    pub(super) fn ran(self) -> Option<Duration> {
        match self {
            Uptime::NotStarted(_) => None,
            Uptime::Ran(time) => Some(time),
        }
    }
}

impl Child {
    pub(super) fn new(spec: ChildSpec, origin: Origin, entry: Entry) -> Child {
        Child {
            spec,
            origin,
            phase: ChildPhase::Pending,
            restarts_with_group: false,
            incarnation: 0,
            failures_in_a_row: 0,
            last_start_failed: false,
            entry,
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(
            self.phase,
            ChildPhase::Starting { .. } | ChildPhase::Running { .. } | ChildPhase::Stopping(_)
        )
    }

    pub(super) fn is_added(&self) -> bool {
        !matches!(self.origin, Origin::Builder)
    }
}
