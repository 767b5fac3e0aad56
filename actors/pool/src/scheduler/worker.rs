//! One worker in the scheduler.

use std::collections::VecDeque;
use std::sync::Arc;

use fiber_core::stacks::ThreadStack;

use super::WorkerId;
use super::pending::Pending;
use super::retire::Duty;
use super::statistics::{LongRunning, WorkerCounts};
use crate::run::{CallId, Run};
use crate::verdict::Fault;
use fiber_runtime::runtime::HostNumber;

/// A worker and its pending tasks.
pub(super) struct Worker<W> {
    pub(super) handle: W,
    /// The host in which it runs, if it shares a job.
    pub(super) host: Option<HostNumber>,
    pub(super) threads: u64,
    /// Its tasks that wait for others, and lend them their slots.
    pub(super) waiting: Vec<(CallId, u64)>,
    pub(super) pending: Pending,
    pub(super) pending_tasks: u64,
    /// Estimated time of the pending tasks.
    pub(super) pending_nanos: f64,
    /// Bytes of the pending arguments.
    pub(super) pending_bytes: usize,
    /// The size of the largest part that its suspects may be in, if it was last given some.
    pub(super) part: Option<u64>,
    pub(super) duty: Duty,
    /// How many more tasks the worker may be given.
    pub(super) quota: Option<u64>,
    /// Tasks that the worker has reported to be running for a while.
    pub(super) long_running: Vec<LongRunning>,
    pub(super) overdue: Vec<Overdue>,
    /// Whether the worker is in the list of available workers.
    pub(super) available: bool,
    /// Whether it was ever given a task.
    pub(super) had_task: bool,
    pub(super) counts: WorkerCounts,
}

/// A task that ran past its timeout, for which its worker is killed.
pub(super) struct Overdue {
    pub(super) task: (CallId, u64),
    /// The stack of its thread, if that is known.
    pub(super) stack: Option<Arc<ThreadStack>>,
}

/// The tasks against which the end of a worker counts.
pub(super) enum Blame {
    NoTask,
    /// One of the pending tasks.
    Unknown,
    Tasks(Vec<(FailureCause, (CallId, u64))>),
}

/// How a task ended its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureCause {
    /// The worker died while it ran the task.
    Death,
    /// The worker's host died while the worker ran the task.
    HostDeath,
    /// The worker was killed because the task ran past its timeout.
    Timeout,
}

impl<W> Worker<W> {
    pub(super) fn new(
        handle: W,
        threads: u64,
        quota: Option<u64>,
        host: Option<HostNumber>,
    ) -> Worker<W> {
        Worker {
            handle,
            host,
            threads,
            waiting: Vec::new(),
            pending: Pending::default(),
            pending_tasks: 0,
            pending_nanos: 0.0,
            pending_bytes: 0,
            part: None,
            duty: Duty::Open,
            quota,
            long_running: Vec::new(),
            overdue: Vec::new(),
            available: false,
            had_task: false,
            counts: WorkerCounts::default(),
        }
    }

    /// Returns how many tasks it may run at the same time, with those that wait for others.
    pub(super) fn slots(&self) -> u64 {
        self.threads + self.waiting.len() as u64
    }

    /// Returns whether all its pending tasks wait for others.
    pub(super) fn only_waits(&self) -> bool {
        self.pending_tasks <= self.waiting.len() as u64
    }

    /// Returns whether it can run one task more at once.
    pub(super) fn has_free_slot(&self) -> bool {
        self.pending_tasks < self.slots()
    }

    /// Returns in how many nanoseconds it will be free for one more task, if it will and that is
    /// known.
    pub(super) fn free_after(&self) -> Option<f64> {
        if self.retirement().is_some() || self.is_isolated() || self.quota == Some(0) {
            return None;
        }
        if self.has_free_slot() {
            return Some(0.0);
        }
        self.long_running.is_empty().then(|| self.pending_nanos / self.slots() as f64)
    }

    /// Counts a run as pending. `nanos` is the mean time of its tasks, which are suspects if there
    /// is a `max_part`.
    pub(super) fn count_pending(&mut self, run: &Run, nanos: f64, max_part: Option<u64>) {
        self.had_task = true;
        self.part = max_part.map(|max_part| self.part_with(max_part));
        self.pending_tasks += run.len();
        self.pending_nanos += nanos * run.len() as f64;
        self.pending_bytes += run.size();
        if let Some(quota) = &mut self.quota {
            *quota = quota.saturating_sub(run.len());
        }
    }

    /// Returns the tasks against which the worker's end counts.
    pub(super) fn blame(&self, fault: Fault) -> Blame {
        if fault != Fault::Pool && !self.overdue.is_empty() {
            let overdue = self.overdue.iter().map(|overdue| (FailureCause::Timeout, overdue.task));
            // Tasks that wait for one that is overdue would run again for ever.
            let waiting = self.waiting.iter().map(|task| (FailureCause::Death, *task));
            return Blame::Tasks(overdue.chain(waiting).collect());
        }
        let cause = match fault {
            Fault::Pool | Fault::Outside => return Blame::NoTask,
            Fault::Host => FailureCause::HostDeath,
            Fault::Worker => FailureCause::Death,
        };
        let long_running = self.long_running.iter().map(|task| (task.call, task.index));
        let is_pending = |(call, index): &(CallId, u64)| self.pending.find(*call, *index).is_some();
        let mut running: Vec<_> = long_running.filter(is_pending).collect();
        let known = running.len() as u64;
        // Runs that lack an input have not begun.
        let begun = || self.pending.iter().filter(|run| !run.lacks_input());
        let pending_tasks: u64 = begun().map(Run::len).sum();
        if known == 0 || (known < self.slots() && known < pending_tasks) {
            if pending_tasks > self.slots() {
                return Blame::Unknown;
            }
            let tasks =
                begun().flat_map(|run| (run.start..run.end).map(move |index| (run.call, index)));
            running = tasks.collect();
        }
        // Of several suspects one is to blame.
        let active = running.iter().filter(|task| !self.waiting.contains(task)).count();
        if active > 1 && self.part.is_some_and(|part| part > 1) {
            return Blame::Unknown;
        }
        Blame::Tasks(running.into_iter().map(|task| (cause, task)).collect())
    }
}

/// Adds a worker to the list of available workers.
pub(super) fn mark_available<W>(
    available: &mut VecDeque<WorkerId>,
    worker: &mut Worker<W>,
    id: WorkerId,
    is_first: bool,
) {
    if !std::mem::replace(&mut worker.available, true) {
        if is_first { available.push_front(id) } else { available.push_back(id) }
    }
}
