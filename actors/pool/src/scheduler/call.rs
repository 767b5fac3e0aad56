//! One call in the scheduler.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fiber_core::Exit;
use fiber_runtime::runtime::MIN_STAY;
use fiber_values::blob::{self, Blobs};
use fiber_values::entry::EntryRef;

use super::room::Room;
use super::suspects::Suspects;
use super::worker::Worker;
use super::{Completion, Effects};
use crate::run::{Items, Run};
use crate::streams::IsFinal;
use crate::wire::Assignment;

/// Nanoseconds of work that may be pending for each thread of a worker.
pub(super) const PENDING_NANOS: f64 = 4e6;
/// Nanoseconds of work that are not worth splitting among workers.
const RUN_NANOS: f64 = 200e3;
/// Tasks that may be pending for each thread of a worker, however short they are.
const PENDING_TASKS: u64 = 16 << 10;
/// Bytes of pending arguments from which on a worker gets no more tasks.
const PENDING_BYTES: usize = 2 << 20;

/// The options of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallOptions {
    /// The least number of tasks to hand out together.
    pub(crate) chunk: u32,
    /// Time limit of one task.
    pub(crate) timeout: Option<Duration>,
    /// How often a task that failed by itself runs again.
    pub(crate) retries: u32,
    /// How many workers may die while they run a task before it is abandoned.
    pub(crate) max_deaths: u32,
    /// How often a task may run past `timeout` before it is abandoned.
    pub(crate) max_timeouts: u32,
    /// Whether its tasks are handed out before those of other calls, because they free memory.
    pub(crate) comes_first: bool,
}

/// Where the values of a call's tasks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// To this process.
    Come,
    /// Large ones stay at the host where they were made, until the caller wants them.
    LargeStay,
    /// They stay at the host where they were made, as outputs.
    Stay,
}

impl Values {
    /// The byte for these values in a message.
    pub(crate) fn to_byte(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_byte(byte: u8) -> Values {
        match byte {
            1 => Values::LargeStay,
            2 => Values::Stay,
            _ => Values::Come,
        }
    }

    /// Returns of how many bytes an encoding is that stays.
    pub(crate) fn min_stay(self) -> usize {
        match self {
            Values::Come => usize::MAX,
            Values::LargeStay => MIN_STAY,
            Values::Stay => blob::MIN_LEN,
        }
    }
}

/// A call with its tasks that are not completed.
pub(crate) struct Call<C> {
    /// The handle of the call's caller, for effects.
    pub(super) caller: C,
    pub(super) entry: EntryRef,
    /// The name of its function, for people.
    pub(crate) function: &'static str,
    pub(super) options: CallOptions,
    /// How many tasks are around the call: each has made the next.
    pub(crate) depth: u32,
    /// Whether its tasks have outputs of others among their arguments.
    pub(super) takes_outputs: bool,
    /// The context that travels with the call's tasks, encoded.
    pub(crate) context: Bytes,
    /// Whether outcomes are recorded before the caller receives them.
    pub(crate) durable: bool,
    pub(crate) values: Values,
    pub(super) room: Room,
    /// Tasks that were submitted.
    pub(super) submitted: u64,
    /// How many tasks the call submits in all, once it is known.
    pub(super) total: Option<u64>,
    /// How many tasks are worth a message of their own, as the caller knows it.
    pub(super) run_size: u64,
    pub(super) ready: VecDeque<Run>,
    pub(super) ready_tasks: u64,
    /// How many ready runs have inputs in some host.
    pub(super) near_runs: usize,
    pub(super) suspects: Suspects,
    /// Nanoseconds of worker time that the call has received.
    pub(super) served: u64,
    /// Tasks that were submitted and are not completed.
    pub(super) open: u64,
    /// Tasks that are completed.
    pub(super) done: u64,
    /// When the call began, for people who look at the pool.
    pub(crate) since: SystemTime,
    /// Counts of the tasks that did not complete at the first attempt.
    pub(super) failures: HashMap<u64, FailureCounts>,
    /// Whether its tasks may not run again, once this is true.
    pub(crate) is_final: Option<IsFinal>,
    /// Whether the call is in the scheduler's queue, which sets it.
    pub(super) is_queued: bool,
    /// Whether workers were asked to return tasks, and none has been handed out since.
    pub(super) recalled: bool,
}

/// How often a task did not complete, by cause.
#[derive(Clone, Copy, Default)]
pub(super) struct FailureCounts {
    pub(super) deaths: u32,
    pub(super) host_deaths: u32,
    pub(super) timeouts: u32,
    /// Failures of the task itself.
    pub(super) own: u32,
}

impl<C: Clone> Call<C> {
    /// Makes a call that has not begun.
    pub(crate) fn new(caller: C, entry: EntryRef, options: CallOptions, room: Room) -> Call<C> {
        Call {
            caller,
            entry,
            function: "?",
            options,
            depth: 0,
            takes_outputs: false,
            context: Bytes::new(),
            durable: false,
            values: Values::LargeStay,
            room,
            submitted: 0,
            total: None,
            run_size: 1,
            ready: VecDeque::new(),
            ready_tasks: 0,
            near_runs: 0,
            suspects: Suspects::default(),
            served: 0,
            open: 0,
            done: 0,
            since: SystemTime::UNIX_EPOCH,
            failures: HashMap::new(),
            is_final: None,
            is_queued: false,
            recalled: false,
        }
    }

    /// Returns whether the call has tasks to hand out.
    pub(super) fn has_tasks(&self) -> bool {
        !self.ready.is_empty() || !self.suspects.is_empty()
    }

    /// Counts a run that becomes ready.
    pub(super) fn count_ready(&mut self, run: &Run) {
        self.ready_tasks += run.len();
        self.near_runs += usize::from(run.near().is_some());
        self.takes_outputs |= run.parts().is_some();
    }

    /// Returns how many tasks are pending at workers.
    pub(super) fn pending(&self) -> u64 {
        self.open - self.ready_tasks - self.suspects.len()
    }

    /// Returns whether the call has no task that is not completed, and submits no more.
    pub(super) fn is_done(&self) -> bool {
        self.open == 0 && self.total.is_some_and(|total| self.submitted >= total)
    }

    /// Returns how many tasks the caller has room for, if any, while values may take `memory` more
    /// bytes.
    ///
    /// Suspects, and the task without which the caller can't make room, are handed out even if
    /// there is none.
    pub(super) fn room(&mut self, least: u64, memory: u64) -> Option<u64> {
        let room = self.room.left(self.pending(), least, memory);
        let exempt = room == 0 && (!self.suspects.is_empty() || self.bring_needed_to_front());
        Some(room.max(u64::from(exempt))).filter(|room| *room > 0)
    }

    fn bring_needed_to_front(&mut self) -> bool {
        let Some(index) = self.room.next_needed() else { return false };
        let Some(place) = self.ready.iter().position(|run| run.contains(index)) else {
            return false;
        };
        let Some(run) = self.ready.remove(place) else { return false };
        let (needed, before, after) = run.cut(index, index + 1);
        after.into_iter().chain(before).for_each(|run| self.ready.insert(place, run));
        needed.into_iter().for_each(|run| self.ready.push_front(run));
        true
    }

    /// Takes at most `count` tasks out of the first run, suspects first.
    pub(super) fn take(&mut self, count: u64) -> Run {
        if let Some(run) = self.suspects.take(count) {
            return run;
        }
        let front = self.ready.front_mut().expect("a queued call has a run");
        let run = front.split_front(count);
        if front.len() == 0 {
            self.ready.pop_front();
        }
        self.ready_tasks -= run.len();
        self.near_runs -= usize::from(run.near().is_some());
        run
    }

    /// Returns how many tasks `worker` gets now. `nanos` is the mean time of a task, 0 if unknown;
    /// `room` is the number of outcomes that the caller has room for.
    pub(super) fn count_for<W>(
        &self,
        worker: &Worker<W>,
        nanos: f64,
        workers: u64,
        room: u64,
    ) -> u64 {
        let chunk = u64::from(self.options.chunk);
        let slots = worker.slots();
        let idle_threads = slots.saturating_sub(worker.pending_tasks);
        let capacity = if nanos == 0.0 {
            idle_threads
        } else {
            let limit = PENDING_NANOS * slots as f64;
            let by_time = ((limit - worker.pending_nanos) / nanos).max(0.0) as u64;
            let by_count = (PENDING_TASKS * slots).saturating_sub(worker.pending_tasks);
            by_time.min(by_count).max(idle_threads)
        };
        if capacity == 0 || (worker.pending_tasks > 0 && worker.pending_bytes >= PENDING_BYTES) {
            return 0;
        }
        let share = (self.ready_tasks / (2 * workers.max(1))).max(run_size(nanos));
        let count = match self.suspects.max_part() {
            Some(max_part) => capacity.min(worker.room_for_suspects(max_part)).min(room),
            None => capacity.min(share).min(room).max(chunk).min(u64::from(u32::MAX)),
        };
        // A task that waits for these would otherwise keep its worker for good.
        let least = u64::from(!worker.waiting.is_empty());
        worker.quota.map_or(count, |quota| count.min(quota.max(least)))
    }

    /// Returns the message with a run, if its inputs are there.
    pub(super) fn assignment(&self, run: &Run) -> Option<Assignment> {
        let (arguments, blobs) = run.to_send()?;
        Some(self.assignment_with(run, arguments, blobs))
    }

    /// Returns the message with a run, which has these arguments in it.
    pub(super) fn assignment_with(&self, run: &Run, arguments: Bytes, blobs: Blobs) -> Assignment {
        Assignment {
            call: run.call,
            entry: self.entry,
            options: self.options,
            depth: self.depth,
            values: self.values,
            first: run.start,
            count: run.len() as u32,
            context: self.context.clone(),
            arguments,
            blobs,
        }
    }

    /// Takes a run back whose inputs are lost. It is submitted again when they are there.
    pub(super) fn take_back(&mut self, run: &Run) {
        self.open -= run.len();
        self.submitted -= run.len();
    }

    /// Notes that the caller has outputs in place of the values.
    pub(super) fn has_outputs(&mut self) {
        if self.values == Values::LargeStay {
            self.values = Values::Stay;
        }
    }

    /// Passes outcomes to the caller. Failures that are to be retried go to `retries` instead.
    pub(super) fn complete<W>(
        &mut self,
        run: Run,
        outcome: Run,
        retries: &mut Vec<Run>,
        effects: &mut Effects<W, C>,
    ) {
        let max_retries = if self.is_final() { 0 } else { self.options.retries };
        let mut rest = Some(outcome.clone());
        if max_retries > 0 {
            let bytes = outcome.arguments();
            let failed = Items::new(&bytes)
                .zip(outcome.start..outcome.end)
                .filter(|((_, failed), _)| *failed);
            for (_, index) in failed {
                let failures = self.failures.entry(index).or_default();
                if failures.own < max_retries {
                    failures.own += 1;
                    retries.extend(run.clone().cut(index, index + 1).0);
                    if let Some((_, before, after)) =
                        rest.take().map(|rest| rest.cut(index, index + 1))
                    {
                        self.deliver(before, &run, effects);
                        rest = after;
                    }
                }
            }
        }
        self.deliver(rest, &run, effects);
    }

    /// Returns whether its tasks don't run again.
    pub(super) fn is_final(&self) -> bool {
        self.is_final.as_ref().is_some_and(|is_final| is_final())
    }

    /// Passes to the caller that `workers` workers did not survive a task.
    pub(super) fn abandon<W>(
        &mut self,
        index: u64,
        workers: u32,
        exit: Exit,
        effects: &mut Effects<W, C>,
    ) {
        self.open -= 1;
        self.done += 1;
        self.room.arrive(1, 0);
        let abandoned = Completion::Abandoned { index, workers, exit };
        effects.completions.push((self.caller.clone(), abandoned));
    }

    /// Passes outcomes of tasks to the caller that had these arguments.
    fn deliver<W>(&mut self, outcome: Option<Run>, arguments: &Run, effects: &mut Effects<W, C>) {
        if let Some(outcome) = outcome {
            self.open -= outcome.len();
            self.done += outcome.len();
            self.room.arrive(outcome.len(), outcome.size() as u64);
            let completion = if outcome.blobs().are_here() {
                Completion::Outcomes(outcome)
            } else {
                Completion::Away { outcome, arguments: arguments.clone() }
            };
            effects.completions.push((self.caller.clone(), completion));
        }
    }
}

/// Returns how many tasks of `nanos` each are not worth splitting among workers.
#[inline]
pub(super) fn run_size(nanos: f64) -> u64 {
    if nanos == 0.0 { 1 } else { ((RUN_NANOS / nanos) as u64).max(1) }
}
