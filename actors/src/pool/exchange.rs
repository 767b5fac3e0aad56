//! One call between its caller and its pool: tasks go in, outcomes come out.
//!
//! Tasks gather in the open block. The [feeder](super::feeder) puts them there and hands the block over; the pool takes
//! it when a worker has room again. Outcomes wait here until the caller takes them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use fiber_core::{Error, Result};
use parking_lot::{Condvar, Mutex};

use super::ledger::{Caller, Settled};
use super::run::{CallId, Run};

/// When a task no longer counts as under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// When its outcome has arrived.
    Settled,
    /// When its outcome has been taken by the caller.
    Taken,
}

/// See the module's documentation.
pub(crate) struct Exchange {
    pub(super) id: CallId,
    pub(super) function: &'static str,
    release: Release,
    open: Mutex<Block>,
    inbox: Mutex<Inbox>,
    /// Wakes the feeder.
    room: Condvar,
    released: AtomicU64,
    /// Bytes of outcomes and the number of tasks that they belong to, to know how much a task weighs.
    outcome_bytes: AtomicU64,
    /// How many tasks are worth a message, if a worker is idle.
    morsel: AtomicU64,
    stopped: AtomicBool,
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
    feeder_waits: bool,
}

/// What a caller receives.
#[derive(Debug)]
pub(super) enum Arrived {
    /// Outcomes of tasks that follow each other.
    Outcomes(Run),
    /// A task that has no outcome of its own.
    Failed(u64, Error),
}

impl Exchange {
    pub(super) fn new(id: CallId, function: &'static str, release: Release) -> Arc<Exchange> {
        Arc::new(Exchange {
            id,
            function,
            release,
            open: Mutex::default(),
            inbox: Mutex::default(),
            room: Condvar::new(),
            released: AtomicU64::new(0),
            outcome_bytes: AtomicU64::new(0),
            morsel: AtomicU64::new(1),
            stopped: AtomicBool::new(false),
        })
    }

    /// Passes an outcome to the caller.
    pub(super) fn arrive(&self, settled: Settled) {
        let arrived = match settled {
            Settled::Outcomes(run) => Arrived::Outcomes(run),
            Settled::Abandoned { index, workers: deaths, exit } => {
                Arrived::Failed(index, Error::WorkerDied { function: self.function, index, deaths, exit })
            }
        };
        self.deliver(arrived);
    }

    /// Passes on what the caller is to receive.
    pub(super) fn deliver(&self, arrived: Arrived) {
        let count = match &arrived {
            Arrived::Outcomes(run) => {
                self.outcome_bytes.fetch_add(run.size() as u64, Ordering::Relaxed);
                run.len()
            }
            Arrived::Failed(..) => 1,
        };
        let mut inbox = self.inbox.lock();
        inbox.settled += count;
        inbox.arrived.push_back(arrived);
        if self.release == Release::Settled {
            self.release(count, &inbox);
        }
        let waker = inbox.waker.take();
        drop(inbox);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Notes that tasks are not under way any more.
    fn release(&self, count: u64, inbox: &Inbox) {
        self.released.fetch_add(count, Ordering::Release);
        if inbox.feeder_waits {
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

    /// Notes that the caller has taken outcomes of tasks.
    pub(super) fn taken(&self, count: u64) {
        if self.release == Release::Taken {
            let inbox = self.inbox.lock();
            self.release(count, &inbox);
        }
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
    pub(super) fn take_open(&self) -> Option<Run> {
        let mut open = self.open.lock();
        if open.count == 0 {
            return None;
        }
        let (first, end) = (open.first, open.first + open.count);
        (open.first, open.count) = (end, 0);
        let bytes = std::mem::take(&mut open.bytes);
        Some(Run::new(self.id, first, end, bytes.into()))
    }

    /// How many tasks are not under way any more.
    pub(super) fn released(&self) -> u64 {
        self.released.load(Ordering::Acquire)
    }

    /// Bytes of all outcomes so far.
    pub(super) fn outcome_bytes(&self) -> u64 {
        self.outcome_bytes.load(Ordering::Relaxed)
    }

    /// Waits until so many tasks are not under way any more, or no more are wanted.
    pub(super) fn wait_until_released(&self, count: u64) {
        let mut inbox = self.inbox.lock();
        while self.released() < count && !self.is_stopped() {
            inbox.feeder_waits = true;
            self.room.wait(&mut inbox);
        }
        inbox.feeder_waits = false;
    }
}

impl Caller for Arc<Exchange> {
    fn more(&self) -> Option<Run> {
        self.take_open()
    }

    fn paced(&self, morsel: u64) {
        self.morsel.store(morsel, Ordering::Relaxed);
    }
}
