//! One worker in the scheduler.

use std::collections::{BTreeMap, VecDeque};

use fiber_core::ExitReason;

use super::WorkerId;
use crate::pool::run::{CallId, Run};

/// A worker, as far as its tasks go.
pub(super) struct Worker<W> {
    pub(super) handle: W,
    pub(super) threads: u64,
    pub(super) pending: BTreeMap<(CallId, u64), Run>,
    pub(super) held: u64,
    pub(super) held_nanos: f64,
    pub(super) held_bytes: usize,
    /// It runs a suspect, and gets nothing else.
    pub(super) alone: bool,
    /// It gave tasks back, and has settled none since.
    pub(super) held_up: bool,
    /// It gets nothing more, and ends when it has done what it holds.
    pub(super) draining: bool,
    /// How many tasks it may still be given.
    pub(super) quota: Option<u64>,
    /// Tasks that it said it has been running for a while.
    pub(super) running: Vec<(CallId, u64)>,
    /// Tasks that ran past their timeout, for which it is killed.
    pub(super) overdue: Vec<(CallId, u64)>,
    /// Whether it stands in the list of workers that have room.
    pub(super) listed: bool,
    pub(super) tasks: Tasks,
}

/// Whether a worker was ever given a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tasks {
    None,
    Some,
}

/// Against which tasks the end of a worker counts.
pub(super) enum Blame {
    Nobody,
    /// One of those that it held.
    Someone,
    These(Cause, Vec<(CallId, u64)>),
}

/// How a task cost its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The worker died while it ran the task.
    Death,
    /// The worker was killed because the task ran past its timeout.
    Timeout,
}

impl<W> Worker<W> {
    pub(super) fn pending_of(&self, call: CallId) -> impl Iterator<Item = &Run> {
        self.pending.range((call, 0)..=(call, u64::MAX)).map(|(_, run)| run)
    }

    pub(super) fn hold(&mut self, run: &Run, pace: f64, suspect: bool) {
        self.tasks = Tasks::Some;
        self.held += run.len();
        self.held_nanos += pace * run.len() as f64;
        self.held_bytes += run.size();
        self.alone = suspect;
        if let Some(quota) = &mut self.quota {
            *quota -= run.len();
        }
    }

    /// Takes the tasks of `from..to` that are pending here.
    pub(super) fn take(&mut self, call: CallId, mut from: u64, to: u64) -> Vec<Run> {
        let mut taken = Vec::new();
        while from < to {
            let here = find(&self.pending, call, from).map(|run| run.start);
            let next = || self.pending.range((call, from)..(call, to)).next().map(|(key, _)| key.1);
            let Some(start) = here.or_else(next) else { break };
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

    pub(super) fn blame(&self, reason: &ExitReason) -> Blame {
        if matches!(reason, ExitReason::TaskCancelled | ExitReason::Shutdown) {
            return Blame::Nobody;
        }
        if !self.overdue.is_empty() {
            return Blame::These(Cause::Timeout, self.overdue.clone());
        }
        let running: Vec<_> = self
            .running
            .iter()
            .copied()
            .filter(|(call, index)| find(&self.pending, *call, *index).is_some())
            .collect();
        let known = running.len() as u64;
        if known > 0 && (known >= self.threads || known == self.held) {
            return Blame::These(Cause::Death, running);
        }
        if self.held <= self.threads {
            let tasks = self
                .pending
                .values()
                .flat_map(|run| (run.start..run.end).map(|index| (run.call, index)));
            return Blame::These(Cause::Death, tasks.collect());
        }
        Blame::Someone
    }
}

/// Has a worker stand in the list of those that have room.
pub(super) fn list<W>(with_room: &mut VecDeque<WorkerId>, worker: &mut Worker<W>, id: WorkerId) {
    if !std::mem::replace(&mut worker.listed, true) {
        if worker.held == 0 { with_room.push_front(id) } else { with_room.push_back(id) }
    }
}

/// The run that holds a task.
pub(super) fn find(
    pending: &BTreeMap<(CallId, u64), Run>,
    call: CallId,
    index: u64,
) -> Option<&Run> {
    let (key, run) = pending.range(..=(call, index)).next_back()?;
    (key.0 == call && run.contains(index)).then_some(run)
}
