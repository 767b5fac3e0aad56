//! Handing out tasks to workers.

use std::collections::HashMap;

use fiber_runtime::runtime::HostNumber;

use super::call::Call;
use super::time_limit::fitting;
use super::worker::mark_available;
use super::{Effects, MIN_PENDING, Scheduler, WorkerId};
use crate::run::{CallId, Near, Run};

/// Nanoseconds that a task counts for in the sharing between calls, before a task of its function
/// has completed.
const ASSUMED_NANOS: f64 = 1e6;

/// How many calls, and tasks of each, are looked at for one whose inputs are near to a worker.
const LOOK_AHEAD: usize = 16;

/// When a host takes its next task.
#[derive(Default)]
struct HostTime {
    /// In how many nanoseconds one of its workers is free.
    free: f64,
    threads: u64,
}

/// Which inputs may travel to a worker.
enum Travel {
    Nothing,
    /// Inputs of hosts that would take the task later than its inputs have travelled.
    FromBusy {
        hosts: HashMap<HostNumber, HostTime>,
        nanos_per_byte: f64,
    },
}

impl Travel {
    /// Returns how good it is to run a task in a worker of `host`, the best first. If its inputs
    /// may not travel there, it is left to the host that has them; it takes `nanos`.
    fn rank(&mut self, host: Option<HostNumber>, near: Option<Near>, nanos: f64) -> Option<u8> {
        let Some(near) = near else { return Some(1) };
        if Some(near.host) == host {
            return Some(0);
        }
        let Travel::FromBusy { hosts, nanos_per_byte } = self else { return None };
        let Some(time) = hosts.get_mut(&near.host) else { return Some(2) };
        if time.free >= near.bytes as f64 * *nanos_per_byte {
            return Some(2);
        }
        // The next one waits for this one, too.
        time.free += nanos / time.threads as f64;
        None
    }
}

impl<C> Call<C> {
    /// Brings the task to the front that is best for a worker of `host`. Returns whether there is
    /// one.
    fn bring_to_front(
        &mut self,
        host: Option<HostNumber>,
        travel: &mut Travel,
        nanos: f64,
    ) -> bool {
        let near = self.ready.iter().take(LOOK_AHEAD).map(Run::near).enumerate();
        let ranked =
            near.filter_map(|(place, near)| Some((travel.rank(host, near, nanos)?, place)));
        let Some((_, place)) = ranked.min() else { return false };
        if let Some(run) = self.ready.remove(place) {
            self.ready.push_front(run);
        }
        true
    }
}

/// The place of a run that goes back into the queue.
#[derive(Clone, Copy)]
pub(super) enum Requeue {
    Front,
    /// Before the others, in parts of at most so many tasks.
    Suspect(u64),
}

impl<W: Clone, C: Clone> Scheduler<W, C> {
    /// Returns how many tasks a call may have pending, however large they are: enough to keep all
    /// workers busy.
    pub(crate) fn min_pending(&self) -> u64 {
        MIN_PENDING * self.threads
    }

    pub(super) fn enqueue(&mut self, run: Run) {
        let id = run.call;
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.submitted += run.len();
        call.open += run.len();
        call.count_ready(&run);
        call.ready.push_back(run);
        self.queue.add(id, call);
    }

    pub(super) fn requeue(&mut self, run: Run, place: Requeue) {
        let id = run.call;
        let Some(call) = self.calls.get_mut(&id) else { return };
        match place {
            Requeue::Front => {
                call.count_ready(&run);
                call.ready.push_front(run);
            }
            Requeue::Suspect(max_part) => call.suspects.push_front(run, max_part),
        }
        self.queue.add(id, call);
    }

    /// Hands out tasks to the workers that can take more, idle ones first.
    pub(super) fn dispatch(&mut self, effects: &mut Effects<W, C>) {
        if self.halted {
            return;
        }
        for _ in 0..self.available.len() {
            if self.queue.first(&self.calls).is_none() {
                return;
            }
            let Some(id) = self.available.pop_front() else { return };
            if let Some(worker) = self.workers.get_mut(&id) {
                worker.available = false;
                self.fill(id, effects);
            }
        }
    }

    /// Hands out tasks to one worker, until it is full or the queue is empty: those first that have
    /// nothing to travel to it.
    pub(super) fn fill(&mut self, id: WorkerId, effects: &mut Effects<W, C>) {
        let mut passed = Vec::new();
        self.fill_with(id, Travel::Nothing, &mut passed, effects);
        if !passed.is_empty() {
            self.enqueue_again(&mut passed);
            let (hosts, nanos_per_byte) = (self.host_times(), self.travel_nanos);
            let travel = Travel::FromBusy { hosts, nanos_per_byte };
            self.fill_with(id, travel, &mut passed, effects);
            // The others wait for a worker of the host that has their inputs.
            self.enqueue_again(&mut passed);
        }
    }

    fn enqueue_again(&mut self, passed: &mut Vec<CallId>) {
        for id in passed.drain(..) {
            if let Some(call) = self.calls.get_mut(&id) {
                self.queue.add(id, call);
            }
        }
    }

    /// Returns when hosts take their next tasks, of those that will.
    fn host_times(&self) -> HashMap<HostNumber, HostTime> {
        let mut times = HashMap::<HostNumber, HostTime>::new();
        for worker in self.workers.values() {
            if let (Some(host), Some(free)) = (worker.host, worker.free_after()) {
                let time = times.entry(host).or_default();
                time.free = if time.threads == 0 { free } else { time.free.min(free) };
                time.threads += worker.threads;
            }
        }
        times
    }

    /// Hands out tasks to one worker whose inputs may travel in this way. Calls that have none go
    /// from the queue to `passed`.
    fn fill_with(
        &mut self,
        id: WorkerId,
        mut travel: Travel,
        passed: &mut Vec<CallId>,
        effects: &mut Effects<W, C>,
    ) {
        let (worker_count, least) = (self.workers.len() as u64, self.min_pending());
        let nanos_left = self.nanos_left;
        loop {
            let first = self.queue.first(&self.calls);
            let Some(worker) = self.workers.get_mut(&id) else { return };
            let call = first.and_then(|call| self.calls.get(&call));
            let has_suspects = call.is_some_and(|call| !call.suspects.is_empty());
            let isolated = worker.is_isolated() && !has_suspects;
            if self.halted || isolated || !worker.takes_tasks() {
                return;
            }
            let first = first.filter(|_| passed.len() < LOOK_AHEAD);
            let Some(call_id) = first else {
                // One that leaves tasks to others lets these look first.
                let is_first = worker.pending_tasks == 0 && passed.is_empty();
                return mark_available(&mut self.available, worker, id, is_first);
            };
            let Some(call) = self.calls.get_mut(&call_id) else { return };
            let function = self.functions.get(&call.entry);
            let nanos = function.map_or(0.0, |function| function.nanos);
            // While a task waits, those that it waits for go before others of its function.
            let one_by_one = function.is_some_and(|function| function.waits);
            if nanos >= nanos_left {
                self.queue.remove_first(call);
                continue;
            }
            if call.near_runs > 0
                && call.suspects.is_empty()
                && !call.bring_to_front(worker.host, &mut travel, nanos)
            {
                self.queue.remove_first(call);
                passed.push(call_id);
                continue;
            }
            let Some(room) = call.room(least, self.memory) else {
                self.queue.remove_first(call);
                if !std::mem::replace(&mut call.room.throttled, true) {
                    effects.throttled.push((call.caller.clone(), call.room.taken()));
                }
                continue;
            };

            let known = if one_by_one { 0.0 } else { nanos };
            let count = call.count_for(worker, known, worker_count, room);
            let count = count.min(fitting(worker, nanos, nanos_left));
            if count == 0 {
                // The worker's next outcome fills it again.
                return;
            }
            self.queue.remove_first(call);
            call.recalled = false;
            let max_part = call.suspects.max_part();
            let run = call.take(count);
            let Some(assignment) = call.assignment(&run) else {
                call.take_back(&run);
                effects.held.push((call.caller.clone(), run));
                self.queue.add(call_id, call);
                continue;
            };
            if worker.pending_tasks == 0 {
                self.idle -= 1;
            }
            call.served +=
                (if nanos == 0.0 { ASSUMED_NANOS } else { nanos } * run.len() as f64) as u64;
            self.queue.add(call_id, call);
            worker.count_pending(&run, nanos, max_part);
            self.counts.bytes_out += run.size() as u64;
            if let Some(near) = run.near() {
                let is_at_home = worker.host == Some(near.host);
                self.counts.near_bytes += near.bytes;
                self.counts.near_bytes_at_home += if is_at_home { near.bytes } else { 0 };
            }
            effects.assignments.push((worker.handle.clone(), assignment));
            worker.pending.insert(run);
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
