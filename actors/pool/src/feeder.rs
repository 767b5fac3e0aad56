//! The feeder of a call encodes its tasks and submits them.
//!
//! A single task is encoded on the caller's thread. The tasks of an iterator, which may block or be
//! endless, are encoded on a thread of the call's own. They collect in the open block of the
//! exchange, one by one, or many at a time if the iterator can't block. The feeder submits the
//! block when it is full, or when a worker is idle and the block is worth a message. While the
//! iterator blocks the feeder, the pool submits the block: when a worker can take more tasks, and
//! every millisecond while a worker is idle. The feeder waits while the call's
//! [buffer](super::buffer) is full, so an endless iterator runs in bounded memory.
//!
//! Tasks of durable calls that have a recorded outcome are not submitted.

mod encoding;

use std::any::TypeId;
use std::mem::needs_drop;
use std::ops::{Range, RangeFrom, RangeInclusive};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::vec;

use fiber_core::stacks::user_code;
use fiber_core::{Error, Result, panics};
use fiber_journal::TaskKey;
use fiber_runtime::runtime::report_panic;
use fiber_values::Inputs;
use fiber_values::blob::Blobs;

use self::encoding::Prepared;
use super::durable::break_off;
use super::exchange::Exchange;
use super::held::submit_when_ready;
use super::run::Run;
use super::state::PoolState;

pub(super) use self::encoding::{encode, prepare};

/// The feeder submits a block of this many tasks or bytes.
const BLOCK_TASKS: u64 = 4096;
const BLOCK_BYTES: usize = 64 << 10;
/// The feeder adds tasks of a [prompt](is_prompt) iterator to the open block when it has gathered
/// this many tasks or bytes. The lock of the block takes longer than the rest of a short task.
const GATHERED_TASKS: u64 = 64;
const GATHERED_BYTES: usize = 4 << 10;
/// After how many tasks the feeder checks whether the buffer is full, besides after each block.
const CHECK_TASKS: u64 = 16;

/// Submits the open block every millisecond while a worker is idle and the iterator blocks the
/// feeder, and delivers recorded outcomes that the feeder has gathered.
pub(super) async fn submit_while_blocked(pool: Weak<PoolState>, exchange: Arc<Exchange>) {
    while !exchange.is_stopped() && exchange.total().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let Some(pool) = pool.upgrade() else { return };
        exchange.deliver_waiting();
        if pool.has_idle() && exchange.has_open() {
            pool.with_scheduler(|scheduler, effects| scheduler.want(effects));
        }
    }
}

/// Submits the only task of a call, whose arguments are in `scratch`, or delivers its outcome from
/// the journal.
pub(super) fn feed_one(
    pool: &Arc<PoolState>,
    exchange: &Arc<Exchange>,
    prepared: Prepared,
    scratch: Vec<u8>,
) -> Result<()> {
    exchange.set_total(1);
    let mut for_workers = 1;
    match prepared {
        Prepared::New(blobs, key) => {
            exchange.note_keys(0, key.into_iter().collect());
            if let Some(call) = &exchange.durable {
                pool.ensure_started(call.meta);
            }
            pool.submit(exchange, Run::with_blobs(exchange.id, 0, scratch.into(), blobs));
        }
        Prepared::Held(parts) => submit_when_ready(exchange, 0, parts),
        Prepared::Recorded(outcome) => {
            exchange.add_recorded(0, outcome);
            exchange.deliver_waiting();
            for_workers = 0;
        }
        Prepared::Unreadable(error) => return Err(error),
    }
    pool.finish_feeding(exchange.id, Some(for_workers));
    Ok(())
}

/// Submits the tasks of an iterator. It blocks, so it runs on a thread of its own.
pub(super) fn feed<I: Iterator<Item: Inputs<P, M>> + 'static, P, M>(
    pool: &Arc<PoolState>,
    exchange: &Arc<Exchange>,
    items: I,
) {
    let mut feeder = Feeder {
        pool,
        exchange,
        fed: 0,
        for_workers: 0,
        check_at: 0,
        scratch: Vec::new(),
        gathers: !needs_drop::<I::Item>() && is_prompt::<I>(),
        gathered: Vec::new(),
        gathered_tasks: 0,
        gathered_keys: Vec::new(),
        left_out: false,
        submits: false,
    };
    let items = items.take_while(|_| !exchange.is_stopped());
    let all = || user_code(|| items.for_each(|item| feeder.add(&item)));
    if let Err(panic) = panics::catch(all) {
        let problem = format!("the iterator {}", report_panic(panic));
        return break_off(pool, exchange, Error::invalid("Pool::map", problem));
    }
    if exchange.is_stopped() {
        // Some tasks were not submitted, so there is no total.
        return pool.finish_feeding(exchange.id, None);
    }
    feeder.submit_open();
    exchange.deliver_waiting();
    exchange.set_total(feeder.fed);
    pool.finish_feeding(exchange.id, Some(feeder.for_workers));
}

/// Returns whether the iterator is one of the standard library that runs no code of the program, so
/// that it never keeps the feeder waiting with tasks that it has gathered.
fn is_prompt<I: Iterator + 'static>() -> bool {
    [
        TypeId::of::<Range<I::Item>>(),
        TypeId::of::<RangeFrom<I::Item>>(),
        TypeId::of::<RangeInclusive<I::Item>>(),
        TypeId::of::<vec::IntoIter<I::Item>>(),
    ]
    .contains(&TypeId::of::<I>())
}

struct Feeder<'a> {
    pool: &'a Arc<PoolState>,
    exchange: &'a Arc<Exchange>,
    fed: u64,
    /// How many of them go to workers.
    for_workers: u64,
    /// At how many tasks to check whether the buffer is full.
    check_at: u64,
    scratch: Vec<u8>,
    /// Whether tasks are gathered before they are added to the open block.
    gathers: bool,
    /// The tasks that are to be added to the open block.
    gathered: Vec<u8>,
    gathered_tasks: u64,
    /// Their keys, in a durable call.
    gathered_keys: Vec<TaskKey>,
    /// Whether the open block is empty and does not begin with the next task.
    left_out: bool,
    /// Whether a task of a durable call had to run.
    submits: bool,
}

impl Feeder<'_> {
    /// Adds a task, or delivers its recorded outcome.
    #[inline]
    fn add<A: Inputs<P, M>, P, M>(&mut self, item: &A) {
        let (exchange, limit, index) = (self.exchange, self.pool.max_message, self.fed);
        self.fed += 1;
        let encoded = encode(item, &mut self.scratch, limit, exchange.durable.is_some());
        let prepared = encoded.and_then(|(keep_alive, encoded)| {
            exchange.keep_alive.add(index, keep_alive);
            prepare(exchange, item, &mut self.scratch, limit, encoded)
        });
        match prepared {
            Ok(Prepared::New(blobs, key)) => self.add_new(index, blobs, key),
            Ok(Prepared::Held(parts)) => {
                self.for_workers += 1;
                submit_when_ready(exchange, index, parts);
                self.check_at = self.fed;
            }
            Ok(Prepared::Recorded(outcome)) => {
                self.leave_out();
                if exchange.add_recorded(index, outcome) {
                    self.check_at = self.fed;
                }
            }
            Ok(Prepared::Unreadable(error)) => break_off(self.pool, exchange, error),
            Err(error) => {
                self.leave_out();
                exchange.fail(index, error);
            }
        }
        if self.fed >= self.check_at {
            self.wait_for_room();
        }
    }

    /// Adds the task in `scratch`.
    #[inline]
    fn add_new(&mut self, index: u64, blobs: Blobs, key: Option<TaskKey>) {
        if let Some(call) = &self.exchange.durable
            && !std::mem::replace(&mut self.submits, true)
        {
            self.pool.ensure_started(call.meta);
        }
        if std::mem::take(&mut self.left_out) {
            self.exchange.open_at(index);
        }
        if self.scratch.len() >= BLOCK_BYTES || !blobs.is_empty() {
            self.submit_alone(index, blobs, key);
        } else {
            self.add_to_open(key);
        }
    }

    /// Adds the task in `scratch` to the open block, now or with others.
    #[inline]
    fn add_to_open(&mut self, key: Option<TaskKey>) {
        self.for_workers += 1;
        if !self.gathers {
            let open = self.exchange.add(&self.scratch, 1, key.as_slice());
            return self.submit_if_due(open);
        }
        self.gathered.extend_from_slice(&self.scratch);
        self.gathered_keys.extend(key);
        self.gathered_tasks += 1;
        if self.gathered_tasks >= GATHERED_TASKS || self.gathered.len() >= GATHERED_BYTES {
            let open = self.add_gathered();
            self.submit_if_due(open);
        }
    }

    /// Adds the gathered tasks to the open block. Returns the number of tasks and bytes in it.
    fn add_gathered(&mut self) -> (u64, usize) {
        let open = self.exchange.add(&self.gathered, self.gathered_tasks, &self.gathered_keys);
        self.gathered.clear();
        self.gathered_keys.clear();
        self.gathered_tasks = 0;
        open
    }

    /// Submits the open block, which has so many tasks and bytes, if it is full or a worker waits.
    #[inline]
    fn submit_if_due(&mut self, (tasks, bytes): (u64, usize)) {
        let full = tasks >= BLOCK_TASKS || bytes >= BLOCK_BYTES;
        if full || (self.exchange.is_worth_sending(tasks) && self.pool.has_idle()) {
            self.submit_open();
        }
    }

    /// Submits the task in `scratch` as a run of its own.
    fn submit_alone(&mut self, index: u64, blobs: Blobs, key: Option<TaskKey>) {
        self.leave_out();
        self.for_workers += 1;
        self.exchange.note_keys(index, key.into_iter().collect());
        let bytes = self.exchange.store(std::mem::take(&mut self.scratch), &blobs);
        self.pool.submit(self.exchange, Run::with_blobs(self.exchange.id, index, bytes, blobs));
        self.check_at = self.fed;
    }

    /// Leaves a task out of the open block, which holds consecutive tasks.
    fn leave_out(&mut self) {
        if !std::mem::replace(&mut self.left_out, true) {
            self.submit_open();
        }
    }

    /// Submits the open block with the gathered tasks.
    fn submit_open(&mut self) {
        if self.gathered_tasks > 0 {
            self.add_gathered();
        }
        if let Some(run) = self.exchange.take_open() {
            self.pool.submit(self.exchange, run);
        }
    }

    /// Waits while the buffer is full.
    fn wait_for_room(&mut self) {
        let least = self.pool.min_ahead();
        if self.exchange.is_full(self.fed, least) {
            self.submit_open();
            self.exchange.deliver_waiting();
            if self.exchange.durable.is_some() {
                self.pool.report(self.exchange);
            }
            self.exchange.wait_for_room(self.fed, least);
        }
        self.check_at = self.fed + CHECK_TASKS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_iterators_without_code_of_the_program_are_prompt() {
        fn prompt<I: IntoIterator<IntoIter: 'static>>(_: I) -> bool {
            is_prompt::<I::IntoIter>()
        }
        assert!(prompt(0..5_u64));
        assert!(prompt(0..=5_i8));
        assert!(prompt(0..));
        assert!(prompt(vec![1, 2]));
        assert!(!prompt((0..5).map(|x| x + 1)));
        assert!(!prompt(vec![1].into_iter().filter(|x| *x > 0)));
        assert!(!prompt(std::sync::mpsc::channel::<u8>().1));
        assert!(!prompt(std::iter::repeat_n(1, 2)));
        assert!(!prompt(std::iter::from_fn(|| Some(1))));
    }
}
