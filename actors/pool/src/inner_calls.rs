//! Calls that the tasks of a pool make at the pool itself.
//!
//! A worker sends the tasks of such a call as a pool sends tasks to a worker ([`current`]), and
//! gets outcomes as a pool gets them. Each of its assignments is a call in the scheduler here,
//! which ends with its worker.
//!
//! [`current`]: super::current

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use fiber_core::{Error, FailureKind, Result, value_memory};
use fiber_transport::Received;
use fiber_values::entry::{Entry, EntryRef};
use parking_lot::Mutex;

use super::away::Origin;
use super::batch::{Order, ResultBatch};
use super::exchange::{Exchange, Sink};
use super::run::{CallId, Items, PREFIX, Run};
use super::scheduler::{Values, WorkerId};
use super::state::{Cancellation, PoolState};
use super::wire::{Assignment, PoolCommand, PoolMessage, ResultRun, Results};
use super::worker_handle::WorkerHandle;

/// Calls and values of the tasks of workers.
#[derive(Default)]
pub(super) struct InnerCalls {
    /// The calls that are not done: the worker, its number of the call, and the pool's.
    calls: Mutex<BTreeSet<(WorkerId, CallId, CallId)>>,
    /// The broadcast values that are not dropped: the worker, and the value's number.
    values: Mutex<BTreeSet<(WorkerId, u64)>>,
}

impl InnerCalls {
    /// Takes those of a worker, or of one of its calls.
    fn take(&self, worker: WorkerId, call: Option<CallId>) -> BTreeSet<(WorkerId, CallId, CallId)> {
        let (first, last) = call.map_or((0, CallId::MAX), |call| (call, call));
        let range = (worker, first, 0)..=(worker, last, CallId::MAX);
        let mut calls = self.calls.lock();
        let taken: BTreeSet<_> = calls.range(range).copied().collect();
        taken.iter().for_each(|call| {
            calls.remove(call);
        });
        taken
    }
}

impl PoolState {
    /// Runs tasks for a task of this worker.
    pub(super) fn begin_inner(
        self: &Arc<PoolState>,
        worker: &Arc<WorkerHandle>,
        assignment: Assignment,
    ) {
        let function: Result<&Entry> = assignment.entry.resolve();
        let name = function.as_ref().map_or("?", |entry| entry.display_name());
        let (entry, options) = (assignment.entry, assignment.options);
        let origin = Origin { pool: Arc::downgrade(self), entry, options };
        let exchange = Exchange::new(self, name, origin, Order::Together, u64::MAX, None);
        let id = exchange.id;
        let (first, count) = (assignment.first, assignment.count);
        let inner = InnerCall {
            id,
            theirs: assignment.call,
            entry,
            first,
            count,
            left: AtomicU64::new(count.into()),
            worker: Arc::clone(worker),
            pool: Arc::downgrade(self),
        };
        if let Err(error) = function {
            return inner.fail(first, count, FailureKind::Unknown, &error.to_string());
        }
        let mut call = exchange.new_call();
        (call.depth, call.context) = (assignment.depth, assignment.context);
        call.values = Values::Come;
        self.inner.calls.lock().insert((worker.id, inner.theirs, id));
        exchange.pass_to(Arc::new(inner));
        exchange.set_total(count.into());
        let blobs = assignment.blobs;
        let arguments = value_memory::stored(assignment.arguments, blobs.private_len());
        let run = Run::of(id, first, count, arguments, blobs);
        self.with_scheduler(|scheduler, effects| {
            scheduler.begin(id, call);
            scheduler.takes_at_once(id, effects);
            scheduler.submit(run, effects);
            scheduler.finish_feeding(id, Some(count.into()));
        });
    }

    /// Handles a worker's command about a call or a value of its tasks.
    pub(super) fn command_inner(self: &Arc<PoolState>, worker: WorkerId, command: PoolCommand) {
        match command {
            PoolCommand::Cancel { call, kill } => {
                let end = if kill { Cancellation::KillWorkers } else { Cancellation::LetFinish };
                self.cancel_inner(worker, Some(call), end);
            }
            PoolCommand::DropBroadcast(id) => {
                if self.inner.values.lock().remove(&(worker, id)) {
                    self.drop_broadcast(id);
                }
            }
            // Tasks that have not started are here, and the worker gets no task of its own calls
            // back.
            PoolCommand::Return(_) | PoolCommand::Drain | PoolCommand::Abandoned { .. } => {}
        }
    }

    /// Sends a value of a worker's task to all workers.
    pub(super) fn broadcast_inner(&self, worker: WorkerId, id: u64, value: Received) {
        // Without it, the pool has ended.
        if self.send_broadcast(id, value).is_ok() {
            self.inner.values.lock().insert((worker, id));
        }
    }

    /// Ends all that the tasks of a worker have made.
    pub(super) fn end_inner(self: &Arc<PoolState>, worker: WorkerId) {
        self.cancel_inner(worker, None, Cancellation::LetFinish);
        let mut values = self.inner.values.lock();
        let its: Vec<_> = values.range((worker, 0)..=(worker, u64::MAX)).copied().collect();
        its.iter().for_each(|value| {
            values.remove(value);
        });
        drop(values);
        its.into_iter().for_each(|(_, id)| self.drop_broadcast(id));
    }

    /// Cancels the calls of the tasks of a worker, or one of them.
    fn cancel_inner(&self, worker: WorkerId, call: Option<CallId>, end: Cancellation) {
        for (_, _, id) in self.inner.take(worker, call) {
            self.cancel(id, end);
        }
    }
}

/// Sends the outcomes of a call to the worker whose task has made it.
struct InnerCall {
    id: CallId,
    /// The worker's number of the call.
    theirs: CallId,
    entry: EntryRef,
    first: u64,
    count: u32,
    /// How many of the tasks are not completed.
    left: AtomicU64,
    worker: Arc<WorkerHandle>,
    pool: Weak<PoolState>,
}

impl Sink for InnerCall {
    fn take(&self, _: &'static str, batch: ResultBatch) {
        let count = batch.len();
        match batch {
            ResultBatch::Outcomes(run, _) => self.send(self.results(&run)),
            ResultBatch::Failed(
                index,
                Error::WorkerDied { deaths, exit, .. } | Error::TaskTimedOut { deaths, exit, .. },
            ) => {
                let (call, exit) = (self.theirs, Box::new(exit));
                let abandoned = PoolCommand::Abandoned { call, index, workers: deaths, exit };
                self.worker.command(abandoned);
            }
            ResultBatch::Failed(index, error) => {
                self.fail(index, 1, FailureKind::Result, &error.to_string());
            }
        }
        if self.left.fetch_sub(count, Ordering::AcqRel) == count
            && let Some(pool) = self.pool.upgrade()
        {
            pool.inner.calls.lock().remove(&(self.worker.id, self.theirs, self.id));
        }
    }

    fn set_total(&self, _: u64) {}

    fn end(&self, error: &Error) {
        // The worker ignores outcomes of tasks that are completed.
        self.fail(self.first, self.count, FailureKind::Result, &error.to_string());
    }
}

impl InnerCall {
    fn fail(&self, first: u64, count: u32, kind: FailureKind, problem: &str) {
        self.send(Results::failures(self.theirs, first, count, kind, problem));
    }

    fn results(&self, run: &Run) -> Results {
        let outcomes = run.arguments();
        let (mut length, mut failed) = (0, 0);
        for (item, has_failed) in Items::new(&outcomes).take(run.len() as usize) {
            length += PREFIX + item.len();
            failed += u32::from(has_failed);
        }
        let (first, count) = (run.start, run.len() as u32);
        let runs = vec![ResultRun { first, count, length: length as u32 }];
        let (outcomes, blobs) = (outcomes.slice(..length), run.blobs().clone());
        Results { call: self.theirs, busy: 1, failed, thread: 0, runs, outcomes, blobs }
    }

    fn send(&self, results: Results) {
        // The worker hands out as many tasks together as are worth a message.
        let mean =
            self.pool.upgrade().map(|pool| pool.life.lock().scheduler.mean_nanos(self.entry));
        let busy = (mean.unwrap_or(0.0) * results.tasks() as f64) as u64;
        let results = Results { busy: busy.max(1), ..results };
        let _ = self.worker.link.send(PoolMessage::Results(results).message());
    }
}
