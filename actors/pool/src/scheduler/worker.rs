//! One worker in the scheduler.

use std::collections::{BTreeMap, VecDeque};

use fiber_core::ExitReason;
use fiber_core::stacks::ThreadStack;

use super::WorkerId;
use super::statistics::{LongRunning, WorkerCounts};
use crate::run::{CallId, Run};
use fiber_runtime::runtime::HostNumber;

/// A worker and its pending tasks.
pub(super) struct Worker<W> {
    pub(super) handle: W,
    /// The host in which it runs, if it shares a job.
    pub(super) host: Option<HostNumber>,
    pub(super) threads: u64,
    pub(super) pending: BTreeMap<(CallId, u64), Run>,
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
    /// Tasks that ran past their timeout, for which the worker is killed.
    pub(super) overdue: Vec<(CallId, u64)>,
    /// Stacks of the overdue tasks, where reported.
    pub(super) stacks: BTreeMap<(CallId, u64), Box<ThreadStack>>,
    /// Whether the worker is in the list of available workers.
    pub(super) available: bool,
    pub(super) usage: Usage,
    pub(super) counts: WorkerCounts,
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
    Tasks(FailureCause, Vec<(CallId, u64)>),
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
            pending: BTreeMap::new(),
            pending_tasks: 0,
            pending_nanos: 0.0,
            pending_bytes: 0,
            isolated: false,
            blocked: false,
            retiring: None,
            quota,
            long_running: Vec::new(),
            overdue: Vec::new(),
            stacks: BTreeMap::new(),
            available: false,
            usage: Usage::Unused,
            counts: WorkerCounts::default(),
        }
    }

    pub(super) fn pending_of(&self, call: CallId) -> impl Iterator<Item = &Run> {
        self.pending.range((call, 0)..=(call, u64::MAX)).map(|(_, run)| run)
    }

    /// Counts a run as pending. `nanos` is the mean time of its tasks.
    pub(super) fn count_pending(&mut self, run: &Run, nanos: f64, suspect: bool) {
        self.usage = Usage::Used;
        self.pending_tasks += run.len();
        self.pending_nanos += nanos * run.len() as f64;
        self.pending_bytes += run.size();
        self.isolated = suspect;
        if let Some(quota) = &mut self.quota {
            *quota -= run.len();
        }
    }

    /// Takes those of the tasks `from..to` that are pending.
    pub(super) fn take(&mut self, call: CallId, mut from: u64, to: u64) -> Vec<Run> {
        let mut taken = Vec::new();
        while from < to {
            let containing = find(&self.pending, call, from).map(|run| run.start);
            let next = || self.pending.range((call, from)..(call, to)).next().map(|(key, _)| key.1);
            let Some(start) = containing.or_else(next) else { break };
            let run = self.pending.remove(&(call, start)).expect("it was just found");
            let end = run.end;
            let (inside, before, after) = run.cut(from, to);
            taken.extend(inside);
            for rest in [before, after].into_iter().flatten() {
                self.pending.insert((call, rest.start), rest);
            }
            from = end;
        }
        taken
    }

    /// Returns the tasks against which the worker's end counts.
    pub(super) fn blame(&self, reason: &ExitReason) -> Blame {
        if matches!(reason, ExitReason::TaskCancelled | ExitReason::Shutdown) {
            return Blame::NoTask;
        }
        if !self.overdue.is_empty() {
            return Blame::Tasks(FailureCause::Timeout, self.overdue.clone());
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
            .map(|task| (task.call, task.index))
            .filter(|(call, index)| find(&self.pending, *call, *index).is_some())
            .collect();
        let known = running.len() as u64;
        if known > 0 && (known >= self.threads || known == self.pending_tasks) {
            return Blame::Tasks(cause, running);
        }
        if self.pending_tasks <= self.threads {
            let tasks = self
                .pending
                .values()
                .flat_map(|run| (run.start..run.end).map(|index| (run.call, index)));
            return Blame::Tasks(cause, tasks.collect());
        }
        Blame::Unknown
    }
}

/// Adds a worker to the list of available workers, idle ones in front.
pub(super) fn mark_available<W>(
    available: &mut VecDeque<WorkerId>,
    worker: &mut Worker<W>,
    id: WorkerId,
) {
    if !std::mem::replace(&mut worker.available, true) {
        if worker.pending_tasks == 0 { available.push_front(id) } else { available.push_back(id) }
    }
}

/// Returns the pending run that contains a task.
pub(super) fn find(
    pending: &BTreeMap<(CallId, u64), Run>,
    call: CallId,
    index: u64,
) -> Option<&Run> {
    let (key, run) = pending.range(..=(call, index)).next_back()?;
    (key.0 == call && run.contains(index)).then_some(run)
}
