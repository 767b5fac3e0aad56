//! Actions that follow from a change of the scheduler.

use fiber_core::{Exit, ExitReason};

use super::Loss;
use crate::run::{CallId, Run};
use crate::verdict::Verdict;
use crate::wire::Assignment;

/// Actions to perform after the scheduler was changed.
pub(crate) struct Effects<W, C> {
    pub(crate) assignments: Vec<(W, Assignment)>,
    pub(crate) completions: Vec<(C, Completion)>,
    /// Tasks whose inputs are lost. Their callers submit them again when they have the inputs.
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
        }
    }
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
