//! Handing out tasks to workers.

use super::time_limit::fitting;
use super::worker::mark_available;
use super::{Effects, MIN_PENDING, Scheduler, WorkerId};
use crate::run::Run;

/// Nanoseconds that a task counts for in the sharing between calls, before a task of its function
/// has completed.
const ASSUMED_NANOS: f64 = 1e6;

/// The place of a run that goes back into the queue.
pub(super) enum Requeue {
    Front,
    Suspect,
}

impl<W: Clone, C: Clone> Scheduler<W, C> {
    /// Returns how many tasks a call may have pending, however large they are: enough to keep all
    /// workers busy.
    pub(super) fn min_pending(&self) -> u64 {
        MIN_PENDING * self.threads
    }

    pub(super) fn enqueue(&mut self, run: Run) {
        let Some(call) = self.calls.get_mut(&run.call) else { return };
        call.submitted += run.len();
        call.open += run.len();
        call.ready_tasks += run.len();
        self.queue.insert((call.served, run.call));
        call.ready.push_back(run);
    }

    pub(super) fn requeue(&mut self, run: Run, place: Requeue) {
        let Some(call) = self.calls.get_mut(&run.call) else { return };
        self.queue.insert((call.served, run.call));
        match place {
            Requeue::Front => {
                call.ready_tasks += run.len();
                call.ready.push_front(run);
            }
            Requeue::Suspect => call.suspects.push_back(run),
        }
    }

    /// Hands out tasks to the workers that can take more, idle ones first.
    pub(super) fn dispatch(&mut self, effects: &mut Effects<W, C>) {
        if self.halted {
            return;
        }
        for _ in 0..self.available.len() {
            if self.queue.is_empty() {
                return;
            }
            let Some(id) = self.available.pop_front() else { return };
            if let Some(worker) = self.workers.get_mut(&id) {
                worker.available = false;
                self.fill(id, effects);
            }
        }
    }

    /// Hands out tasks to one worker, until it is full or the queue is empty.
    pub(super) fn fill(&mut self, id: WorkerId, effects: &mut Effects<W, C>) {
        let (worker_count, least) = (self.workers.len() as u64, self.min_pending());
        let nanos_left = self.nanos_left;
        loop {
            let Some(worker) = self.workers.get_mut(&id) else { return };
            let blocked = worker.blocked && worker.pending_tasks >= worker.threads;
            let takes_none = self.halted || worker.retiring.is_some() || worker.quota == Some(0);
            if takes_none || worker.isolated || blocked {
                return;
            }
            let Some((served, call_id)) = self.queue.first().copied() else {
                return mark_available(&mut self.available, worker, id);
            };
            let Some(call) = self.calls.get_mut(&call_id) else { return };
            let nanos = self.functions.get(&call.entry).map_or(0.0, |function| function.nanos);
            if nanos >= nanos_left {
                self.queue.remove(&(served, call_id));
                continue;
            }
            let Some(room) = call.room(least, self.memory) else {
                self.queue.remove(&(served, call_id));
                if !std::mem::replace(&mut call.room.throttled, true) {
                    effects.throttled.push((call.caller.clone(), call.room.taken()));
                }
                continue;
            };

            let suspect = !call.suspects.is_empty();
            let count = if suspect {
                u64::from(worker.pending_tasks == 0)
            } else {
                let count = call.count_for(worker, nanos, worker_count, room);
                count.min(fitting(worker, nanos, nanos_left))
            };
            if count == 0 {
                // The worker's next outcome fills it again.
                return;
            }
            self.queue.remove(&(served, call_id));
            call.recalled = false;
            let run = call.take(count);
            if worker.pending_tasks == 0 {
                self.idle -= 1;
            }
            call.served +=
                (if nanos == 0.0 { ASSUMED_NANOS } else { nanos } * run.len() as f64) as u64;
            if call.has_tasks() {
                self.queue.insert((call.served, call_id));
            }
            worker.count_pending(&run, nanos, suspect);
            self.counts.bytes_out += run.size() as u64;
            effects.assignments.push((worker.handle.clone(), call.assignment(&run)));
            worker.pending.insert((run.call, run.start), run);
        }
    }

    /// Asks for the tasks that callers have prepared, where a call has none queued.
    pub(crate) fn want(&mut self, effects: &mut Effects<W, C>) {
        if self.halted {
            return;
        }
        let calls = self.feeding.iter().filter_map(|id| self.calls.get(id));
        let without = calls.filter(|call| call.ready.is_empty());
        effects.wanted.extend(without.map(|call| call.caller.clone()));
    }
}
