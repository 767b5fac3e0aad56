//! One worker in the scheduler.

use std::collections::VecDeque;
use std::sync::Arc;

use fiber_core::ExitReason;
use fiber_core::stacks::ThreadStack;

use super::WorkerId;
use super::pending::Pending;
use super::statistics::{LongRunning, WorkerCounts};
use crate::run::{CallId, Run};
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
    /// The worker runs a suspect, and gets nothing else.
    pub(super) isolated: bool,
    /// The worker returned tasks, and has sent no outcome since.
    pub(super) blocked: bool,
    /// Why the worker gets no more tasks, and stops when it has completed those that are pending.
    pub(super) retiring: Option<Retirement>,
    /// How many more tasks the worker may be given.
    pub(super) quota: Option<u64>,
    /// Tasks that the worker has reported to be running for a while.
    pub(super) long_running: Vec<LongRunning>,
    pub(super) overdue: Vec<Overdue>,
    /// Whether the worker is in the list of available workers.
    pub(super) available: bool,
    pub(super) usage: Usage,
    pub(super) counts: WorkerCounts,
}

/// A task that ran past its timeout, for which its worker is killed.
pub(super) struct Overdue {
    pub(super) task: (CallId, u64),
    /// The stack of its thread, if that is known.
    pub(super) stack: Option<Arc<ThreadStack>>,
}

/// Why a worker gets no more tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retirement {
    /// The pool needs fewer workers.
    Superfluous,
    /// SIGTERM asked the worker to end. Another one takes its place.
    Terminating,
    /// The worker's host has ended, and the worker with it.
    HostEnded,
}

/// Whether a worker was ever given a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    Unused,
    Used,
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
            isolated: false,
            blocked: false,
            retiring: None,
            quota,
            long_running: Vec::new(),
            overdue: Vec::new(),
            available: false,
            usage: Usage::Unused,
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

    /// Returns in how many nanoseconds it will be free for one more task, if it will and that is
    /// known.
    pub(super) fn free_after(&self) -> Option<f64> {
        if self.retiring.is_some() || self.isolated || self.quota == Some(0) {
            return None;
        }
        if self.pending_tasks < self.slots() {
            return Some(0.0);
        }
        self.long_running.is_empty().then(|| self.pending_nanos / self.slots() as f64)
    }

    /// Counts a run as pending. `nanos` is the mean time of its tasks.
    pub(super) fn count_pending(&mut self, run: &Run, nanos: f64, suspect: bool) {
        self.usage = Usage::Used;
        self.pending_tasks += run.len();
        self.pending_nanos += nanos * run.len() as f64;
        self.pending_bytes += run.size();
        self.isolated = suspect;
        if let Some(quota) = &mut self.quota {
            *quota = quota.saturating_sub(run.len());
        }
    }

    /// Returns the tasks against which the worker's end counts.
    pub(super) fn blame(&self, reason: &ExitReason) -> Blame {
        if matches!(reason, ExitReason::TaskCancelled | ExitReason::Shutdown) {
            return Blame::NoTask;
        }
        if !self.overdue.is_empty() {
            let overdue = self.overdue.iter().map(|overdue| (FailureCause::Timeout, overdue.task));
            // Tasks that wait for one that is overdue would run again for ever.
            let waiting = self.waiting.iter().map(|task| (FailureCause::Death, *task));
            return Blame::Tasks(overdue.chain(waiting).collect());
        }
        if reason.is_disruption() {
            return Blame::NoTask;
        }
        let cause = match reason {
            ExitReason::HostEnded { reason, .. } if **reason != ExitReason::OutOfMemory => {
                FailureCause::HostDeath
            }
            _ => FailureCause::Death,
        };
        let running: Vec<_> = self
            .long_running
            .iter()
            .map(|task| (cause, (task.call, task.index)))
            .filter(|(_, (call, index))| self.pending.find(*call, *index).is_some())
            .collect();
        let known = running.len() as u64;
        if known > 0 && (known >= self.slots() || known == self.pending_tasks) {
            return Blame::Tasks(running);
        }
        if self.pending_tasks <= self.slots() {
            let mut tasks = Vec::new();
            for run in self.pending.iter() {
                tasks.extend((run.start..run.end).map(|index| (cause, (run.call, index))));
            }
            return Blame::Tasks(tasks);
        }
        Blame::Unknown
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
