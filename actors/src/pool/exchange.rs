//! One call between its caller and its pool: tasks go in, outcomes come out.
//!
//! Tasks gather in the open block. The [feeder](super::feeder) puts them there and hands the block
//! over; the pool takes it when a worker has room again. Outcomes wait here until the caller takes
//! them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use fiber_core::{Error, Result};
use parking_lot::{Condvar, Mutex};

use super::buffer::Buffer;
use super::pinned::Pinned;
use super::run::{CallId, Run};
use super::scheduler::{Caller, Settled};

/// When the feeder may forget a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// When its outcome has arrived.
    Settled,
    /// When its outcome has been taken by the caller.
    Taken,
}

/// How a caller takes the outcomes of its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// All together.
    Together,
    /// One by one, in the order of the tasks.
    Tasks,
    /// One by one, as they come.
    Arrival,
}

impl Order {
    fn release(self) -> Release {
        if self == Order::Together { Release::Settled } else { Release::Taken }
    }
}

/// See the module's documentation.
pub(crate) struct Exchange {
    pub(super) id: CallId,
    pub(super) function: &'static str,
    order: Order,
    buffer: Buffer,
    open: Mutex<Block>,
    inbox: Mutex<Inbox>,
    /// Wakes the feeder.
    room: Condvar,
    feeder_waits: AtomicBool,
    released: AtomicU64,
    /// How many tasks are worth a message, if a worker is idle.
    morsel: AtomicU64,
    stopped: AtomicBool,
    pub(super) pins: Pinned,
}

#[derive(Default)]
struct Block {
    first: u64,
    count: u64,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Inbox {
    arrived: VecDeque<Arrived>,
    /// Tasks in all, once that is known.
    total: Option<u64>,
    settled: u64,
    ended: Option<Error>,
    waker: Option<Waker>,
}

/// Arguments that are stored, and counted until they are not.
struct Stored {
    bytes: Vec<u8>,
    counted: u64,
    exchange: Arc<Exchange>,
}

impl AsRef<[u8]> for Stored {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.exchange.buffer.free_arguments(self.counted);
        if self.exchange.feeder_waits.load(Ordering::SeqCst) {
            let _inbox = self.exchange.inbox.lock();
            self.exchange.room.notify_one();
        }
    }
}

/// What a caller receives.
#[derive(Debug)]
pub(super) enum Arrived {
    /// Outcomes of tasks that follow each other.
    Outcomes(Run),
    /// A task that has no outcome of its own.
    Failed(u64, Error),
}

impl Arrived {
    /// How many tasks.
    pub(super) fn len(&self) -> u64 {
        match self {
            Arrived::Outcomes(run) => run.len(),
            Arrived::Failed(..) => 1,
        }
    }

    /// The index of the first.
    pub(super) fn start(&self) -> u64 {
        match self {
            Arrived::Outcomes(run) => run.start,
            Arrived::Failed(index, _) => *index,
        }
    }

    /// The index after the last.
    pub(super) fn end(&self) -> u64 {
        self.start() + self.len()
    }

    fn size(&self) -> u64 {
        match self {
            Arrived::Outcomes(run) => run.size() as u64,
            Arrived::Failed(..) => 0,
        }
    }
}

impl Exchange {
    /// A call that stores at most so many bytes.
    pub(super) fn new(
        id: CallId,
        function: &'static str,
        order: Order,
        limit: u64,
    ) -> Arc<Exchange> {
        Arc::new(Exchange {
            id,
            function,
            order,
            buffer: Buffer::new(limit, order.release()),
            open: Mutex::default(),
            inbox: Mutex::default(),
            room: Condvar::new(),
            feeder_waits: AtomicBool::new(false),
            released: AtomicU64::new(0),
            morsel: AtomicU64::new(1),
            stopped: AtomicBool::new(false),
            pins: Pinned::default(),
        })
    }

    /// Passes an outcome to the caller.
    pub(super) fn arrive(&self, settled: Settled) {
        let arrived = match settled {
            Settled::Outcomes(run) => Arrived::Outcomes(run),
            Settled::Abandoned { index, workers: deaths, exit } => Arrived::Failed(
                index,
                Error::WorkerDied { function: self.function, index, deaths, exit },
            ),
        };
        self.deliver(arrived);
    }

    /// A task failed before it could be submitted.
    pub(super) fn fail(&self, index: u64, error: Error) {
        self.buffer.store_outcomes(1, 0);
        self.deliver(Arrived::Failed(index, error));
    }

    /// Passes on what the caller is to receive.
    fn deliver(&self, arrived: Arrived) {
        self.pins.release(arrived.start()..arrived.end());
        let count = arrived.len();
        let mut inbox = self.inbox.lock();
        inbox.settled += count;
        inbox.arrived.push_back(arrived);
        if self.order.release() == Release::Settled {
            self.release(count, &inbox);
        }
        let waker = inbox.waker.take();
        drop(inbox);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Notes that the feeder may forget tasks.
    fn release(&self, count: u64, _: &Inbox) {
        self.released.fetch_add(count, Ordering::SeqCst);
        if self.feeder_waits.load(Ordering::SeqCst) {
            self.room.notify_one();
        }
    }

    /// Ends the call: the caller gets `error` after what has arrived.
    pub(super) fn end(&self, error: Error) {
        self.stop();
        let mut inbox = self.inbox.lock();
        inbox.ended.get_or_insert(error);
        let waker = inbox.waker.take();
        drop(inbox);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Stops the feeder.
    pub(super) fn stop(&self) {
        let _inbox = self.inbox.lock();
        self.stopped.store(true, Ordering::Release);
        self.room.notify_all();
    }

    /// Whether no more tasks are wanted.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// The next that has arrived; `None` after the last.
    pub(super) fn poll_arrived(&self, context: &mut Context<'_>) -> Poll<Option<Result<Arrived>>> {
        let mut inbox = self.inbox.lock();
        if let Some(arrived) = inbox.arrived.pop_front() {
            return Poll::Ready(Some(Ok(arrived)));
        }
        if inbox.total == Some(inbox.settled) {
            return Poll::Ready(None);
        }
        if let Some(error) = &inbox.ended {
            return Poll::Ready(Some(Err(error.clone())));
        }
        match &mut inbox.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Notes that the caller has taken outcomes. Returns whether the scheduler keeps tasks of the call
    /// back, and is to look again.
    #[must_use]
    pub(super) fn taken(&self, arrived: &Arrived) -> bool {
        if self.order.release() == Release::Settled {
            return false;
        }
        let resumes = self.buffer.free_outcomes(arrived.len(), arrived.size(), arrived.end());
        let inbox = self.inbox.lock();
        self.release(arrived.len(), &inbox);
        resumes
    }

    pub(super) fn total(&self) -> Option<u64> {
        self.inbox.lock().total
    }

    /// So many tasks are all.
    pub(super) fn set_total(&self, total: u64) {
        let mut inbox = self.inbox.lock();
        inbox.total = Some(total);
        let waker = inbox.waker.take();
        drop(inbox);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Adds a task to the open block, and says how many tasks and bytes are in it then.
    #[inline]
    pub(super) fn add(&self, encoded: &[u8]) -> (u64, usize) {
        let mut open = self.open.lock();
        open.bytes.extend_from_slice(encoded);
        open.count += 1;
        (open.count, open.bytes.len())
    }

    /// Whether so many tasks are worth a message, if a worker is idle.
    #[inline]
    pub(super) fn are_worth_it(&self, tasks: u64) -> bool {
        tasks >= self.morsel.load(Ordering::Relaxed)
    }

    pub(super) fn has_open(&self) -> bool {
        self.open.lock().count > 0
    }

    /// The task that is added next has this index; the open block is empty.
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
        Some(Run::new(self.id, first, end, self.store(bytes)))
    }

    /// Counts arguments until they are dropped.
    pub(super) fn store(self: &Arc<Exchange>, bytes: Vec<u8>) -> Bytes {
        let counted = self.buffer.store_arguments(bytes.capacity());
        Bytes::from_owner(Stored { bytes, counted, exchange: Arc::clone(self) })
    }

    /// Whether a feeder that has fed so many tasks has to stop for now; it may be `least` tasks
    /// ahead.
    pub(super) fn is_full(&self, fed: u64, least: u64) -> bool {
        self.buffer.is_full(self.ahead(fed), least)
    }

    /// Waits until there is room for more tasks, or no more are wanted.
    pub(super) fn wait_for_room(&self, fed: u64, least: u64) {
        let mut inbox = self.inbox.lock();
        self.feeder_waits.store(true, Ordering::SeqCst);
        while !self.buffer.has_emptied(self.ahead(fed), least) && !self.is_stopped() {
            self.room.wait(&mut inbox);
        }
        self.feeder_waits.store(false, Ordering::SeqCst);
    }

    fn ahead(&self, fed: u64) -> u64 {
        fed - self.released.load(Ordering::SeqCst)
    }
}

impl Caller for Arc<Exchange> {
    fn more(&self) -> Option<Run> {
        self.take_open()
    }

    fn paced(&self, morsel: u64) {
        self.morsel.store(morsel, Ordering::Relaxed);
    }

    fn stored(&self, tasks: u64, bytes: u64) {
        self.buffer.store_outcomes(tasks, bytes);
    }

    fn room(&self, pending: u64, least: u64) -> u64 {
        self.buffer.room(pending, least)
    }

    fn withhold(&self) {
        self.buffer.withhold();
    }

    fn overflows(&self, pending: u64, least: u64) -> bool {
        self.buffer.overflows(pending, least)
    }

    fn needs(&self) -> Option<u64> {
        (self.order == Order::Tasks).then(|| self.buffer.next())
    }
}
