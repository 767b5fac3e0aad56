//! The exchange of one call between its caller and its pool: tasks go in, outcomes come out.
//!
//! The [feeder](super::feeder) collects encoded tasks in the open block and submits the block. The
//! pool takes an unfinished block when a worker can take more tasks. Outcomes stay here until the
//! caller takes them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use fiber_core::value_memory::{self, Stored};
use fiber_core::{Error, Result};
use fiber_journal::TaskKey;
use fiber_values::blob::Blobs;
use fiber_values::{MakingCall, OutputCell, slot};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::away::Origin;
use super::batch::{Order, Release, ResultBatch};
use super::buffer::Buffer;
use super::durable::DurableCall;
use super::held::HeldTasks;
use super::keep_alive::TaskKeepAlives;
use super::run::{CallId, Run};
use super::scheduler::{Call, Completion, Room, Values};
use super::state::PoolState;
use fiber_runtime::runtime::{Runtime, telemetry};
use fiber_runtime::timeline::CallRecord;

/// See the module's documentation.
pub(crate) struct Exchange {
    pub(super) id: CallId,
    pub(super) function: &'static str,
    order: Order,
    pub(super) buffer: Buffer,
    open: Mutex<Block>,
    inbox: Mutex<Inbox>,
    /// Wakes the feeder.
    room: Condvar,
    feeder_waits: AtomicBool,
    has_warned: AtomicBool,
    released: AtomicU64,
    /// How many tasks are worth a message of their own while a worker is idle.
    run_size: AtomicU64,
    stopped: AtomicBool,
    pub(super) keep_alive: TaskKeepAlives,
    record: CallRecord,
    /// Where outcomes are recorded before they are delivered, in a durable call.
    pub(super) durable: Option<Arc<DurableCall>>,
    /// The tasks that wait for inputs.
    pub(super) held: HeldTasks,
    pub(super) runtime: &'static Runtime,
    pub(super) origin: Origin,
    /// The call as its outputs know it, if it has some.
    pub(super) making: OnceLock<Arc<MakingCall>>,
    /// The outputs on other machines that the caller has not taken, if it takes outputs one by one.
    pub(super) kept: Mutex<Option<HashMap<u64, Arc<OutputCell>>>>,
}

/// How long the feeder waits for memory before a warning says so.
const SLOW: Duration = Duration::from_secs(1);

/// Encoded tasks that are not submitted.
#[derive(Default)]
struct Block {
    first: u64,
    count: u64,
    bytes: Vec<u8>,
    /// The keys of the tasks, in a durable call.
    keys: Vec<TaskKey>,
}

/// Outcomes that the caller has not taken.
#[derive(Default)]
struct Inbox {
    batches: VecDeque<ResultBatch>,
    /// The number of all tasks, once it is known.
    total: Option<u64>,
    completed: u64,
    /// An error takes as many bytes as all the rest, and few calls have one.
    ended: Option<Box<Error>>,
    waker: Option<Waker>,
    /// Where outcomes go instead.
    sink: Option<Arc<dyn Sink>>,
}

/// Takes the outcomes of a call in place of its handle.
pub(super) trait Sink: Send + Sync {
    fn take(&self, function: &'static str, batch: ResultBatch);

    /// Returns the cell of a task's output, if the call has outputs and anything has this one.
    fn cell(&self, _index: u64) -> Option<Arc<OutputCell>> {
        None
    }

    /// Notes that the call has `total` tasks.
    fn set_total(&self, total: u64);

    /// Notes that the call ends without the outcomes that are missing.
    fn end(&self, error: &Error);
}

/// Arguments that count towards the call's buffer until they are dropped.
struct StoredArguments {
    bytes: Vec<u8>,
    counted: u64,
    exchange: Arc<Exchange>,
    _stored: Stored,
}

impl AsRef<[u8]> for StoredArguments {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for StoredArguments {
    fn drop(&mut self) {
        self.exchange.buffer.free_arguments(self.counted);
        if self.exchange.feeder_waits.load(Ordering::SeqCst) {
            let _inbox = self.exchange.inbox.lock();
            self.exchange.room.notify_one();
        }
    }
}

/// Wakes the caller. Returns where outcomes go instead.
fn wake(mut inbox: MutexGuard<'_, Inbox>) -> Option<Arc<dyn Sink>> {
    let (waker, sink) = (inbox.waker.take(), inbox.sink.clone());
    drop(inbox);
    if let Some(waker) = waker {
        waker.wake();
    }
    sink
}

impl Exchange {
    /// Returns the exchange of a call that stores at most `limit` bytes.
    pub(super) fn new(
        pool: &PoolState,
        function: &'static str,
        origin: Origin,
        order: Order,
        limit: u64,
        durable: Option<Arc<DurableCall>>,
    ) -> Arc<Exchange> {
        let id = pool.calls.next();
        Arc::new(Exchange {
            id,
            function,
            order,
            buffer: Buffer::new(limit, order.release()),
            open: Mutex::default(),
            inbox: Mutex::default(),
            room: Condvar::new(),
            feeder_waits: AtomicBool::new(false),
            has_warned: AtomicBool::new(false),
            released: AtomicU64::new(0),
            run_size: AtomicU64::new(1),
            stopped: AtomicBool::new(false),
            keep_alive: TaskKeepAlives::new(pool.runtime),
            record: CallRecord::begin(pool.timeline, &pool.name, id, function),
            durable,
            held: HeldTasks::default(),
            runtime: pool.runtime,
            origin,
            making: OnceLock::new(),
            kept: Mutex::default(),
        })
    }

    /// Returns the call as the scheduler gets it.
    pub(super) fn new_call(self: &Arc<Exchange>) -> Call<Arc<Exchange>> {
        let room = Room::new(self.buffer.max_outcomes(), self.order == Order::Tasks);
        let mut call = Call::new(Arc::clone(self), self.origin.entry, self.origin.options, room);
        call.function = self.function;
        call.context = telemetry::current_context();
        call.depth = slot::depth();
        call.since = SystemTime::now();
        if self.durable.is_some() {
            call.durable = true;
            // A journal records bytes.
            call.values = Values::Come;
        }
        call
    }

    /// Passes completed tasks to the caller, in a durable call by way of the journal.
    pub(super) fn complete(self: &Arc<Exchange>, completion: Completion) {
        let batch = match completion {
            Completion::Outcomes(run) => ResultBatch::of(run),
            Completion::Away { outcome, arguments } => {
                return self.complete_away(outcome, &arguments);
            }
            Completion::Abandoned { index, workers: deaths, exit } => {
                ResultBatch::Failed(index, Error::abandoned(self.function, index, deaths, exit))
            }
        };
        self.buffer.store_outcomes(batch.len(), batch.size());
        match &self.durable {
            None => self.deliver(batch),
            Some(call) => call.record(self, batch),
        }
    }

    /// Fails a task that could not be submitted.
    pub(super) fn fail(&self, index: u64, error: Error) {
        self.deliver_added(ResultBatch::Failed(index, error));
    }

    /// Passes outcomes to the caller that the scheduler does not know.
    pub(super) fn deliver_added(&self, batch: ResultBatch) {
        self.buffer.add_outcomes(batch.len(), batch.size());
        self.deliver(batch);
    }

    pub(super) fn deliver(&self, batch: ResultBatch) {
        self.keep_alive.release(batch.start()..batch.end());
        let count = batch.len();
        let mut inbox = self.inbox.lock();
        inbox.completed += count;
        let mut batch = Some(batch);
        if inbox.sink.is_none() {
            inbox.batches.extend(batch.take());
        }
        if self.order.release() == Release::Completed {
            self.release(count, &inbox);
        }
        self.record_end(&inbox);
        if let (Some(sink), Some(batch)) = (wake(inbox), batch) {
            self.pass(&*sink, batch);
        }
    }

    fn pass(&self, sink: &dyn Sink, batch: ResultBatch) {
        // The scheduler knows that they are taken at once.
        let _ = self.consumed(&batch);
        sink.take(self.function, batch);
    }

    pub(super) fn sink(&self) -> Option<Arc<dyn Sink>> {
        self.inbox.lock().sink.clone()
    }

    /// Lets outcomes go into the sink, also those that have arrived.
    pub(super) fn pass_to(&self, sink: Arc<dyn Sink>) {
        let mut inbox = self.inbox.lock();
        let batches = std::mem::take(&mut inbox.batches);
        let (ended, total) = (inbox.ended.clone(), inbox.total);
        inbox.sink = Some(Arc::clone(&sink));
        drop(inbox);
        batches.into_iter().for_each(|batch| self.pass(&*sink, batch));
        if let Some(error) = ended {
            sink.end(&error);
        }
        if let Some(total) = total {
            sink.set_total(total);
        }
    }

    /// Waits until the number of all tasks is known, or the call has ended.
    pub(super) fn poll_total(&self, context: &mut Context<'_>) -> Poll<Result<u64>> {
        let mut inbox = self.inbox.lock();
        if let Some(total) = inbox.total {
            return Poll::Ready(Ok(total));
        }
        if let Some(error) = &inbox.ended {
            return Poll::Ready(Err(Error::clone(error)));
        }
        inbox.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Notes on the timeline that the call has ended, if it has.
    fn record_end(&self, inbox: &Inbox) {
        if inbox.total == Some(inbox.completed) {
            self.record.end();
        }
    }

    /// Lets the feeder add `count` more tasks. The lock of the inbox orders this with
    /// [`wait_for_room`](Exchange::wait_for_room).
    fn release(&self, count: u64, _: &Inbox) {
        self.released.fetch_add(count, Ordering::SeqCst);
        if self.feeder_waits.load(Ordering::SeqCst) {
            self.room.notify_one();
        }
    }

    /// Ends the call. The caller receives `error` after the outcomes that have arrived.
    pub(super) fn end(&self, error: Error) {
        self.stop();
        let mut inbox = self.inbox.lock();
        let error = Error::clone(inbox.ended.get_or_insert_with(|| Box::new(error)));
        self.record.end();
        if let Some(sink) = wake(inbox) {
            sink.end(&error);
        }
    }

    /// Stops the feeder, and lets go of the tasks that wait for inputs.
    pub(super) fn stop(&self) {
        let inbox = self.inbox.lock();
        self.stopped.store(true, Ordering::Release);
        self.room.notify_all();
        drop(inbox);
        self.held.clear();
    }

    /// Returns whether the feeder is to stop.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Takes the next batch of results, or returns `None` after the last.
    pub(super) fn poll_batch(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<ResultBatch>>> {
        let mut inbox = self.inbox.lock();
        if let Some(batch) = inbox.batches.pop_front() {
            return Poll::Ready(Some(Ok(batch)));
        }
        if inbox.total == Some(inbox.completed) {
            return Poll::Ready(None);
        }
        if let Some(error) = &inbox.ended {
            return Poll::Ready(Some(Err(Error::clone(error))));
        }
        match &mut inbox.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Frees the room of a batch that the caller has consumed. Returns whether a report to the
    /// scheduler is due.
    #[must_use]
    pub(super) fn consumed(&self, batch: &ResultBatch) -> bool {
        let report_is_due = self.buffer.free_outcomes(batch.len(), batch.size(), batch.end());
        if self.order.release() == Release::Taken {
            let inbox = self.inbox.lock();
            self.release(batch.len(), &inbox);
        } else if self.durable.is_some() && self.feeder_waits.load(Ordering::SeqCst) {
            let _inbox = self.inbox.lock();
            self.room.notify_one();
        }
        report_is_due
    }

    /// Sets how many tasks are worth a message of their own while a worker is idle.
    pub(super) fn set_run_size(&self, tasks: u64) {
        self.run_size.store(tasks, Ordering::Relaxed);
    }

    /// Returns the number of all tasks, once it is known.
    pub(super) fn total(&self) -> Option<u64> {
        self.inbox.lock().total
    }

    /// Returns how many outcomes came from a journal.
    pub(super) fn recorded(&self) -> u64 {
        self.durable.as_ref().map_or(0, |call| call.delivered())
    }

    pub(super) fn set_total(&self, total: u64) {
        let mut inbox = self.inbox.lock();
        inbox.total = Some(total);
        self.record_end(&inbox);
        if let Some(sink) = wake(inbox) {
            sink.set_total(total);
        }
    }

    /// Adds tasks to the open block, in a durable call with their keys. Returns the number of tasks
    /// and bytes in it.
    pub(super) fn add(&self, encoded: &[u8], tasks: u64, keys: &[TaskKey]) -> (u64, usize) {
        let mut open = self.open.lock();
        open.keys.extend_from_slice(keys);
        open.bytes.extend_from_slice(encoded);
        open.count += tasks;
        (open.count, open.bytes.len())
    }

    /// Returns whether `tasks` tasks are worth a message of their own while a worker is idle.
    #[inline]
    pub(super) fn is_worth_sending(&self, tasks: u64) -> bool {
        tasks >= self.run_size.load(Ordering::Relaxed)
    }

    pub(super) fn has_open(&self) -> bool {
        self.open.lock().count > 0
    }

    /// Sets the index of the next task. The open block is empty.
    pub(super) fn open_at(&self, index: u64) {
        self.open.lock().first = index;
    }

    /// Takes the tasks of the open block, if there are any.
    pub(super) fn take_open(self: &Arc<Exchange>) -> Option<Run> {
        let mut open = self.open.lock();
        if open.count == 0 {
            return None;
        }
        let (first, end) = (open.first, open.first + open.count);
        (open.first, open.count) = (end, 0);
        let bytes = std::mem::take(&mut open.bytes);
        self.note_keys(first, std::mem::take(&mut open.keys));
        Some(Run::new(self.id, first, end, self.store(bytes, &Blobs::default())))
    }

    /// Counts arguments with these blobs towards the buffer until they are dropped.
    pub(super) fn store(self: &Arc<Exchange>, bytes: Vec<u8>, blobs: &Blobs) -> Bytes {
        let _stored = Stored::new(bytes.capacity() + blobs.private_len());
        let counted = self.buffer.store_arguments(bytes.capacity() + blobs.total_len());
        Bytes::from_owner(StoredArguments { bytes, counted, exchange: Arc::clone(self), _stored })
    }

    /// Counts so many bytes, which others own, towards the buffer. They are counted until the
    /// result, which has no bytes, is dropped.
    pub(super) fn count(self: &Arc<Exchange>, size: usize) -> Bytes {
        let counted = self.buffer.store_arguments(size);
        let (bytes, _stored) = Default::default();
        Bytes::from_owner(StoredArguments { bytes, counted, exchange: Arc::clone(self), _stored })
    }

    /// Returns whether a feeder that has added `fed` tasks has to wait. It need not while it is
    /// fewer than `least` tasks ahead.
    pub(super) fn is_full(&self, fed: u64, least: u64) -> bool {
        self.buffer.is_full(self.ahead(fed), least)
            || (self.durable.is_some() && self.buffer.is_full_of_outcomes(least))
    }

    /// Returns whether a feeder that waits continues.
    fn has_room(&self, fed: u64, least: u64) -> bool {
        self.buffer.has_emptied(self.ahead(fed), least)
            && (self.durable.is_none() || self.buffer.has_emptied_of_outcomes(least))
    }

    /// Blocks until there is room for more tasks, or the feeder is to stop.
    pub(super) fn wait_for_room(&self, fed: u64, least: u64) {
        let mut inbox = self.inbox.lock();
        self.feeder_waits.store(true, Ordering::SeqCst);
        let mut slow_at = Some(Instant::now() + SLOW);
        while !self.has_room(fed, least) && !self.is_stopped() {
            match slow_at {
                Some(slow) if Instant::now() < slow => {
                    self.room.wait_until(&mut inbox, slow);
                }
                Some(_) => {
                    slow_at = None;
                    self.warn_of_memory();
                }
                None => self.room.wait(&mut inbox),
            }
        }
        self.feeder_waits.store(false, Ordering::SeqCst);
    }

    /// Says once why the call is slow: other calls, queues or arrays take the memory of values.
    fn warn_of_memory(&self) {
        if value_memory::is_full() && !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the call of {} hands out few tasks at a time: values take all the memory that \
                 they may ({}). Take results that wait, drop arrays, or raise `FIBER_VALUE_MEMORY`",
                self.function,
                value_memory::value_memory()
            );
        }
    }

    fn ahead(&self, fed: u64) -> u64 {
        fed - self.released.load(Ordering::SeqCst)
    }
}
