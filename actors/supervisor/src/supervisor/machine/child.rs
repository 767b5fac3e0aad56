//! A child and its phase.

use std::time::{Duration, Instant};

use fiber_core::ExitReason;

use super::super::spec::{Counts, Restart, Shutdown};
use super::event::Request;

/// The specification of a child, as far as its supervisor's decisions depend on it.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::supervisor) struct Rules {
    pub(in crate::supervisor) restart: Restart,
    pub(in crate::supervisor) shutdown: Shutdown,
    pub(in crate::supervisor) counts: Counts,
    /// Whether the supervisor ends when the child has given up restarting what is in it.
    pub(in crate::supervisor) gives_up_itself: bool,
}

#[derive(Debug)]
pub(super) struct Child {
    pub(super) name: String,
    pub(super) rules: Rules,
    pub(super) origin: Origin,
    pub(super) phase: ChildPhase,
    /// Whether the child is alive and a group restart under way will stop and start it.
    pub(super) restarts_with_group: bool,
    pub(super) incarnation: u64,
    /// Failures that lengthen the pause before the next restart. A long run resets them.
    pub(super) failures_in_a_row: u32,
    pub(super) last_start_failed: bool,
}

/// How the supervisor got the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::supervisor) enum Origin {
    Builder,
    /// A caller adds it, and waits for its first start.
    Adding(Request),
    Added,
}

#[derive(Debug)]
pub(super) enum ChildPhase {
    /// The sequence starts it.
    Pending,
    BackingOff {
        until: Option<Instant>,
    },
    Starting(StartOrder),
    Running {
        since: Instant,
    },
    Stopping(Stopping),
    /// It ended by itself and is not restarted.
    Finished,
}

/// The state of a child that the supervisor stops.
#[derive(Debug)]
pub(super) struct Stopping {
    pub(super) cause: StopCause,
    pub(super) step: StopStep,
    /// The deadline of the step.
    pub(super) until: Option<Instant>,
    /// Callers that wait for the end.
    pub(super) waiters: Vec<Request>,
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

#[derive(Clone, Debug)]
pub(super) enum StopStep {
    Asked,
    Killed(ExitReason),
}

/// How an incarnation has ended.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) reason: ExitReason,
    pub(super) uptime: Uptime,
    pub(super) has_worked: bool,
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
    pub(super) fn new(name: String, rules: Rules, origin: Origin) -> Child {
        Child {
            name,
            rules,
            origin,
            phase: ChildPhase::Pending,
            restarts_with_group: false,
            incarnation: 0,
            failures_in_a_row: 0,
            last_start_failed: false,
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(
            self.phase,
            ChildPhase::Starting(_) | ChildPhase::Running { .. } | ChildPhase::Stopping(_)
        )
    }

    pub(super) fn is_added(&self) -> bool {
        self.origin != Origin::Builder
    }
}
