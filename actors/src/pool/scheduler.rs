//! Where every task of a pool is: queued, pending at one worker, or settled. No I/O, no clock, no
//! threads: what is to be done comes back as [`Effects`].
//!
//! - A task leaves the queue when it is assigned to a worker, and stays in that worker's pending
//!   table until its outcome arrives. An outcome counts only if the task is pending at the worker
//!   that sends it: so each task is settled once, whatever a worker that was given up for dead says
//!   later.
//! - How many tasks a worker may hold follows the time that tasks of their function take (its
//!   pace): about [`HORIZON`](call::HORIZON) of work for each of its threads, and at least one
//!   task.
//! - Calls share the workers by the time that their tasks take: the call that has had least is
//!   served next.
//! - When a worker dies and it is certain which tasks it was running, the death counts against
//!   them. When it is not, all that it held are suspects: each is run alone, so that the next death
//!   is certain.
//! - A call whose caller has no room for more outcomes is kept back until it has.
//! - A task that runs past its timeout costs its worker, but that is no death: timeouts have a
//!   count of their own.

mod call;
mod worker;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use fiber_core::entry::EntryRef;
use fiber_core::{Exit, ExitReason};

use super::run::{CallId, Run};
use super::wire::{Assignment, Results};
use call::{Call, morsel};
use worker::{Blame, Cause, Worker, find, list};

pub(crate) use worker::Tasks;

/// One incarnation of a worker.
pub(crate) type WorkerId = u64;

/// What a task is thought to take, before any of its function is known, for the sharing between
/// calls.
const UNKNOWN: f64 = 1e6;

/// Tasks that a call may have under way for each thread of the workers, whatever they take: one
/// runs, one is next.
pub(crate) const LEAST: u64 = 2;

/// What a call asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Terms {
    /// How many tasks are handed out together, at least.
    pub(crate) chunk: u32,
    /// How long one task may run.
    pub(crate) timeout: Option<Duration>,
    /// How often a task that failed by itself is tried again.
    pub(crate) retries: u32,
    /// How many workers may die while they run a task before it is abandoned.
    pub(crate) deaths: u32,
    /// How often a task may run past `timeout` before it is abandoned.
    pub(crate) timeouts: u32,
}

/// Who made a call: has its tasks, and wants their outcomes.
pub(crate) trait Caller: Clone {
    /// Tasks that are ready and have not been submitted.
    fn more(&self) -> Option<Run>;

    /// Hears how many tasks are worth being handed out together.
    fn paced(&self, morsel: u64);

    /// Hears that outcomes of so many tasks and bytes are about to be passed on to it.
    fn stored(&self, tasks: u64, bytes: u64);

    /// How many more tasks may be handed out when so many are pending: enough for `least` in any
    /// case.
    fn room(&self, pending: u64, least: u64) -> u64;

    /// Hears that tasks are kept back for want of room: it asks for [`Scheduler::resume`] when there
    /// is some.
    fn withhold(&self);

    /// Whether pending tasks that have not begun should come back.
    fn overflows(&self, pending: u64, least: u64) -> bool;

    /// The task without whose outcome it can't take others, which it stores.
    fn needs(&self) -> Option<u64>;
}

/// What is to be done after the scheduler was changed.
pub(crate) struct Effects<W, C> {
    pub(crate) assignments: Vec<(W, Assignment)>,
    pub(crate) settled: Vec<(C, Settled)>,
    /// Workers that are to give the tasks of a call back that they have not begun.
    pub(crate) recalls: Vec<(W, CallId)>,
    /// Workers to be ended at once.
    pub(crate) kills: Vec<(W, ExitReason)>,
    /// Workers that are to end, because they have done all that they were to do; and whether that
    /// is because they were drained, so that none takes their place.
    pub(crate) retired: Vec<(W, bool)>,
}

impl<W, C> Default for Effects<W, C> {
    fn default() -> Effects<W, C> {
        let (assignments, settled, kills) = (Vec::new(), Vec::new(), Vec::new());
        Effects { assignments, settled, recalls: Vec::new(), kills, retired: Vec::new() }
    }
}

/// The outcome of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// What they returned, or how they failed by themselves, encoded.
    Outcomes(Run),
    /// It cost too many workers, by deaths or by timeouts.
    Abandoned { index: u64, workers: u32, exit: Exit },
}

/// The state of a pool. `W` stands for a worker, `C` for a caller.
pub(crate) struct Scheduler<W, C> {
    calls: HashMap<CallId, Call<C>>,
    /// Calls that may have more tasks to come.
    feeding: Vec<CallId>,
    /// Calls with tasks to hand out, by how much they have been served.
    queue: BTreeSet<(u64, CallId)>,
    workers: HashMap<WorkerId, Worker<W>>,
    with_room: VecDeque<WorkerId>,
    /// Nanoseconds that a task of a function takes.
    paces: HashMap<EntryRef, f64>,
    idle: usize,
    /// Threads of all workers.
    threads: u64,
}

impl<W: Clone, C: Caller> Scheduler<W, C> {
    pub(crate) fn new() -> Scheduler<W, C> {
        Scheduler {
            calls: HashMap::new(),
            feeding: Vec::new(),
            queue: BTreeSet::new(),
            workers: HashMap::new(),
            with_room: VecDeque::new(),
            paces: HashMap::new(),
            idle: 0,
            threads: 0,
        }
    }

    /// How many workers have nothing to do.
    pub(crate) fn idle(&self) -> usize {
        self.idle
    }

    /// How many workers there are that take tasks.
    pub(crate) fn workers(&self) -> usize {
        self.workers.values().filter(|worker| !worker.draining).count()
    }

    /// How many tasks were submitted and are not settled.
    pub(crate) fn open(&self) -> u64 {
        self.calls.values().map(|call| call.open).sum()
    }

    /// Whether no call is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// All workers.
    pub(crate) fn handles(&self) -> Vec<W> {
        self.workers.values().map(|worker| worker.handle.clone()).collect()
    }

    /// A call begins.
    pub(crate) fn begin(&mut self, id: CallId, caller: C, entry: EntryRef, terms: Terms) {
        let served = self.queue.first().map_or(0, |(served, _)| *served);
        let (ready, suspects, strikes) = (VecDeque::new(), VecDeque::new(), HashMap::new());
        let call = Call {
            caller,
            entry,
            terms,
            ready,
            ready_tasks: 0,
            suspects,
            served,
            open: 0,
            strikes,
            recalled: false,
        };
        self.calls.insert(id, call);
        self.feeding.push(id);
    }

    /// Tasks are to be done.
    pub(crate) fn submit(&mut self, run: Run, effects: &mut Effects<W, C>) {
        self.enqueue(run);
        self.dispatch(effects);
    }

    /// No more tasks of the call come.
    pub(crate) fn finish_feeding(&mut self, id: CallId) {
        self.feeding.retain(|feeding| *feeding != id);
        self.forget_if_done(id);
    }

    /// The call's outcomes are not wanted any more. The workers that hold tasks of it are to be
    /// told.
    pub(crate) fn cancel(&mut self, id: CallId) -> Vec<W> {
        let Some(call) = self.calls.remove(&id) else { return Vec::new() };
        self.queue.remove(&(call.served, id));
        self.feeding.retain(|feeding| *feeding != id);
        let concerned =
            self.workers.values().filter(|worker| worker.pending_of(id).next().is_some());
        concerned.map(|worker| worker.handle.clone()).collect()
    }

    /// A worker is ready for tasks.
    pub(crate) fn join(
        &mut self,
        id: WorkerId,
        handle: W,
        threads: u64,
        quota: Option<u64>,
        effects: &mut Effects<W, C>,
    ) {
        let worker = Worker {
            handle,
            threads,
            pending: BTreeMap::new(),
            held: 0,
            held_nanos: 0.0,
            held_bytes: 0,
            alone: false,
            held_up: false,
            draining: false,
            quota,
            running: Vec::new(),
            overdue: Vec::new(),
            listed: false,
            tasks: Tasks::None,
        };
        self.workers.insert(id, worker);
        self.threads += threads;
        self.idle += 1;
        self.fill(id, effects);
    }

    /// Outcomes have arrived from a worker.
    pub(crate) fn complete(&mut self, id: WorkerId, results: Results, effects: &mut Effects<W, C>) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.held_up = false;
        let mut outcomes = results.outcomes;
        let mut done = 0;
        let call = &mut self.calls.get_mut(&results.call);
        let mut again = Vec::new();
        for piece in results.pieces {
            let bytes = outcomes.split_to((piece.length as usize).min(outcomes.len()));
            let mut rest =
                Run::new(results.call, piece.first, piece.first + u64::from(piece.count), bytes);
            for run in worker.take(results.call, rest.start, rest.end) {
                done += run.len();
                let outcome = rest.take(run.start, run.end);
                if let Some(call) = call {
                    call.settle(run, outcome, &mut again, effects);
                }
            }
        }
        if let (Some(call), true) = (call, done > 0) {
            let pace = self.paces.entry(call.entry).or_insert(0.0);
            let sample = results.busy as f64 / done as f64;
            *pace = if *pace == 0.0 { sample.max(1.0) } else { 0.5 * *pace + 0.5 * sample };
            call.caller.paced(morsel(*pace));
        }
        self.look_at_room(results.call, effects);
        self.note_idle(id, done);
        for run in again {
            self.requeue(run, Requeue::Front);
        }
        self.forget_if_done(results.call);
        self.refill(id, effects);
    }

    /// After outcomes of a call have arrived: tasks that were kept back may fit now; or those that
    /// were handed out when outcomes seemed smaller don't, and have to come back.
    fn look_at_room(&mut self, id: CallId, effects: &mut Effects<W, C>) {
        let least = self.least();
        let Some(call) = self.calls.get_mut(&id) else { return };
        if call.has_tasks() {
            self.queue.insert((call.served, id));
        }
        if call.recalled || !call.caller.overflows(call.pending(), least) {
            return;
        }
        call.recalled = true;
        let holders = self.workers.values().filter(|worker| worker.pending_of(id).next().is_some());
        effects.recalls.extend(holders.map(|worker| (worker.handle.clone(), id)));
    }

    /// A caller has taken outcomes, so tasks of its call that were kept back may be handed out.
    pub(crate) fn resume(&mut self, id: CallId, effects: &mut Effects<W, C>) {
        let first = self.queue.first().map(|(served, _)| *served);
        let Some(call) = self.calls.get_mut(&id) else { return };
        if call.has_tasks() && !self.queue.contains(&(call.served, id)) {
            // What others were given meanwhile is not made up for.
            call.served = call.served.max(first.unwrap_or(0));
            self.queue.insert((call.served, id));
        }
        self.dispatch(effects);
    }

    /// How many tasks a call may have handed out, whatever they weigh: enough to keep all workers
    /// busy.
    fn least(&self) -> u64 {
        LEAST * self.threads
    }

    /// A worker gives tasks back that it has not begun.
    pub(crate) fn returned(
        &mut self,
        id: WorkerId,
        call: CallId,
        first: u64,
        count: u64,
        effects: &mut Effects<W, C>,
    ) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let runs = worker.take(call, first, first.saturating_add(count));
        let tasks = runs.iter().map(Run::len).sum();
        worker.held_up = true;
        if let Some(quota) = &mut worker.quota {
            *quota += tasks;
        }
        self.note_idle(id, tasks);
        for run in runs.into_iter().rev() {
            self.requeue(run, Requeue::Front);
        }
        // A worker that is held up asks again when it goes on; one that has nothing left has
        // nothing to go on with.
        self.dispatch(effects);
        if self.workers.get(&id).is_some_and(|worker| worker.held == 0) {
            self.fill(id, effects);
        }
        self.retire_if_done(id, effects);
    }

    /// A worker has been running a task for a while.
    pub(crate) fn runs(&mut self, id: WorkerId, call: CallId, index: u64) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.running.push((call, index));
        }
    }

    /// A worker has been running a task for longer than it may.
    pub(crate) fn overdue(
        &mut self,
        id: WorkerId,
        call: CallId,
        index: u64,
        effects: &mut Effects<W, C>,
    ) {
        let limit = self.calls.get(&call).and_then(|call| call.terms.timeout);
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let runs_it = worker.pending_of(call).any(|run| run.contains(index));
        if let (Some(limit), true) = (limit, runs_it) {
            worker.overdue.push((call, index));
            effects.kills.push((worker.handle.clone(), ExitReason::TaskTimedOut(limit)));
        }
    }

    /// A worker runs a task of a call that was cancelled, tasks under way included.
    pub(crate) fn runs_cancelled(&mut self, id: WorkerId, effects: &mut Effects<W, C>) {
        if let Some(worker) = self.workers.get(&id) {
            effects.kills.push((worker.handle.clone(), ExitReason::TaskCancelled));
        }
    }

    /// Whether any worker was ever given a task.
    pub(crate) fn is_of_use(&self) -> bool {
        self.workers.values().any(|worker| worker.tasks == Tasks::Some)
    }

    /// A worker is gone. Its tasks are queued again, before all others, or abandoned. Returns
    /// whether it ever had any.
    pub(crate) fn lost(&mut self, id: WorkerId, exit: &Exit, effects: &mut Effects<W, C>) -> Tasks {
        let Some(worker) = self.workers.remove(&id) else { return Tasks::None };
        let tasks = worker.tasks;
        self.threads -= worker.threads;
        if worker.held == 0 && !worker.draining {
            self.idle -= 1;
        }
        let blame = worker.blame(&exit.reason);
        let calls: BTreeSet<_> = worker.pending.keys().map(|(call, _)| *call).collect();
        for run in worker.pending.into_values().rev() {
            self.put_back(run, &blame, exit, effects);
        }
        calls.into_iter().for_each(|call| self.forget_if_done(call));
        self.dispatch(effects);
        tasks
    }

    /// Lets one worker end when it has done what it holds: the one that holds least.
    pub(crate) fn drain_one(&mut self, effects: &mut Effects<W, C>) -> Option<W> {
        let working = self.workers.iter().filter(|(_, worker)| !worker.draining);
        let (&id, _) = working.min_by_key(|(id, worker)| (worker.held, *id))?;
        let worker = self.workers.get_mut(&id)?;
        worker.draining = true;
        let handle = worker.handle.clone();
        if worker.held == 0 {
            self.idle -= 1;
        }
        self.retire_if_done(id, effects);
        Some(handle)
    }

    /// Ends all calls that are under way; their callers are returned.
    pub(crate) fn abandon(&mut self) -> Vec<C> {
        self.queue.clear();
        self.feeding.clear();
        self.calls.drain().map(|(_, call)| call.caller).collect()
    }

    fn put_back(&mut self, run: Run, blame: &Blame, exit: &Exit, effects: &mut Effects<W, C>) {
        let (cause, guilty) = match blame {
            Blame::Nobody => return self.requeue(run, Requeue::Front),
            Blame::Someone => return self.requeue(run, Requeue::Suspect),
            Blame::These(cause, tasks) => (*cause, tasks),
        };
        let mut rest = Some(run);
        let mut parts = Vec::new();
        while let Some(run) = rest.take() {
            let here =
                guilty.iter().filter(|(call, index)| *call == run.call && run.contains(*index));
            let Some((_, index)) = here.min() else {
                parts.push((run, false));
                break;
            };
            let (task, before, after) = run.cut(*index, *index + 1);
            parts.extend(before.map(|run| (run, false)));
            parts.extend(task.map(|run| (run, true)));
            rest = after;
        }
        for (run, guilty) in parts.into_iter().rev() {
            if guilty {
                self.strike(run, cause, exit, effects)
            } else {
                self.requeue(run, Requeue::Front)
            }
        }
    }

    /// This one task cost its worker.
    fn strike(&mut self, run: Run, cause: Cause, exit: &Exit, effects: &mut Effects<W, C>) {
        let Some(call) = self.calls.get_mut(&run.call) else { return };
        let strikes = call.strikes.entry(run.start).or_default();
        match cause {
            Cause::Death => strikes.deaths += 1,
            Cause::Timeout => strikes.timeouts += 1,
        }
        if strikes.deaths < call.terms.deaths && strikes.timeouts < call.terms.timeouts {
            return self.requeue(run, Requeue::Suspect);
        }
        let workers = strikes.deaths + strikes.timeouts;
        let settled = Settled::Abandoned { index: run.start, workers, exit: exit.clone() };
        call.open -= 1;
        call.caller.stored(1, 0);
        effects.settled.push((call.caller.clone(), settled));
    }

    fn enqueue(&mut self, run: Run) {
        let Some(call) = self.calls.get_mut(&run.call) else { return };
        call.open += run.len();
        call.ready_tasks += run.len();
        self.queue.insert((call.served, run.call));
        call.ready.push_back(run);
    }

    fn requeue(&mut self, run: Run, how: Requeue) {
        let Some(call) = self.calls.get_mut(&run.call) else { return };
        self.queue.insert((call.served, run.call));
        match how {
            Requeue::Front => {
                call.ready_tasks += run.len();
                call.ready.push_front(run);
            }
            Requeue::Suspect => call.suspects.push_back(run),
        }
    }

    fn forget_if_done(&mut self, id: CallId) {
        let done = self.calls.get(&id).is_some_and(|call| call.open == 0);
        if done
            && !self.feeding.contains(&id)
            && let Some(call) = self.calls.remove(&id)
        {
            self.queue.remove(&(call.served, id));
        }
    }

    /// Books tasks that a worker holds no longer.
    fn note_idle(&mut self, id: WorkerId, tasks: u64) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let was_busy = worker.held > 0;
        let left = worker.held.saturating_sub(tasks);
        let share = if worker.held == 0 { 0.0 } else { left as f64 / worker.held as f64 };
        worker.held = left;
        worker.held_nanos *= share;
        worker.held_bytes = (worker.held_bytes as f64 * share) as usize;
        if left == 0 {
            worker.alone = false;
            worker.running.clear();
            self.idle += usize::from(was_busy && !worker.draining);
        } else if !worker.running.is_empty() {
            let pending = &worker.pending;
            worker.running.retain(|(call, index)| find(pending, *call, *index).is_some());
        }
    }

    fn retire_if_done(&mut self, id: WorkerId, effects: &mut Effects<W, C>) {
        let Some(worker) = self.workers.get(&id) else { return };
        if worker.held == 0 && (worker.draining || worker.quota == Some(0)) {
            effects.retired.push((worker.handle.clone(), worker.draining));
        }
    }

    /// Gives a worker that has room again what there is for it.
    fn refill(&mut self, id: WorkerId, effects: &mut Effects<W, C>) {
        self.fill(id, effects);
        self.retire_if_done(id, effects);
    }

    /// Hands out what is ready to the workers that have room, idle ones first.
    pub(crate) fn dispatch(&mut self, effects: &mut Effects<W, C>) {
        self.fetch();
        for _ in 0..self.with_room.len() {
            if self.queue.is_empty() {
                return;
            }
            let Some(id) = self.with_room.pop_front() else { return };
            if let Some(worker) = self.workers.get_mut(&id) {
                worker.listed = false;
                self.fill(id, effects);
            }
        }
    }

    /// Hands out to one worker, until it has no room or nothing is ready.
    fn fill(&mut self, id: WorkerId, effects: &mut Effects<W, C>) {
        let (worker_count, least) = (self.workers.len() as u64, self.least());
        loop {
            let Some(worker) = self.workers.get_mut(&id) else { return };
            let held_up = worker.held_up && worker.held >= worker.threads;
            if worker.draining || worker.alone || worker.quota == Some(0) || held_up {
                return;
            }
            self.fetch();
            let next = self.queue.first().copied();
            let Some(worker) = self.workers.get_mut(&id) else { return };
            let Some((served, call_id)) = next else {
                return list(&mut self.with_room, worker, id);
            };
            let Some(call) = self.calls.get_mut(&call_id) else { return };
            let Some(room) = call.room(least) else {
                self.queue.remove(&(served, call_id));
                call.caller.withhold();
                // There may be room by now, and then nobody asks for this again.
                if call.room(least).is_some() {
                    self.queue.insert((served, call_id));
                }
                continue;
            };

            let pace = self.paces.get(&call.entry).copied().unwrap_or(0.0);
            let suspect = !call.suspects.is_empty();
            let count = if suspect {
                u64::from(worker.held == 0)
            } else {
                call.count_for(worker, pace, worker_count, room)
            };
            if count == 0 {
                // It will ask again when it has done something.
                return;
            }
            self.queue.remove(&(served, call_id));
            call.recalled = false;
            let run = call.take(count);
            if worker.held == 0 {
                self.idle -= 1;
            }
            call.served += (if pace == 0.0 { UNKNOWN } else { pace } * run.len() as f64) as u64;
            if call.has_tasks() {
                self.queue.insert((call.served, call_id));
            }
            worker.hold(&run, pace, suspect);
            effects.assignments.push((worker.handle.clone(), call.assignment(&run)));
            worker.pending.insert((run.call, run.start), run);
        }
    }

    /// Asks the callers that have nothing queued for what they have prepared.
    fn fetch(&mut self) {
        for index in 0..self.feeding.len() {
            let call = self.calls.get(&self.feeding[index]).filter(|call| call.ready.is_empty());
            if let Some(run) = call.and_then(|call| call.caller.more()) {
                self.enqueue(run);
            }
        }
    }
}

enum Requeue {
    Front,
    Suspect,
}

#[cfg(test)]
mod tests;
