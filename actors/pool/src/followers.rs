//! Tasks that go to a worker ahead of the value that they take: a task's only dependent follows it
//! in the same worker, without a way to the pool and back.
//!
//! The pool sends a chain of them in front of the task that they follow. The worker writes each
//! value into the arguments of the next task, and returns tasks that don't get one: their input
//! failed, is large, or is made elsewhere. They wait in their calls again then, as they do if the
//! worker dies.

use super::held::{ReadyTask, submit_when_ready, take_follower};
use super::run::{PREFIX, Run, prefix};
use super::scheduler::Values;
use super::state::PoolState;
use super::wire::{Assignment, Follower};
use super::worker_handle::WorkerHandle;

/// The most tasks that follow one.
const MOST: usize = 64;

impl PoolState {
    /// Returns the tasks that follow this one in a worker, which is about to get it.
    pub(super) fn followers(&self, worker: &WorkerHandle, first: &Assignment) -> Vec<Follower> {
        let mut followers = Vec::new();
        if first.count != 1 || first.values != Values::Stay || self.is_outer() {
            return followers;
        }
        let caller = self.with_scheduler(|scheduler, _| scheduler.caller(first.call).cloned());
        let Some(mut exchange) = caller.filter(|exchange| exchange.durable.is_none()) else {
            return followers;
        };
        let mut after = (first.call, first.first);
        while followers.len() < MOST
            && let Some((task, cell)) = take_follower(&exchange, after.1)
        {
            let ReadyTask { pool, exchange: next, index, parts } = task;
            let mut arguments = vec![0; PREFIX];
            let place = parts.append_around(&cell, &mut arguments);
            let length = prefix(arguments.len() - PREFIX, false);
            arguments[..PREFIX].copy_from_slice(&length);
            let run = Run::with_parts(next.id, index, next.count(parts.size()), parts.clone());
            let follows = place.filter(|_| std::ptr::eq(self, &*pool)).and_then(|place| {
                let assignment = self.with_scheduler(|scheduler, _| {
                    scheduler.follow(worker.id, after, run, arguments.into())
                });
                assignment.map(|assignment| Follower { after, assignment, place: place as u32 })
            });
            let Some(follower) = follows else {
                submit_when_ready(&next, index, parts);
                break;
            };
            pool.record_inputs(&next, index, &parts);
            followers.push(follower);
            (after, exchange) = ((next.id, index), next);
        }
        followers
    }
}
