//! A child, as its supervisor sees it.

use std::time::{Duration, Instant};

use fiber_core::{ExitReason, Result};
use tokio::sync::oneshot;

use super::event::{Task, Timer};
use super::identity::Life;
use super::spec::ChildSpec;
use super::start::Control;
use super::tree::Entry;

pub(super) struct Child {
    pub(super) spec: ChildSpec,
    pub(super) origin: Origin,
    pub(super) state: Phase,
    pub(super) plan: Plan,
    pub(super) incarnation: u64,
    /// Restarts in a row, none of which led to a long run.
    pub(super) streak: u32,
    /// Whether its last start failed.
    pub(super) start_failed: bool,
    pub(super) entry: Entry,
}

/// Where a child comes from.
pub(super) enum Origin {
    /// The builder.
    SupervisorBuilder,
    /// It is being added, and has not been started successfully yet.
    Adding(oneshot::Sender<Result<()>>),
    /// It was added.
    Added,
}

/// What a child is doing.
pub(super) enum Phase {
    /// It is started when its turn comes.
    Due,
    /// It is started again after a pause.
    Waiting(Timer),
    Starting {
        task: Task,
        life: Life,
        turn: Turn,
    },
    Running {
        control: Box<dyn Control>,
        task: Task,
        life: Life,
        since: Instant,
    },
    Ending(Ending),
    /// It ended by itself, and stays so.
    Ended,
}

/// A child that was told to end.
pub(super) struct Ending {
    pub(super) control: Box<dyn Control>,
    pub(super) cause: Cause,
    /// Those who wait for the end.
    pub(super) waiters: Vec<oneshot::Sender<()>>,
    pub(super) stage: Stage,
    /// Ends the stage.
    pub(super) timer: Option<Timer>,
    pub(super) _task: Task,
    pub(super) life: Life,
    pub(super) since: Instant,
}

/// Whether others wait for this child's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    InTurn,
    Alone,
}

/// Why a child was told to end, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// To be restarted, as if it had failed.
    Kill,
    /// With its siblings.
    Group,
    /// To be forgotten.
    Terminate,
}

/// How far its end has got.
pub(super) enum Stage {
    Asked,
    Killed(ExitReason),
}

/// What the group restart under way wants of a running child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Keep,
    EndAndStart,
}

/// How far an incarnation got.
#[derive(Clone, Copy, Debug)]
pub(super) enum Got {
    NotStarted(Turn),
    Ran(Duration),
}

impl Got {
    pub(super) fn ran(self) -> Option<Duration> {
        match self {
            Got::NotStarted(_) => None,
            Got::Ran(time) => Some(time),
        }
    }
}

impl Child {
    pub(super) fn new(spec: ChildSpec, origin: Origin, entry: Entry) -> Child {
        Child {
            spec,
            origin,
            state: Phase::Due,
            plan: Plan::Keep,
            incarnation: 0,
            streak: 0,
            start_failed: false,
            entry,
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(self.state, Phase::Starting { .. } | Phase::Running { .. } | Phase::Ending(_))
    }

    pub(super) fn is_added(&self) -> bool {
        !matches!(self.origin, Origin::SupervisorBuilder)
    }
}
