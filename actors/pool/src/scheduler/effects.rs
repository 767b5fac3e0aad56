//! Actions that follow from a change of a pool's life.

use fiber_core::{Exit, ExitReason, PoolEndReason};

use super::Loss;
use crate::controller::ControllerRequest;
use crate::run::{CallId, Run};
use crate::verdict::Verdict;
use crate::wire::Assignment;

/// Actions to perform after the scheduler, or the life of its pool, was changed.
pub(crate) struct Effects<W, C> {
    pub(crate) assignments: Vec<(W, Assignment)>,
    pub(crate) completions: Vec<(C, Completion)>,
    /// Tasks whose inputs are lost, or not there yet. Their callers submit them again when they
    /// have the inputs.
    pub(crate) held: Vec<(C, Run)>,
    /// Workers that return the tasks of a call that they have not started.
    pub(crate) recalls: Vec<(W, CallId)>,
    pub(crate) kills: Vec<(W, ExitReason)>,
    /// Workers to stop, because they are out of tasks and get no more. `true` stands for a
    /// superfluous worker, which is not replaced.
    pub(crate) retired: Vec<(W, bool)>,
    /// Workers that have ended.
    pub(crate) losses: Vec<(W, Verdict, Loss)>,
    /// Callers whose calls have no tasks queued. They [submit](super::Scheduler::submit) those that
    /// they have prepared.
    pub(crate) wanted: Vec<C>,
    /// Callers without room for outcomes, and how many outcomes they have reported as taken. They
    /// [report](super::Scheduler::report) when they have taken more, which may be now.
    pub(crate) throttled: Vec<(C, u64)>,
    /// Callers, and how many of their tasks are worth a message of their own.
    pub(crate) run_sizes: Vec<(C, u64)>,
    /// The controller gets them in their order.
    pub(crate) requests: Vec<ControllerRequest>,
    pub(crate) notices: Vec<Notice>,
    /// The pool has ended for this reason, and with it the calls of these callers.
    pub(crate) ended: Option<(PoolEndReason, Vec<C>)>,
}

impl<W, C> Default for Effects<W, C> {
    fn default() -> Effects<W, C> {
        Effects {
            assignments: Vec::new(),
            completions: Vec::new(),
            held: Vec::new(),
            recalls: Vec::new(),
            kills: Vec::new(),
            retired: Vec::new(),
            losses: Vec::new(),
            wanted: Vec::new(),
            throttled: Vec::new(),
            run_sizes: Vec::new(),
            requests: Vec::new(),
            notices: Vec::new(),
            ended: None,
        }
    }
}

/// A line of the log, behind the name of the pool.
#[derive(Debug)]
pub(crate) enum Notice {
    Warning(String),
    Info(String),
}

/// Tasks that are completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// Encoded outcomes: the values that the functions returned, or their failures.
    Outcomes(Run),
    /// The outcome of one task, whose value stays on another machine, and the task's arguments: it
    /// runs again if the machine is lost.
    Away { outcome: Run, arguments: Run },
    /// A task that `workers` workers did not survive, by deaths or by timeouts.
    Abandoned { index: u64, workers: u32, exit: Exit },
}
