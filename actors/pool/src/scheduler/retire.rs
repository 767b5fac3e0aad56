//! Workers that take no more tasks: superfluous ones, those that SIGTERM asks to end, and those of
//! hosts that have ended.

use std::collections::HashMap;

use super::worker::Worker;
use super::{Effects, Scheduler, WorkerId};
use fiber_runtime::runtime::HostNumber;

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

/// Whether a worker takes tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// It takes tasks.
    Open,
    /// It returned tasks, and has sent no outcome since: it takes tasks while a slot is free.
    Blocked,
    /// It takes none, and stops when it has completed those that are pending. Whatever the cause,
    /// SIGTERM may have asked it to end (`terminating`).
    Retiring { cause: Retirement, terminating: bool },
}

impl<W> Worker<W> {
    /// Returns why it takes no more tasks, if it retires.
    pub(super) fn retirement(&self) -> Option<Retirement> {
        if let Duty::Retiring { cause, .. } = self.duty { Some(cause) } else { None }
    }

    /// Returns whether it takes tasks, or suspects if it runs some.
    pub(super) fn takes_tasks(&self) -> bool {
        let is_used_up = self.quota == Some(0) && self.waiting.is_empty();
        match self.duty {
            Duty::Open => !is_used_up,
            Duty::Blocked => !is_used_up && self.has_free_slot(),
            Duty::Retiring { .. } => false,
        }
    }
}

impl<W: Clone, C: Clone> Scheduler<W, C> {
    /// Removes `count` workers, each once it has completed its pending tasks: all of the host with
    /// the fewest workers first, so that whole hosts may end, and there those with the fewest
    /// tasks. Returns their handles.
    pub(crate) fn retire_some(&mut self, count: usize, effects: &mut Effects<W, C>) -> Vec<W> {
        let working = || self.workers.iter().filter(|(_, worker)| worker.retirement().is_none());
        // The number of workers, and the fewest tasks of one.
        let mut hosts: HashMap<HostNumber, (usize, u64)> = HashMap::new();
        for (_, worker) in working() {
            if let Some(number) = worker.host {
                let (workers, fewest) = hosts.entry(number).or_insert((0, u64::MAX));
                *workers += 1;
                *fewest = worker.pending_tasks.min(*fewest);
            }
        }
        let rank = |id: &WorkerId, worker: &Worker<W>| {
            let host = worker.host.map(|number| (hosts[&number], number));
            (host, worker.pending_tasks, *id)
        };
        let mut ranked: Vec<_> = working().map(|(id, worker)| rank(id, worker)).collect();
        ranked.sort_unstable();
        ranked.truncate(count);
        let mut drained = Vec::with_capacity(ranked.len());
        for (_, _, id) in ranked {
            drained.extend(self.workers.get(&id).map(|worker| worker.handle.clone()));
            self.drain(id, Retirement::Superfluous, effects);
        }
        drained
    }

    /// Gives a worker no more tasks, and retires it once it has completed or returned its pending
    /// ones. A worker that is superfluous remains so.
    pub(crate) fn drain(&mut self, id: WorkerId, cause: Retirement, effects: &mut Effects<W, C>) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let is_asked = cause == Retirement::Terminating;
        if let Duty::Retiring { terminating, .. } = &mut worker.duty {
            *terminating |= is_asked;
            return;
        }
        worker.duty = Duty::Retiring { cause, terminating: is_asked };
        self.retiring += 1;
        if worker.pending_tasks == 0 {
            self.idle -= 1;
        }
        // The workers of a host that has ended are about to be lost.
        if cause != Retirement::HostEnded {
            self.retire_if_done(id, effects);
        }
    }

    /// Stops a worker that gets no more tasks, if none is pending.
    pub(super) fn retire_if_done(&mut self, id: WorkerId, effects: &mut Effects<W, C>) {
        let Some(worker) = self.workers.get(&id) else { return };
        let takes_none = worker.retirement().is_some() || worker.quota == Some(0);
        if worker.pending_tasks == 0 && takes_none {
            let superfluous = worker.retirement() == Some(Retirement::Superfluous);
            effects.retired.push((worker.handle.clone(), superfluous));
        }
    }
}
