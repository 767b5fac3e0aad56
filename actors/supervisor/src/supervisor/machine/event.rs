//! The events that go into a supervision, and the effects that come out.

use std::time::{Duration, Instant};

use fiber_core::{ExitReason, Result};

/// Identifies a child. Keys ascend in the order of first starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::supervisor) struct Key(pub(super) u64);

/// Identifies the request of a caller, which gets one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::supervisor) struct Request(pub(in crate::supervisor) u64);

#[derive(Clone, Debug)]
pub(in crate::supervisor) enum Event {
    /// The supervisor itself starts.
    Begin,
    /// A child was inserted, and starts concurrently with others.
    Added(Key),
    Started {
        key: Key,
        incarnation: u64,
    },
    Exited {
        key: Key,
        incarnation: u64,
        reason: ExitReason,
        /// Whether the incarnation has been of use, however short its life was.
        has_worked: bool,
    },
    /// A caller stops or kills one child.
    StopChild {
        name: String,
        method: StopMethod,
        request: Request,
    },
    /// Stops the children in order, then the supervisor.
    Stop,
    /// Kills the children, then ends the supervisor for this reason.
    Kill(ExitReason),
    /// The deadline has come.
    Deadline,
}

/// How a caller ends one child.
#[derive(Clone, Debug)]
pub(in crate::supervisor) enum StopMethod {
    /// As its specification says; then it is removed.
    Stop,
    /// At once, as if it had failed for this reason.
    Kill(ExitReason),
}

/// A step that the driver takes for a supervision.
#[derive(Debug)]
pub(in crate::supervisor) enum Effect {
    /// Start the next incarnation of a child.
    Start {
        key: Key,
        incarnation: u64,
    },
    /// Keep the control of the incarnation that has just started.
    Started(Key),
    /// Ask a child to end in order.
    Shutdown(Key),
    Kill(Key, ExitReason),
    /// Let go of an incarnation that has ended, or is given up.
    Ended {
        key: Key,
        reason: ExitReason,
    },
    /// Show that a child ended by itself and is not restarted.
    Finished(Key),
    Remove {
        key: Key,
        reason: ExitReason,
        /// Whether the next incarnation of the supervisor does not start it either.
        is_final: bool,
    },
    /// Answer a caller.
    Answer(Request, Result<()>),
    /// Log a failure, after which the child is restarted. `is_repeated`: one start fails after
    /// another.
    Failed {
        key: Key,
        reason: ExitReason,
        pause: Duration,
        is_repeated: bool,
    },
    /// Log that the child did not stop in time.
    Late(Key),
    /// Log that the end of a killed child was not confirmed in time.
    Unconfirmed(Key),
    /// Log that there were too many failures.
    GaveUp(ExitReason),
    /// Reports that the builder's children have started. Without a waiter for this report, nothing
    /// could ever stop the supervisor: then [`Event::Stop`] follows.
    Ready,
    /// The supervisor has ended. No effect follows.
    End(ExitReason),
}

/// One event's way through the machine: the time, random numbers, and the effects.
pub(in crate::supervisor) struct Turn<'a> {
    pub(in crate::supervisor) now: Instant,
    /// Draws a number from 0 up to 1.
    pub(in crate::supervisor) chance: &'a mut dyn FnMut() -> f64,
    pub(in crate::supervisor) effects: &'a mut Vec<Effect>,
}

impl Turn<'_> {
    pub(super) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}
