//! The scheduler decides which worker gets which tasks. It knows where every task of a pool is:
//! queued, pending at one worker, or completed.
//!
//! The scheduler is a plain data structure without I/O, clock and threads. It makes no calls to
//! other parts: its methods are events, and the actions to perform are [`Effects`]. A caller
//! answers some of them with events: it submits tasks that it has prepared, and reports its room
//! for outcomes.
//!
//! - Assigning a task moves it from the queue to the pending table of a worker, where it stays
//!   until its outcome arrives. The scheduler accepts an outcome only from the worker at which the
//!   task is pending. Each task therefore completes once, even if a worker that counts as dead
//!   still answers.
//! - The number of tasks that a worker may hold follows from the mean time of their function's
//!   tasks: about [`PENDING_NANOS`](call::PENDING_NANOS) of work for each thread, and at least one
//!   task.
//! - Calls share the workers by the time of their tasks: the call that has received least time is
//!   served next.
//! - A worker's death counts against the tasks that it was certainly running. If these are not
//!   known, all its pending tasks become [suspects]. They run in parts, each alone in a worker,
//!   which get smaller with each death until that is certain.
//! - A call that a task has made goes first, so that what has begun ends before more begins. The
//!   task lends its slot while it waits, so its worker takes one task more.
//! - A call whose caller has no room for more outcomes is throttled: it gets no worker until its
//!   caller has taken some.
//! - A worker that SIGTERM asks to end returns the tasks that it has not started, and ends after
//!   the others. Its end counts against no task, nor does an eviction or a preemption.
//! - A worker that runs a task past its timeout is killed. Timeouts have a limit of their own,
//!   apart from deaths.
//! - A task that by the usual time of its function would not end before the program's time limit is
//!   not handed out.

mod call;
mod deaths;
mod dispatch;
mod effects;
mod follow;
mod moved;
mod pending;
mod ready_queue;
mod retire;
mod room;
mod statistics;
mod suspects;
mod time_limit;
mod worker;

use std::collections::{HashMap, VecDeque};

use fiber_core::{Exit, SortedMap};
use fiber_values::entry::EntryRef;

use super::run::{CallId, Run};
use super::wire::{LARGE, Results};
use call::run_size;
use dispatch::Requeue;
use fiber_runtime::runtime::HostNumber;
use ready_queue::ReadyQueue;
use retire::Duty;
use statistics::{Counts, FunctionRecord};
use worker::Worker;

pub(crate) use call::{Call, CallOptions, Values};
pub(crate) use deaths::Loss;
pub(crate) use effects::{Completion, Effects, Notice};
pub(crate) use retire::Retirement;
pub(crate) use room::{Amount, Report, Room};

/// Identifies one incarnation of a worker.
pub(crate) type WorkerId = u64;

/// The number of tasks that a call may have pending for each thread of the workers, however large
/// they are: one that runs and one that is next.
pub(crate) const MIN_PENDING: u64 = 2;

/// The tasks of a pool and their workers. `W` is the handle of a worker, `C` the handle of a caller.
pub(crate) struct Scheduler<W, C> {
    calls: SortedMap<CallId, Call<C>>,
    /// Calls that may still submit tasks.
    feeding: Vec<CallId>,
    queue: ReadyQueue,
    workers: SortedMap<WorkerId, Worker<W>>,
    /// Workers that can take more tasks, idle ones first.
    available: VecDeque<WorkerId>,
    functions: HashMap<EntryRef, FunctionRecord>,
    counts: Counts,
    /// Workers without pending tasks.
    idle: usize,
    /// Workers that drain.
    retiring: usize,
    /// Threads of all workers.
    threads: u64,
    /// Whether no task is handed out any more, because the program is about to end.
    halted: bool,
    /// The time for tasks until the program ends; infinite without a time limit.
    nanos_left: f64,
    /// How many more bytes values may take in this process.
    memory: u64,
    /// How many nanoseconds a byte travels to a host.
    travel_nanos: f64,
}

impl<W: Clone, C: Clone> Scheduler<W, C> {
    pub(crate) fn new() -> Scheduler<W, C> {
        Scheduler {
            calls: SortedMap::new(),
            feeding: Vec::new(),
            queue: ReadyQueue::default(),
            workers: SortedMap::new(),
            available: VecDeque::new(),
            functions: HashMap::new(),
            counts: Counts::default(),
            idle: 0,
            retiring: 0,
            threads: 0,
            halted: false,
            nanos_left: f64::INFINITY,
            memory: u64::MAX,
            travel_nanos: 1.0,
        }
    }

    /// Returns how many workers have no pending tasks.
    pub(crate) fn idle(&self) -> usize {
        self.idle
    }

    /// Returns how many workers take tasks.
    pub(crate) fn workers(&self) -> usize {
        self.workers.len() - self.retiring
    }

    /// Returns how many tasks were submitted and are not completed.
    pub(crate) fn open(&self) -> u64 {
        self.calls.values().map(|call| call.open).sum()
    }

    /// Returns whether there is no call.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns the handles of all workers.
    pub(crate) fn handles(&self) -> Vec<W> {
        self.workers.values().map(|worker| worker.handle.clone()).collect()
    }

    /// Returns the caller of a call that is not done.
    pub(crate) fn caller(&self, id: CallId) -> Option<&C> {
        self.calls.get(&id).map(|call| &call.caller)
    }

    /// Notes how many nanoseconds a byte travels to a host.
    pub(crate) fn set_travel_nanos(&mut self, nanos: f64) {
        self.travel_nanos = nanos;
    }

    /// Notes how many more bytes values may take in this process, of `limit` in all. When half of
    /// them are taken, tasks that take values go before those that make some.
    pub(crate) fn set_memory(&mut self, room: u64, limit: u64) {
        self.memory = room;
        self.queue.set_memory(room, limit, &mut self.calls);
    }

    /// Adds a call.
    pub(crate) fn begin(&mut self, id: CallId, mut call: Call<C>) {
        call.served = self.queue.served(&self.calls);
        self.calls.insert(id, call);
        self.feeding.push(id);
    }

    /// Queues tasks of a call.
    pub(crate) fn submit(&mut self, run: Run, effects: &mut Effects<W, C>) {
        self.enqueue(run);
        self.dispatch(effects);
    }

    /// Notes that the call submits `total` tasks in all. Some of them may be on their way. `None`
    /// stands for those that were submitted, because the call has stopped.
    pub(crate) fn finish_feeding(&mut self, id: CallId, total: Option<u64>) {
        self.feeding.retain(|feeding| *feeding != id);
        if let Some(call) = self.calls.get_mut(&id) {
            call.total = Some(total.unwrap_or(0));
        }
        self.remove_if_done(id);
    }

    /// Removes a call. Returns the workers that have pending tasks of it.
    pub(crate) fn cancel(&mut self, id: CallId) -> Vec<W> {
        if self.calls.remove(&id).is_none() {
            return Vec::new();
        }
        self.feeding.retain(|feeding| *feeding != id);
        let holders = self.workers.values().filter(|worker| worker.pending.has(id));
        holders.map(|worker| worker.handle.clone()).collect()
    }

    /// Removes all calls. Returns their callers.
    pub(crate) fn abandon(&mut self) -> Vec<C> {
        self.queue = ReadyQueue::default();
        self.feeding.clear();
        std::mem::take(&mut self.calls).into_entries().map(|(_, call)| call.caller).collect()
    }

    /// Adds a worker that is ready. It takes at most `quota` tasks.
    pub(crate) fn join(
        &mut self,
        id: WorkerId,
        handle: W,
        threads: u64,
        quota: Option<u64>,
        host: Option<HostNumber>,
        effects: &mut Effects<W, C>,
    ) {
        let former = self.workers.insert(id, Worker::new(handle, threads, quota, host));
        debug_assert!(former.is_none(), "each incarnation of a worker has its own id");
        self.threads += threads;
        self.idle += 1;
        self.fill(id, effects);
        self.want(effects);
    }

    /// Handles outcomes from a worker.
    pub(crate) fn complete(&mut self, id: WorkerId, results: Results, effects: &mut Effects<W, C>) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        if worker.duty == Duty::Blocked {
            worker.duty = Duty::Open;
        }
        let mut outcomes = results.outcomes;
        let is_large = outcomes.len() >= LARGE || !results.blobs.is_empty();
        self.counts.bytes_in += (outcomes.len() + results.blobs.total_len()) as u64;
        let mut done = 0;
        let call = &mut self.calls.get_mut(&results.call);
        let mut retries = Vec::new();
        for part in results.runs {
            let bytes = outcomes.split_to((part.length as usize).min(outcomes.len()));
            // Results with blobs are the outcome of one task.
            let blobs = results.blobs.clone();
            let mut rest = Run::of(results.call, part.first, part.count, bytes, blobs);
            for run in worker.pending.take(results.call, rest.start, rest.end) {
                done += run.len();
                let outcome = rest.take(run.start, run.end);
                if let Some(call) = call {
                    call.complete(run, outcome, &mut retries, effects);
                }
            }
        }
        if let (Some(call), true) = (call, done > 0) {
            let retried = retries.len() as u64;
            let failed = u64::from(results.failed).min(done);
            let record = || FunctionRecord::of(call.function);
            let function = self.functions.entry(call.entry).or_insert_with(record);
            function.count(done, results.busy);
            function.is_large |= is_large;
            function.done += done - retried;
            function.failed += failed - retried.min(failed);
            self.counts.retried += retried;
            let size = run_size(function.nanos);
            if call.total.is_none() && std::mem::replace(&mut call.run_size, size) != size {
                effects.run_sizes.push((call.caller.clone(), size));
            }
            worker.counts.done += done;
            worker.counts.failed += failed;
            worker.counts.busy += results.busy;
        }
        self.update_throttling(results.call, effects);
        self.release(id, done);
        for run in retries {
            self.requeue(run, Requeue::Front);
        }
        self.remove_if_done(results.call);
        self.fill(id, effects);
        // A worker that takes no more tasks leaves those that run again to the others.
        self.dispatch(effects);
        self.want(effects);
        self.retire_if_done(id, effects);
    }

    /// Adapts to the sizes of outcomes that have arrived: queues a throttled call again, because
    /// more outcomes may fit now, or recalls tasks whose outcomes may not fit any more.
    fn update_throttling(&mut self, id: CallId, effects: &mut Effects<W, C>) {
        let (least, memory) = (self.min_pending(), self.memory);
        let Some(call) = self.calls.get_mut(&id) else { return };
        self.queue.add(id, call);
        if call.recalled || !call.room.overflows(call.pending(), least, memory) {
            return;
        }
        call.recalled = true;
        let holders = self.workers.values().filter(|worker| worker.pending.has(id));
        effects.recalls.extend(holders.map(|worker| (worker.handle.clone(), id)));
    }

    /// Notes what a caller has done with outcomes. Queues its call again, if it is throttled.
    pub(crate) fn report(&mut self, id: CallId, report: Report, effects: &mut Effects<W, C>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.room.note(report);
        self.queue_if_throttled(id, effects);
    }

    /// Notes that a caller takes each outcome when it arrives, and has taken those that were there.
    /// It does not report them.
    pub(crate) fn takes_at_once(&mut self, id: CallId, effects: &mut Effects<W, C>) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.room.take_at_once();
        self.queue_if_throttled(id, effects);
    }

    fn queue_if_throttled(&mut self, id: CallId, effects: &mut Effects<W, C>) {
        let served = self.queue.served(&self.calls);
        let Some(call) = self.calls.get_mut(&id) else { return };
        if !std::mem::take(&mut call.room.throttled) {
            return;
        }
        if call.has_tasks() && !call.is_queued {
            // A call does not catch up on time that others received while it was throttled.
            call.served = call.served.max(served);
            self.queue.add(id, call);
        }
        self.dispatch(effects);
    }

    /// Queues tasks again that a worker returns because it has not started them.
    pub(crate) fn returned(
        &mut self,
        id: WorkerId,
        call: CallId,
        first: u64,
        count: u64,
        effects: &mut Effects<W, C>,
    ) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let runs = worker.pending.take(call, first, first.saturating_add(count));
        let (tasks, place) = (runs.iter().map(Run::len).sum(), worker.requeue());
        if worker.duty == Duty::Open {
            worker.duty = Duty::Blocked;
        }
        if let Some(quota) = &mut worker.quota {
            *quota += tasks;
        }
        self.release(id, tasks);
        for run in runs.into_iter().rev() {
            if run.is_ahead { self.hold(run, effects) } else { self.requeue(run, place) }
        }
        // A blocked worker gets tasks again with its next outcome. A worker that has a free slot may
        // send none before that is taken, so it gets tasks now.
        self.dispatch(effects);
        if self.workers.get(&id).is_some_and(Worker::has_free_slot) {
            self.fill(id, effects);
        }
        self.retire_if_done(id, effects);
    }

    /// Notes that a task of a worker waits for others and lends them its slot, or goes on.
    pub(crate) fn waits(
        &mut self,
        id: WorkerId,
        task: (CallId, u64),
        waits: bool,
        effects: &mut Effects<W, C>,
    ) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.waiting.retain(|other| *other != task);
        if waits {
            worker.waiting.push(task);
            if let Some(call) = self.calls.get(&task.0) {
                let record = || FunctionRecord::of(call.function);
                self.functions.entry(call.entry).or_insert_with(record).waits = true;
            }
            self.fill(id, effects);
            self.want(effects);
        }
    }

    /// Returns the mean time of a task of this function in nanoseconds; 0 if it is not known.
    pub(crate) fn mean_nanos(&self, entry: EntryRef) -> f64 {
        self.functions.get(&entry).map_or(0.0, |function| function.nanos)
    }

    /// Notes that a task is abandoned, whose call is one of a task of this worker.
    pub(crate) fn abandoned(
        &mut self,
        id: WorkerId,
        (call, index): (CallId, u64),
        workers: u32,
        exit: Exit,
        effects: &mut Effects<W, C>,
    ) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let tasks = worker.pending.take(call, index, index + 1).len() as u64;
        if tasks > 0
            && let Some(call) = self.calls.get_mut(&call)
        {
            call.abandon(index, workers, exit, effects);
        }
        self.release(id, tasks);
        self.remove_if_done(call);
        self.fill(id, effects);
    }

    /// Hands out no more tasks. Returns the callers of the durable calls.
    pub(crate) fn halt(&mut self) -> Vec<C> {
        self.halted = true;
        let durable = self.calls.values().filter(|call| call.durable);
        durable.map(|call| call.caller.clone()).collect()
    }

    /// Returns how many tasks of durable calls the workers run at present.
    pub(crate) fn running_durable(&self) -> u64 {
        let durable = |run: &&Run| self.calls.get(&run.call).is_some_and(|call| call.durable);
        let workers = self.workers.values().map(|worker| {
            let pending: u64 = worker.pending.iter().filter(durable).map(Run::len).sum();
            pending.min(worker.slots())
        });
        workers.sum()
    }

    /// Notes that a task of a call fails without having been submitted, and counts as if it had.
    pub(crate) fn skip(&mut self, id: CallId) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.submitted += 1;
        }
        self.remove_if_done(id);
    }

    fn remove_if_done(&mut self, id: CallId) {
        if self.calls.get(&id).is_some_and(Call::is_done) {
            self.calls.remove(&id);
        }
    }

    /// Counts `tasks` tasks of a worker as not pending any more.
    fn release(&mut self, id: WorkerId, tasks: u64) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let was_busy = worker.pending_tasks > 0;
        let left = worker.pending_tasks.saturating_sub(tasks);
        let share =
            if worker.pending_tasks == 0 { 0.0 } else { left as f64 / worker.pending_tasks as f64 };
        worker.pending_tasks = left;
        worker.pending_nanos *= share;
        worker.pending_bytes = (worker.pending_bytes as f64 * share) as usize;
        if left == 0 {
            worker.long_running.clear();
            self.idle += usize::from(was_busy && worker.retirement().is_none());
        } else if !worker.long_running.is_empty() {
            let pending = &worker.pending;
            worker.long_running.retain(|task| pending.find(task.call, task.index).is_some());
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
