//! One call between its caller and its pool: tasks go in, outcomes come out.
//!
//! Tasks are encoded where the call is made (one task) or on a thread of the call's own (an iterator, which may block,
//! or never end). They gather in the open block. The feeder hands it over when it is full, or when a worker is idle and
//! the block is worth a message; the pool takes it when a worker has room again, and looks every millisecond, for the
//! iterator may hold the feeder up. The feeder stops while too much is under way, so an endless iterator runs in
//! bounded memory.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{Error, Result, codec};
use parking_lot::{Condvar, Mutex};
use serde::Serialize;

use super::ledger::{Caller, Settled};
use super::run::{CallId, PREFIX, Run, prefix};
use super::shared::{Ending, Shared};

/// A block is handed over when it holds this many tasks or bytes.
const BLOCK_TASKS: u64 = 4096;
const BLOCK_BYTES: usize = 64 << 10;
/// Tasks and bytes that may be under way before the feeder stops.
const AHEAD_TASKS: u64 = 64 << 10;
const AHEAD_BYTES: u64 = 64 << 20;

/// After how many tasks the feeder looks again whether too much is under way: the next may weigh more.
const LOOK: u64 = 16;

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
            Settled::GivenUp { index, deaths, exit } => {
                Arrived::Failed(index, Error::WorkerDied { function: self.function, index, deaths, exit })
            }
        };
        self.deliver(arrived);
    }

    fn deliver(&self, arrived: Arrived) {
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

    fn set_total(&self, total: u64) {
        let mut inbox = self.inbox.lock();
        inbox.total = Some(total);
        let waker = inbox.waker.take();
        drop(inbox);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn take_open(&self) -> Option<Run> {
        let mut open = self.open.lock();
        if open.count == 0 {
            return None;
        }
        let (first, end) = (open.first, open.first + open.count);
        (open.first, open.count) = (end, 0);
        let bytes = std::mem::take(&mut open.bytes);
        Some(Run::new(self.id, first, end, bytes.into()))
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

/// Hands over what the feeder has prepared and can't hand over, while its iterator holds it up.
pub(super) async fn look_after(pool: Weak<Shared>, exchange: Arc<Exchange>) {
    while !exchange.stopped.load(Ordering::Acquire) && exchange.total().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let Some(pool) = pool.upgrade() else { return };
        if pool.has_idle() && exchange.open.lock().count > 0 {
            pool.with_ledger(|ledger, effects| ledger.dispatch(effects));
        }
    }
}

/// Encodes the arguments of a task after their length.
pub(super) fn encode<A: Serialize>(arguments: &A, scratch: &mut Vec<u8>, limit: usize) -> Result<()> {
    scratch.clear();
    scratch.extend_from_slice(&[0; PREFIX]);
    codec::append(scratch, arguments)?;
    let length = scratch.len() - PREFIX;
    if length > limit {
        let what = format!("an argument of type `{}`", std::any::type_name::<A>());
        return Err(Error::TooLarge { what, size: length as u64, limit: limit as u64 });
    }
    scratch[..PREFIX].copy_from_slice(&prefix(length, false));
    Ok(())
}

/// Feeds one task.
pub(super) fn feed_one(pool: &Shared, exchange: &Exchange, encoded: Vec<u8>) {
    exchange.set_total(1);
    pool.submit(Run::new(exchange.id, 0, 1, encoded.into()));
    pool.finish_feeding(exchange.id);
}

/// Feeds the tasks of an iterator, on a thread of its own.
pub(super) fn feed<A: Serialize>(pool: &Shared, exchange: &Exchange, items: impl Iterator<Item = A>) {
    let mut feeder = Feeder { pool, exchange, fed: 0, fed_bytes: 0, look_at: 0, scratch: Vec::new() };
    let all = std::panic::AssertUnwindSafe(|| {
        items.take_while(|_| !exchange.stopped.load(Ordering::Acquire)).for_each(|item| feeder.add(&item))
    });
    if let Err(message) = fiber_core::panics::catch(|| std::panic::catch_unwind(all)) {
        let problem = format!("the iterator panicked: {message}");
        pool.cancel(exchange.id, Ending::LetFinish);
        return exchange.end(Error::Invalid { what: "the tasks of a call", problem });
    }
    if exchange.stopped.load(Ordering::Acquire) {
        // Tasks are left out, so there is no total.
        return pool.finish_feeding(exchange.id);
    }
    feeder.hand_over();
    exchange.set_total(feeder.fed);
    pool.finish_feeding(exchange.id);
}

struct Feeder<'a> {
    pool: &'a Shared,
    exchange: &'a Exchange,
    fed: u64,
    fed_bytes: u64,
    /// At how many tasks to look whether too much is under way.
    look_at: u64,
    scratch: Vec<u8>,
}

impl Feeder<'_> {
    #[inline]
    fn add<A: Serialize>(&mut self, item: &A) {
        let index = self.fed;
        self.fed += 1;
        if let Err(error) = encode(item, &mut self.scratch, self.pool.max_message) {
            self.skip(index);
            self.exchange.deliver(Arrived::Failed(index, error));
        } else if self.scratch.len() >= BLOCK_BYTES {
            self.skip(index);
            self.fed_bytes += self.scratch.len() as u64;
            let bytes: Bytes = std::mem::take(&mut self.scratch).into();
            self.pool.submit(Run::new(self.exchange.id, index, index + 1, bytes));
        } else {
            self.fed_bytes += self.scratch.len() as u64;
            let mut open = self.exchange.open.lock();
            open.bytes.extend_from_slice(&self.scratch);
            open.count += 1;
            let full = open.count >= BLOCK_TASKS || open.bytes.len() >= BLOCK_BYTES;
            let worth_it = open.count >= self.exchange.morsel.load(Ordering::Relaxed);
            drop(open);
            if full || (worth_it && self.pool.has_idle()) {
                self.hand_over();
            }
        }
        if self.fed >= self.look_at {
            self.wait_for_room();
        }
    }

    /// Leaves a task out of the open block, which holds tasks that follow each other.
    fn skip(&self, index: u64) {
        self.hand_over();
        self.exchange.open.lock().first = index + 1;
    }

    fn hand_over(&self) {
        if let Some(run) = self.exchange.take_open() {
            self.pool.submit(run);
        }
    }

    /// Waits while too much is under way. What is enough depends on what tasks and outcomes weigh.
    fn wait_for_room(&mut self) {
        let weight = (self.fed_bytes + self.exchange.outcome_bytes.load(Ordering::Relaxed)) / self.fed;
        let ahead = (AHEAD_BYTES / weight.max(1)).clamp(self.pool.ahead_at_least(), AHEAD_TASKS);
        let under_way = || self.fed - self.exchange.released.load(Ordering::Acquire);
        if under_way() >= ahead {
            self.hand_over();
            let mut inbox = self.exchange.inbox.lock();
            while under_way() > ahead / 2 && !self.exchange.stopped.load(Ordering::Acquire) {
                inbox.feeder_waits = true;
                self.exchange.room.wait(&mut inbox);
            }
            inbox.feeder_waits = false;
        }
        self.look_at = self.fed + ahead.saturating_sub(under_way()).clamp(1, LOOK);
    }
}
