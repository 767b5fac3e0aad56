//! The threads that run tasks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fiber_core::at_exit::flush_output;
use fiber_core::stacks::thread_id;
use fiber_core::{Failure, FailureKind, Spin, shortage, start_user_thread};
use fiber_values::blob::Blobs;
use fiber_values::codec::{self, EncodedValue};
use fiber_values::{BlockOn, Outcome, Tasks, slot, spill};
use parking_lot::{Mutex, MutexGuard};
use tracing::span::EnteredSpan;

use super::followers::LocalFollower;
use super::local_run::LocalRun;
use super::outcomes::PendingOutcomes;
use super::slots::TaskSlot;
use super::task_span::RunSpans;
use super::{Work, WorkQueue};
use crate::run::{CallId, Items, PREFIX, prefix};
use crate::scheduler::Values;
use crate::wire::{LARGE, ResultRun, Results};
use fiber_runtime::blocking::BlockingRuntime;
use fiber_runtime::parts::Parts;
use fiber_runtime::runtime::{ControlMessage, telemetry};

/// While fewer tasks than this are left in a run, the executor flushes the output after each task,
/// otherwise before it sends outcomes. The tasks of a longer run are so short that flushing would
/// take a large part of their time.
const SHORT_RUN: u64 = 256;

/// Runs the executors until the worker stops.
pub(super) fn run_all(queue: &Arc<WorkQueue>) {
    let own = queue.add_executor();
    for _ in 1..queue.threads {
        if let Err(error) = start(queue) {
            let problem =
                format!("its threads could not be started: {}", shortage::explain(&error));
            let _ = queue.link.send(ControlMessage::Failed(problem).message());
            return queue.wait_for_close();
        }
    }
    queue.report_ready();
    run(queue, &own);
    while let Some(thread) = { queue.started.lock().pop() } {
        // A task's panic is caught with the task, so no executor panics.
        let _ = thread.join();
    }
}

/// Starts an executor on a thread of its own.
pub(super) fn start(queue: &Arc<WorkQueue>) -> std::io::Result<()> {
    let state = queue.add_executor();
    let name = format!("fiber-task-{}", state.lock().outcomes.thread);
    let (parts, starting, its_state) = (Parts::current(), Arc::clone(queue), Arc::clone(&state));
    let started = start_user_thread(name, move || {
        let _entered = parts.enter();
        run(&starting, &its_state);
    });
    match started {
        Ok(thread) => queue.started.lock().push(thread),
        Err(error) => {
            queue.remove_executor(&state);
            return Err(error);
        }
    }
    Ok(())
}

fn run(queue: &Arc<WorkQueue>, state: &Arc<Mutex<ExecutorState>>) {
    state.lock().thread = thread_id();
    slot::occupy(Arc::new(TaskSlot::new(queue, state)));
    let mut executor = Executor {
        queue,
        state,
        arguments: Bytes::new(),
        blobs: Blobs::default(),
        values: Values::Come,
        claimed: None,
        flush_after_task: false,
        busy: false,
        runtime: BlockingRuntime::default(),
        spans: None,
        span: None,
    };
    while let Some(entry) = executor.take_run() {
        entry.run(&mut executor);
    }
}

/// The state of an executor that the monitor reads.
#[derive(Default)]
pub(super) struct ExecutorState {
    /// The current run, with the tasks that have not started.
    run: Option<LocalRun>,
    /// The offset of the next task's arguments.
    position: usize,
    pub(super) current: Option<CurrentTask>,
    /// The task that takes the value of the current one, which is the last of its run.
    pub(super) follower: Option<Box<LocalFollower>>,
    /// How many tasks the executor has started.
    pub(super) started: u64,
    /// Whether the monitor found the executor blocked, and waits until it continues.
    pub(super) blocked: bool,
    outcomes: PendingOutcomes,
    /// The kernel's id of the executor's thread.
    pub(super) thread: u32,
}

/// A task that is running.
#[derive(Clone, Copy)]
pub(super) struct CurrentTask {
    pub(super) call: CallId,
    pub(super) index: u64,
    pub(super) timeout: Option<Duration>,
}

impl ExecutorState {
    /// Makes the state of the executor with this number.
    pub(super) fn new(number: u32) -> ExecutorState {
        let mut state = ExecutorState::default();
        state.outcomes.thread = number;
        state
    }

    pub(super) fn runs(&self, call: CallId) -> bool {
        self.current.is_some_and(|current| current.call == call)
    }

    /// Returns whether fewer than [`SHORT_RUN`] tasks of the run are left.
    #[inline]
    fn run_is_short(&self) -> bool {
        self.run.as_ref().is_none_or(|run| run.len() < SHORT_RUN)
    }

    /// Returns whether the current run is one of this call.
    pub(super) fn has_run_of(&self, call: CallId) -> bool {
        self.run.as_ref().is_some_and(|run| run.call == call)
    }

    /// Takes the task that follows the current one, if it is one of this call.
    pub(super) fn take_follower_of(&mut self, call: CallId) -> Option<LocalRun> {
        let its = self.follower.take_if(|follower| follower.run.call == call);
        its.map(|follower| follower.run)
    }

    /// Takes the tasks of a call that have not started.
    pub(super) fn cancel_call(&mut self, call: CallId) -> Option<LocalRun> {
        if self.has_run_of(call) { self.take_rest() } else { None }
    }

    /// Takes the tasks that have not started.
    pub(super) fn take_rest(&mut self) -> Option<LocalRun> {
        self.take_after(0)
    }

    /// Takes the tasks that have not started, except those of a chunk that has.
    pub(super) fn take_unstarted(&mut self) -> Option<LocalRun> {
        let run = self.run.as_ref()?;
        let started = (run.first - run.start) % run.chunk;
        self.take_after(if started == 0 { 0 } else { run.chunk - started })
    }

    fn take_after(&mut self, keep: u64) -> Option<LocalRun> {
        let run = self.run.as_mut().filter(|run| run.len() > keep)?;
        let mut rest = LocalRun { arguments: run.arguments.slice(self.position..), ..run.clone() };
        rest.split_front(keep);
        run.end = run.first + keep;
        Some(rest)
    }

    fn take_outcomes_unless_of(&mut self, call: Option<CallId>) -> Option<Results> {
        if call == Some(self.outcomes.call) { None } else { self.take_outcomes() }
    }

    /// Returns whether nothing waits for the current task: no outcome, and no task of its run.
    pub(super) fn is_last(&self) -> bool {
        self.outcomes.count == 0 && self.run.as_ref().is_none_or(|run| run.len() == 0)
    }

    /// Takes the outcomes that were not sent.
    pub(super) fn take_outcomes(&mut self) -> Option<Results> {
        self.outcomes.take()
    }

    /// Takes the outcomes if they are due while `queued` tasks are in the queue.
    #[inline]
    fn take_due_outcomes(&mut self, queued: u64) -> Option<Results> {
        let left = queued + self.run.as_ref().map_or(0, LocalRun::len);
        if self.outcomes.is_due(left) { self.outcomes.take() } else { None }
    }
}

/// One thread that runs tasks.
struct Executor<'a> {
    queue: &'a WorkQueue,
    state: &'a Arc<Mutex<ExecutorState>>,
    /// The arguments of the current run.
    arguments: Bytes,
    blobs: Blobs,
    /// Where the values of the current run's tasks go.
    values: Values,
    /// The range of the claimed task's arguments.
    claimed: Option<(usize, usize)>,
    /// Whether to flush the output when the claimed task has ended.
    flush_after_task: bool,
    /// Whether the queue counts this executor as busy.
    busy: bool,
    runtime: BlockingRuntime,
    /// The spans of the current run's tasks, if a subscriber may want them.
    spans: Option<RunSpans>,
    /// The span of the claimed task.
    span: Option<EnteredSpan>,
}

impl Executor<'_> {
    /// Waits for a run and makes it the current one.
    fn take_run(&mut self) -> Option<&'static fiber_values::entry::Entry> {
        // An idle worker keeps no memory of others.
        (self.arguments, self.blobs) = (Bytes::new(), Blobs::default());
        let mut spin = Spin::default();
        let mut work = self.queue.work.lock();
        if std::mem::take(&mut self.busy) {
            work.busy -= 1;
            // Tasks of busy executors may keep the output locked as long as they run.
            if work.busy == 0 && !self.is_only_executor() {
                MutexGuard::unlocked(&mut work, flush_output);
            }
        }
        let (run, follower) = loop {
            let is_free = work.busy < self.queue.threads + work.lent;
            let next = work.runs.front().filter(|_| is_free).map(|run| run.call);
            // Outcomes are sent before the executor sleeps or starts another call's tasks.
            // The block below has no lock of the state: that comes after the lock of `work`.
            let results = self.state.lock().take_outcomes_unless_of(next);
            if let Some(results) = results {
                drop(work);
                self.queue.send(results);
                work = self.queue.work.lock();
                continue;
            }
            if is_free && let Some(run) = next_run(&mut work, self.queue.threads as u64) {
                self.queue.count_queued(&work);
                let follower = work.take_follower((run.call, run.first));
                break (run, follower);
            }
            if work.closed || self.queue.ends_spare(&work, self.state) {
                return None;
            }
            if spin.should_continue() {
                MutexGuard::unlocked(&mut work, || spin.yield_core());
            } else {
                self.queue.changed.wait(&mut work);
            }
        };
        work.busy += 1;
        let mut state = self.state.lock();
        drop(work);
        self.busy = true;
        slot::set_depth(run.depth + 1);
        let (entry, context) = (run.entry, run.context.clone());
        self.arguments = run.arguments.clone();
        self.blobs = run.blobs.clone();
        self.values = run.values;
        state.outcomes.call = run.call;
        if state.outcomes.count == 0 {
            state.outcomes.since = Some(Instant::now());
        }
        state.position = 0;
        (state.run, state.follower) = (Some(run), follower);
        self.flush_after_task = self.is_only_executor() && state.run_is_short();
        self.claimed = claim(&mut state, &self.arguments);
        drop(state);
        // Without locks: this calls the program's subscriber, which may wait for other threads.
        self.spans = RunSpans::of(entry.name(), &context);
        Some(entry)
    }

    /// Returns whether the worker has one thread, so that no other task can have locked the output.
    fn is_only_executor(&self) -> bool {
        self.queue.executor_count.load(Ordering::Relaxed) == 1
    }

    /// Sends an outcome in a message of its own, after the outcomes that were not sent.
    fn send_large(
        &self,
        mut state: MutexGuard<'_, ExecutorState>,
        index: u64,
        outcome: Outcome,
        value: &mut Vec<u8>,
        blobs: Blobs,
    ) {
        // The clock was not read between the tasks: each counts with their mean.
        let busy = (state.outcomes.take_time() / (state.outcomes.count + 1)).max(1);
        let before = state
            .take_outcomes()
            .map(|results| Results { busy: busy * results.tasks(), ..results });
        let (call, thread) = (state.outcomes.call, state.outcomes.thread);
        drop(state);
        if !self.flush_after_task && self.is_only_executor() {
            flush_output();
        }
        if let Some(results) = before {
            self.queue.send(results);
        }
        let prefix = prefix(value.len(), outcome == Outcome::Failure);
        let failed = u32::from(outcome == Outcome::Failure);
        let length = (PREFIX + value.len()) as u32;
        let runs = vec![ResultRun { first: index, count: 1, length }];
        let outcomes = std::mem::take(value).into();
        let results = Results { call, busy, failed, thread, runs, outcomes, blobs };
        self.queue.send_outcomes(|| results.large_message(prefix, self.values));
    }
}

/// Returns the index of the claimed task.
fn current_index(state: &Mutex<ExecutorState>) -> u64 {
    state.lock().current.map_or(0, |task| task.index)
}

/// Takes the next run for one of `executors` executors: all of it, or a share.
fn next_run(work: &mut Work, executors: u64) -> Option<LocalRun> {
    let front = work.runs.front_mut()?;
    let share = front.len().div_ceil(2 * executors).next_multiple_of(front.chunk);
    if executors == 1 || share >= front.len() {
        return work.runs.pop_front();
    }
    Some(front.split_front(share))
}

/// Makes the run's next task the current one. Returns the range of its arguments.
// As a call, it would return the range through memory, which takes 5 % of the shortest tasks.
#[inline(always)]
fn claim(state: &mut ExecutorState, arguments: &[u8]) -> Option<(usize, usize)> {
    state.current = None;
    let run = state.run.as_mut()?;
    if run.first == run.end {
        state.run = None;
        return None;
    }
    // The pool wrote the lengths. If one is wrong, the task's arguments do not decode, and only
    // this task fails.
    let length = Items::new(&arguments[state.position.min(arguments.len())..])
        .next()
        .map_or(0, |(item, _)| item.len());
    let start = (state.position + PREFIX).min(arguments.len());
    state.position = start + length;
    state.current = Some(CurrentTask { call: run.call, index: run.first, timeout: run.timeout });
    run.first += 1;
    state.started += 1;
    Some((start, start + length))
}

impl Tasks for Executor<'_> {
    #[inline]
    fn next(&mut self) -> Option<(&[u8], &Blobs, &dyn BlockOn)> {
        let (start, end) = self.claimed?;
        if let Some(spans) = &self.spans {
            self.span = spans.enter(&self.queue.names, current_index(self.state));
        }
        Some((&self.arguments[start..end], &self.blobs, &self.runtime))
    }

    #[inline]
    fn finish(&mut self, mut outcome: Outcome, value: &mut Vec<u8>, mut blobs: Blobs) {
        slot::end_task();
        if let Some(span) = self.span.take()
            && outcome == Outcome::Failure
        {
            telemetry::note_failure(&span, value);
        }
        // The outcome makes the pool drop its keep-alives of the objects whose handles are in the
        // arguments. By then this process has to be one of their holders.
        self.queue.attachments.wait_until_confirmed();
        // The output leaves this process before the outcome does: the pool may kill the process as
        // soon as it has the outcome.
        if self.flush_after_task {
            flush_output();
        }
        let size = value.len() + blobs.total_len();
        if size > self.queue.max_message {
            blobs = Blobs::default();
            outcome = too_large(value, size, self.queue.max_message);
        }
        let is_value = outcome == Outcome::Value;
        if value.len() >= self.values.min_stay() && is_value && self.queue.is_hosted {
            EncodedValue::move_to_blob(value, &mut blobs);
        }
        if is_value && self.values == Values::Stay {
            spill::spill_for_others(value, &mut blobs);
        }
        let mut state = self.state.lock();
        let index = state.current.expect("a task that ends has started").index;
        let follower = state.follower.as_mut().map(|follower| {
            let is_short = value.len() < LARGE && blobs.is_empty();
            // The pool fails a task whose arguments are too large together.
            let fits = is_short && follower.size_with(value) <= self.queue.max_message;
            if is_value && fits {
                follower.put(value);
            }
            is_value && fits
        });
        let was_blocked = std::mem::take(&mut state.blocked);
        if was_blocked {
            self.queue.unblocked.notify_one();
        }
        if value.len() >= LARGE || !blobs.is_empty() {
            self.send_large(state, index, outcome, value, blobs);
            state = self.state.lock();
        } else {
            state.outcomes.add(index, outcome, value);
        }
        let queued = self.queue.queued.load(Ordering::Relaxed) / self.queue.threads as u64;
        // The pool may know that this task runs: the death of the next one would count against it.
        let results = if was_blocked || follower.is_some() {
            state.take_outcomes()
        } else {
            state.take_due_outcomes(queued)
        };
        let flushed = self.flush_after_task;
        self.flush_after_task = self.is_only_executor() && state.run_is_short();
        self.claimed = claim(&mut state, &self.arguments);
        drop(state);
        if let Some(results) = results {
            if !flushed && self.is_only_executor() {
                flush_output();
            }
            self.queue.send(results);
        }
        if let Some(has_input) = follower {
            self.queue.go_on(self.state, has_input);
        }
    }
}

#[cold]
fn too_large(value: &mut Vec<u8>, size: usize, limit: usize) -> Outcome {
    let problem =
        format!("it takes {size} bytes, which is more than `max_message` allows ({limit})");
    value.clear();
    codec::append(value, &Failure::new(FailureKind::Result, problem))
        .expect("a failure contains only text");
    Outcome::Failure
}
