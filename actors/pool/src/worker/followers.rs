//! Tasks that take the value of another task of their worker: see the pool's module of this name.

use parking_lot::Mutex;

use super::executor::ExecutorState;
use super::local_run::LocalRun;
use super::{Work, WorkQueue};
use crate::run::{CallId, PREFIX, prefix};
use crate::wire::{Follower, WorkerEvent};
use fiber_values::Parts;

/// A task that waits for the value of another one.
pub(super) struct LocalFollower {
    /// The task alone, whose arguments are without the value.
    pub(super) run: LocalRun,
    place: usize,
}

impl LocalFollower {
    /// Returns the length of its arguments with its input.
    pub(super) fn size_with(&self, value: &[u8]) -> usize {
        self.run.arguments.len() - PREFIX + value.len()
    }

    /// Puts its input into its arguments.
    pub(super) fn put(&mut self, value: &[u8]) {
        let (before, behind) = self.run.arguments.split_at(self.place);
        let mut arguments = before.to_vec();
        Parts::append_value(&mut arguments, value);
        arguments.extend_from_slice(behind);
        let length = prefix(arguments.len() - PREFIX, false);
        arguments[..PREFIX].copy_from_slice(&length);
        self.run.arguments = arguments.into();
    }
}

impl Work {
    /// Takes the task that follows another one, if there is one. A task that has a follower is
    /// alone in its run.
    pub(super) fn take_follower(&mut self, after: (CallId, u64)) -> Option<Box<LocalFollower>> {
        self.followers.remove(&after).map(Box::new)
    }

    /// Takes those tasks of a call that follow others.
    pub(super) fn take_followers_of(&mut self, call: CallId) -> Vec<LocalRun> {
        let followers = self.followers.iter();
        let its: Vec<_> =
            followers.filter(|(_, it)| it.run.call == call).map(|(at, _)| *at).collect();
        its.iter().filter_map(|after| self.followers.remove(after)).map(|it| it.run).collect()
    }
}

impl WorkQueue {
    /// Keeps a task until the one that it follows has ended. That one comes next.
    pub(super) fn accept_follower(&self, follower: Follower) {
        let Follower { after, assignment, place } = follower;
        let place = place as usize;
        if let Some(run) = self.local(assignment) {
            // A worker that drains returns it with the task that it follows.
            self.work.lock().followers.insert(after, LocalFollower { run, place });
        }
    }

    /// Runs the task next that follows the last one of an executor, if it has its input, and returns
    /// it to the pool otherwise. It may be there already.
    pub(super) fn go_on(&self, executor: &Mutex<ExecutorState>, has_input: bool) {
        let mut work = self.work.lock();
        let follower = executor.lock().follower.take();
        if !has_input {
            drop(work);
            self.return_follower(follower);
        } else if let Some(follower) = follower {
            // This thread takes it next, or the next one that has a slot.
            work.runs.push_front(follower.run);
            self.count_queued(&work);
        }
    }

    /// Returns a task to the pool that gets no input here, with those that follow it.
    pub(super) fn return_follower(&self, mut follower: Option<Box<LocalFollower>>) {
        while let Some(LocalFollower { run, .. }) = follower.map(|it| *it) {
            self.report(WorkerEvent::Returned { call: run.call, first: run.first, count: 1 });
            follower = self.work.lock().take_follower((run.call, run.first));
        }
    }
}
