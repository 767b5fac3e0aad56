//! The threads that run tasks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fiber_core::process::flush_output;
use fiber_core::{BlockOn, Failure, FailureKind, Outcome, Spin, Tasks, codec, shortage};
use parking_lot::{Mutex, MutexGuard};

use super::{Assigned, Work, WorkQueue};
use crate::blocking::BlockingRuntime;
use crate::objects::wait_until_attached;
use crate::pool::run::{CallId, Items, PREFIX, prefix, push_item};
use crate::pool::wire::{FromWorker, Piece, Results};
use crate::runtime::ControlMessage;

/// Outcomes leave when as many are there as tasks are left, and they took this long.
const WORTH: Duration = Duration::from_micros(100);
/// Outcomes leave when they are this many bytes.
const FULL: usize = 32 << 10;
/// An outcome of this many bytes leaves alone, and is not copied.
const LARGE: usize = 64 << 10;
/// Output is flushed after each task while fewer tasks than this are left in the run, else with the
/// outcomes: the tasks of a longer run are so short that flushing would take a good part of their
/// time.
const FEW: u64 = 256;

/// Runs the executors until no work comes any more.
pub(super) fn run_all(queue: &Arc<WorkQueue>) {
    let started: Result<Vec<_>, _> = (1..queue.slots.len())
        .map(|index| {
            let queue = Arc::clone(queue);
            let thread = std::thread::Builder::new().name(format!("fiber-task-{index}"));
            thread.spawn(move || run(&queue, index))
        })
        .collect();
    let threads = match started {
        Ok(threads) => threads,
        Err(error) => {
            let problem =
                format!("its threads could not be started: {}", shortage::explain(&error));
            let _ = queue.link.send(ControlMessage::Failed(problem).message());
            return queue.wait_for_close();
        }
    };
    let _ = queue.link.send(ControlMessage::Ready { address: None }.message());
    run(queue, 0);
    for thread in threads {
        // A task's panic is caught with the task, so no executor panics.
        let _ = thread.join();
    }
}

fn run(queue: &WorkQueue, index: usize) {
    let mut executor = Executor {
        queue,
        slot: &queue.slots[index],
        arguments: Bytes::new(),
        claimed: None,
        flushes: false,
        busy: false,
        runtime: BlockingRuntime::default(),
    };
    while let Some(entry) = executor.take_run() {
        entry.run(&mut executor);
    }
}

/// What an executor is doing, for itself and for the node's thread.
#[derive(Default)]
pub(super) struct Slot(Mutex<SlotState>);

impl Slot {
    pub(super) fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.0.lock()
    }
}

#[derive(Default)]
pub(super) struct SlotState {
    /// The run that it works on: the tasks that it has not begun.
    run: Option<Assigned>,
    /// Where, in the arguments, the next task's begin.
    position: usize,
    /// The task that it runs.
    pub(super) current: Option<Current>,
    /// How many tasks it has begun.
    pub(super) begun: u64,
    /// Whether the ticker has seen it held up, and wants to know when it goes on.
    pub(super) held_up: bool,
    outcomes: Outcomes,
}

/// A task that is running.
#[derive(Clone, Copy)]
pub(super) struct Current {
    pub(super) call: CallId,
    pub(super) index: u64,
    pub(super) timeout: u64,
}

/// Outcomes that have not left.
#[derive(Default)]
struct Outcomes {
    call: CallId,
    pieces: Vec<Piece>,
    bytes: Vec<u8>,
    count: u64,
    since: Option<Instant>,
    /// At how many outcomes the clock is worth a look: it costs as much as a short task.
    look_at: u64,
}

impl SlotState {
    pub(super) fn runs(&self, call: CallId) -> bool {
        self.current.is_some_and(|current| current.call == call)
    }

    /// Whether few tasks of its run are left to begin.
    #[inline]
    fn has_few(&self) -> bool {
        self.run.as_ref().is_none_or(|run| run.len() < FEW)
    }

    /// Whether it has tasks of a call that were not begun.
    pub(super) fn has_run_of(&self, call: CallId) -> bool {
        self.run.as_ref().is_some_and(|run| run.call == call)
    }

    /// Takes the tasks of a call that were not begun.
    pub(super) fn drop_call(&mut self, call: CallId) -> Option<Assigned> {
        if self.has_run_of(call) { self.give_up_after(0) } else { None }
    }

    /// Takes the tasks that were not begun, but for those that belong to a chunk that was.
    pub(super) fn give_up(&mut self) -> Option<Assigned> {
        let run = self.run.as_ref()?;
        let begun = (run.first - run.start) % run.chunk;
        self.give_up_after(if begun == 0 { 0 } else { run.chunk - begun })
    }

    fn give_up_after(&mut self, keep: u64) -> Option<Assigned> {
        let run = self.run.as_mut().filter(|run| run.len() > keep)?;
        let mut rest = Assigned { arguments: run.arguments.slice(self.position..), ..run.clone() };
        rest.split_front(keep);
        run.end = run.first + keep;
        Some(rest)
    }

    fn take_outcomes_unless_of(&mut self, call: Option<CallId>) -> Option<Results> {
        if call == Some(self.outcomes.call) { None } else { self.take_outcomes() }
    }

    /// The outcomes that are there, as a message.
    pub(super) fn take_outcomes(&mut self) -> Option<Results> {
        let outcomes = &mut self.outcomes;
        if outcomes.count == 0 {
            return None;
        }
        let now = Instant::now();
        let busy = outcomes.since.replace(now).map_or(0, |since| (now - since).as_nanos() as u64);
        (outcomes.count, outcomes.look_at) = (0, 0);
        let (pieces, bytes) =
            (std::mem::take(&mut outcomes.pieces), std::mem::take(&mut outcomes.bytes));
        Some(Results { call: outcomes.call, busy: busy.max(1), pieces, outcomes: bytes.into() })
    }

    /// Whether the outcomes that are there should leave, although more work is at hand, of which so
    /// much is in no slot: so that the pool can send more before this worker has nothing left.
    #[inline]
    fn is_worth_sending(&mut self, untaken: u64) -> bool {
        let left = untaken + self.run.as_ref().map_or(0, Assigned::len);
        let outcomes = &mut self.outcomes;
        outcomes.bytes.len() >= FULL
            || (left > 0 && outcomes.count >= left.max(outcomes.look_at) && outcomes.took_long())
    }
}

impl Outcomes {
    /// Looks at the clock, and says when to look again: half way to [`WORTH`], if tasks go on as
    /// they did.
    fn took_long(&mut self) -> bool {
        let Some(since) = self.since else { return true };
        let taken = since.elapsed();
        let missing = WORTH.saturating_sub(taken).as_nanos() as u64;
        self.look_at =
            self.count + self.count.saturating_mul(missing) / (2 * taken.as_nanos().max(1) as u64);
        missing == 0
    }

    fn add(&mut self, index: u64, outcome: Outcome, value: &[u8]) {
        push_item(&mut self.bytes, value, outcome == Outcome::Failure);
        let length = (PREFIX + value.len()) as u32;
        self.count += 1;
        match self.pieces.last_mut() {
            Some(piece) if piece.first + u64::from(piece.count) == index => {
                piece.count += 1;
                piece.length += length;
            }
            _ => self.pieces.push(Piece { first: index, count: 1, length }),
        }
    }
}

/// One thread that runs tasks.
struct Executor<'a> {
    queue: &'a WorkQueue,
    slot: &'a Slot,
    /// The arguments of the run in the slot.
    arguments: Bytes,
    /// Where, in them, those of the claimed task are.
    claimed: Option<(usize, usize)>,
    /// Whether it flushes the output when the claimed task has ended.
    flushes: bool,
    /// Whether it counts as busy on the queue.
    busy: bool,
    runtime: BlockingRuntime,
}

impl Executor<'_> {
    /// Waits for a run, and puts it into the slot.
    fn take_run(&mut self) -> Option<&'static fiber_core::entry::Entry> {
        let mut spin = Spin::default();
        let mut work = self.queue.work.lock();
        if std::mem::take(&mut self.busy) {
            work.busy -= 1;
            // Others that are busy may keep the output locked for as long as they run.
            if work.busy == 0 && !self.is_alone() {
                MutexGuard::unlocked(&mut work, flush_output);
            }
        }
        let run = loop {
            let next = work.runs.front().map(|run| run.call);
            // What was done is told before this waits, and before another call's tasks are begun.
            if let Some(results) = self.slot.lock().take_outcomes_unless_of(next) {
                drop(work);
                self.queue.send(results);
                work = self.queue.work.lock();
                continue;
            }
            if let Some(run) = next_run(&mut work, self.queue.slots.len() as u64) {
                self.queue.count_untaken(&work);
                break run;
            }
            if work.closed {
                return None;
            }
            if spin.goes_on() {
                MutexGuard::unlocked(&mut work, || spin.give_way());
            } else {
                self.queue.changed.wait(&mut work);
            }
        };
        work.busy += 1;
        drop(work);
        self.busy = true;
        let entry = run.entry;
        self.arguments = run.arguments.clone();
        let mut slot = self.slot.lock();
        slot.outcomes.call = run.call;
        if slot.outcomes.count == 0 {
            slot.outcomes.since = Some(Instant::now());
        }
        slot.position = 0;
        slot.run = Some(run);
        self.flushes = self.is_alone() && slot.has_few();
        self.claimed = claim(&mut slot, &self.arguments);
        Some(entry)
    }

    /// Whether it is the only executor, so that no other task can have locked the output.
    fn is_alone(&self) -> bool {
        self.queue.slots.len() == 1
    }

    /// Sends an outcome that is too large to be gathered with others, after those that are there.
    fn send_large(
        &self,
        mut slot: MutexGuard<'_, SlotState>,
        index: u64,
        outcome: Outcome,
        value: &mut Vec<u8>,
    ) {
        let before = slot.take_outcomes();
        let call = slot.outcomes.call;
        drop(slot);
        if !self.flushes && self.is_alone() {
            flush_output();
        }
        let busy = before.as_ref().map_or(0, |results| results.busy);
        if let Some(results) = before {
            self.queue.send(results);
        }
        let prefix = prefix(value.len(), outcome == Outcome::Failure);
        let outcome = std::mem::take(value).into();
        let _ = self
            .queue
            .link
            .send(FromWorker::Large { call, busy: busy.max(1), index, prefix, outcome }.message());
    }
}

/// The next run for an executor: all of it, or a share of it if there are others.
fn next_run(work: &mut Work, executors: u64) -> Option<Assigned> {
    let front = work.runs.front_mut()?;
    let share = front.len().div_ceil(2 * executors).next_multiple_of(front.chunk);
    if executors == 1 || share >= front.len() {
        return work.runs.pop_front();
    }
    Some(front.split_front(share))
}

/// Makes the next task of the slot's run the current one.
#[inline]
fn claim(slot: &mut SlotState, arguments: &[u8]) -> Option<(usize, usize)> {
    slot.current = None;
    let run = slot.run.as_mut()?;
    if run.first == run.end {
        slot.run = None;
        return None;
    }
    // The pool wrote the lengths; where they lie, the task's arguments will not decode, and it
    // fails alone.
    let length = Items::new(&arguments[slot.position.min(arguments.len())..])
        .next()
        .map_or(0, |(item, _)| item.len());
    let start = (slot.position + PREFIX).min(arguments.len());
    slot.position = start + length;
    slot.current = Some(Current { call: run.call, index: run.first, timeout: run.timeout });
    run.first += 1;
    slot.begun += 1;
    Some((start, start + length))
}

impl Tasks for Executor<'_> {
    #[inline]
    fn next(&mut self) -> Option<(&[u8], &dyn BlockOn)> {
        let (start, end) = self.claimed?;
        Some((&self.arguments[start..end], &self.runtime))
    }

    #[inline]
    fn finish(&mut self, mut outcome: Outcome, value: &mut Vec<u8>) {
        // With the outcome, the pool lets go of the objects whose handles are in the arguments.
        wait_until_attached();
        // What a task printed leaves this process before its outcome does: the pool may kill it as
        // soon as it has that.
        if self.flushes {
            flush_output();
        }
        if value.len() > self.queue.max_message {
            outcome = too_large(value, self.queue.max_message);
        }
        let mut slot = self.slot.lock();
        let index = slot.current.expect("a task that ends was begun").index;
        if std::mem::take(&mut slot.held_up) {
            self.queue.went_on.notify_one();
        }
        if value.len() >= LARGE {
            self.send_large(slot, index, outcome, value);
            slot = self.slot.lock();
        } else {
            slot.outcomes.add(index, outcome, value);
        }
        let untaken = self.queue.untaken.load(Ordering::Relaxed) / self.queue.slots.len() as u64;
        let results = if slot.is_worth_sending(untaken) { slot.take_outcomes() } else { None };
        let flushed = self.flushes;
        self.flushes = self.is_alone() && slot.has_few();
        self.claimed = claim(&mut slot, &self.arguments);
        drop(slot);
        if let Some(results) = results {
            if !flushed && self.is_alone() {
                flush_output();
            }
            self.queue.send(results);
        }
    }
}

#[cold]
fn too_large(value: &mut Vec<u8>, limit: usize) -> Outcome {
    let problem = format!(
        "it takes {} bytes, which is more than `max_message` allows ({limit})",
        value.len()
    );
    value.clear();
    codec::append(value, &Failure::new(FailureKind::Result, problem))
        .expect("a failure serialises");
    Outcome::Failure
}
