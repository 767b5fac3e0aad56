//! Values that stay at the hosts where they were made: how they get to the tasks that take them,
//! and how they are made again when their hosts are lost.

use std::future::poll_fn;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use fiber_core::value_memory::Stored;
use fiber_core::{Error, Result};
use fiber_values::blob::Blobs;
use fiber_values::codec::EncodedValue;
use fiber_values::entry::EntryRef;
use fiber_values::transfer::KeepAlive;
use fiber_values::{Make, OutputCell, PartsRecipe, Recipe};

use super::batch::{Order, ResultBatch};
use super::calls::{ActiveCall, encoded};
use super::exchange::Exchange;
use super::held::submit_when_ready;
use super::outputs::CallOutputs;
use super::run::{Run, push_item};
use super::scheduler::CallOptions;
use super::state::PoolState;
use super::wire::Assignment;
use super::worker_handle::WorkerHandle;

/// About the bytes that a recipe takes besides its inputs.
const RECIPE: usize = 256;

/// How a call began.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) pool: Weak<PoolState>,
    pub(super) entry: EntryRef,
    pub(super) options: CallOptions,
}

/// A task that has made a value, to run again.
struct Again {
    origin: Origin,
    function: &'static str,
    index: u64,
    inputs: TaskInputs,
    /// The objects whose handles are in the arguments.
    keep_alive: Arc<KeepAlive>,
}

enum TaskInputs {
    Encoded { bytes: Bytes, blobs: Blobs, _stored: Stored },
    Parts(PartsRecipe),
}

impl Make for Again {
    fn make(&self, cell: &Arc<OutputCell>) {
        if let Err(error) = self.run_for(cell) {
            cell.fill(Err(error));
        }
    }
}

impl Again {
    /// Runs the task in a call of its own, whose outcome fills the cell.
    fn run_for(&self, cell: &Arc<OutputCell>) -> Result<()> {
        let Some(pool) = self.origin.pool.upgrade() else {
            let problem = "the machine that had its value has ended, and so has its pool".into();
            return Err(Error::OutputFailed { problem });
        };
        let (function, origin) = (self.function, self.origin.clone());
        let exchange = Exchange::new(&pool, function, origin, Order::Together, u64::MAX, None);
        let (id, call) = (exchange.id, exchange.new_call());
        let mut life = pool.life.lock();
        // It may be closed: tasks that it has still run need this.
        pool.check_not_ended_in(&life)?;
        life.scheduler.begin(id, call);
        drop(life);
        exchange.set_total(1);
        let call = ActiveCall::new((Arc::clone(&exchange), Arc::clone(&pool)));
        call.pass_to(CallOutputs::of_one(self.index, cell));
        cell.keep_call(Arc::new((call, Arc::clone(&self.keep_alive))));
        match &self.inputs {
            TaskInputs::Encoded { bytes, blobs, .. } => {
                let bytes = exchange.store(bytes.to_vec(), blobs);
                pool.submit(&exchange, Run::with_blobs(id, self.index, bytes, blobs.clone()));
            }
            TaskInputs::Parts(recipe) => {
                submit_when_ready(&exchange, self.index, recipe.parts());
            }
        }
        pool.finish_feeding(id, Some(1));
        Ok(())
    }
}

impl Exchange {
    /// Passes an outcome to the caller whose value is on another machine. Only outputs stay there.
    pub(super) fn complete_away(self: &Arc<Exchange>, outcome: Run, arguments: &Run) {
        let (index, recipe) = (outcome.start, self.recipe(arguments));
        let batch = ResultBatch::of(outcome.clone());
        self.buffer.store_outcomes(batch.len(), batch.size());
        if let Some(sink) = self.sink() {
            if let Some(cell) = sink.cell(index) {
                cell.will_have(recipe);
            }
            return self.deliver(batch);
        }
        let cell = OutputCell::pending();
        cell.will_have(recipe);
        let outcomes = ResultBatch::Outcomes(outcome, Stored::default());
        encoded(self.function, outcomes).into_iter().for_each(|(_, value)| cell.fill(value));
        let is_kept = match &mut *self.kept.lock() {
            Some(kept) => kept.insert(index, Arc::clone(&cell)).is_none(),
            None => false,
        };
        if is_kept {
            return self.deliver(batch);
        }
        let exchange = Arc::clone(self);
        self.runtime.spawn(move || async move {
            let value = poll_fn(|context| cell.poll(context)).await;
            exchange.deliver(match value {
                Ok(value) => ResultBatch::of(run_of(exchange.id, index, &value)),
                Err(error) => ResultBatch::Failed(index, error),
            });
        });
    }

    /// Lets a task wait until its inputs are there again.
    pub(super) fn hold(self: &Arc<Exchange>, run: &Run) {
        if let Some(parts) = run.parts() {
            parts.outputs().for_each(OutputCell::make_again_if_lost);
            submit_when_ready(self, run.start, parts.clone());
        }
    }

    /// Lets values stay on other machines, although the caller takes outputs one by one.
    pub(super) fn keep_values(&self) {
        self.kept.lock().get_or_insert_default();
    }

    /// Takes an output on another machine.
    pub(super) fn take_kept(&self, index: u64) -> Option<Arc<OutputCell>> {
        self.kept.lock().as_mut()?.remove(&index)
    }

    /// Returns how the value of a task is made again that had these arguments.
    fn recipe(&self, arguments: &Run) -> Recipe {
        let index = arguments.start;
        let (inputs, size) = match arguments.parts() {
            Some(parts) => {
                let (recipe, size) = parts.recipe();
                (TaskInputs::Parts(recipe), size)
            }
            None => {
                // A part of the bytes would keep those of other tasks.
                let (bytes, blobs) = (arguments.first_arguments(), arguments.blobs().clone());
                let size = bytes.len() + blobs.total_len();
                let _stored = Stored::new(bytes.len() + blobs.private_len());
                (TaskInputs::Encoded { bytes, blobs, _stored }, size)
            }
        };
        let keep_alive = self.keep_alive.take(index);
        // Objects live no longer than the task needs them.
        let size = if keep_alive.is_empty() { size + RECIPE } else { usize::MAX };
        let (origin, function) = (self.origin.clone(), self.function);
        Recipe::new(
            Again { origin, function, index, inputs, keep_alive: Arc::new(keep_alive) },
            size,
        )
    }
}

/// Makes the run of an outcome.
fn run_of(call: u64, index: u64, value: &EncodedValue) -> Run {
    let mut bytes = Vec::new();
    push_item(&mut bytes, &value.bytes, false);
    Run::with_blobs(call, index, bytes.into(), value.blobs.clone())
}

impl PoolState {
    /// Sends tasks to a worker, once their inputs are at its host.
    pub(super) fn assign(&self, worker: Arc<WorkerHandle>, assignment: Assignment) {
        if assignment.blobs.are_at(worker.host) {
            let followers = self.followers(&worker, &assignment);
            return worker.assign(assignment, followers);
        }
        let Some(pool) = self.this.upgrade() else { return };
        let (blobs, host, runtime) = (assignment.blobs.clone(), worker.host, self.runtime);
        let then = move |are_there| {
            if are_there {
                return pool.assign_if_pending(&worker, assignment);
            }
            // The hosts can't reach each other, or one is lost.
            let blobs = assignment.blobs.clone();
            blobs.fetch(move |_| pool.assign_if_pending(&worker, assignment));
        };
        match host {
            Some(host) => runtime.copy_to_host(&blobs, host, then),
            None => blobs.fetch(then),
        }
    }

    /// Sends a task whose inputs have been moved, unless it was cancelled or the worker has died. A
    /// task whose inputs are lost waits until they are made again.
    fn assign_if_pending(
        self: &Arc<PoolState>,
        worker: &Arc<WorkerHandle>,
        assignment: Assignment,
    ) {
        let (call, index) = (assignment.call, assignment.first);
        let withdrawn = self.with_scheduler(|scheduler, effects| {
            let is_wanted = scheduler.caller(call).is_some();
            if is_wanted && assignment.blobs.are_at(worker.host) {
                // Under the lock, so that a cancellation comes behind it.
                if scheduler.is_pending(worker.id, call, index) {
                    worker.assign(assignment, Vec::new());
                }
                return None;
            }
            let run = scheduler.withdraw(worker.id, (call, index), effects)?;
            Some((Arc::clone(scheduler.caller(call)?), run))
        });
        if let Some((exchange, run)) = withdrawn {
            exchange.hold(&run);
        }
    }
}
