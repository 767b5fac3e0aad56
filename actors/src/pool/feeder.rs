//! What puts a call's tasks into its exchange: it encodes them, and hands them over.
//!
//! Tasks are encoded where the call is made (one task) or on a thread of the call's own (an
//! iterator, which may block, or never end). They gather in the open block. The feeder hands it
//! over when it is full, or when a worker is idle and the block is worth a message; the pool takes
//! it when a worker has room again, and looks every millisecond, for the iterator may hold the
//! feeder up. The feeder stops while the call's [buffer](super::buffer) is full, so an endless
//! iterator runs in bounded memory.

use std::sync::{Arc, Weak};
use std::time::Duration;

use fiber_core::travel::{self, Pins};
use fiber_core::{Error, Result, codec};
use serde::Serialize;

use super::exchange::Exchange;
use super::run::{PREFIX, Run, prefix};
use super::shared::{Ending, Shared};

/// A block is handed over when it holds this many tasks or bytes.
const BLOCK_TASKS: u64 = 4096;
const BLOCK_BYTES: usize = 64 << 10;
/// After how many tasks the feeder looks whether the buffer is full, besides after each block.
const LOOK: u64 = 16;

/// Hands over what the feeder has prepared and can't hand over, while its iterator holds it up.
pub(super) async fn look_after(pool: Weak<Shared>, exchange: Arc<Exchange>) {
    while !exchange.is_stopped() && exchange.total().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let Some(pool) = pool.upgrade() else { return };
        if pool.has_idle() && exchange.has_open() {
            pool.with_scheduler(|scheduler, effects| scheduler.dispatch(effects));
        }
    }
}

/// Encodes the arguments of a task after their length.
pub(super) fn encode<A: Serialize>(
    arguments: &A,
    scratch: &mut Vec<u8>,
    limit: usize,
) -> Result<Pins> {
    scratch.clear();
    scratch.extend_from_slice(&[0; PREFIX]);
    let (encoded, pins) = travel::pinned(|| codec::append(scratch, arguments));
    encoded?;
    let length = scratch.len() - PREFIX;
    codec::check_size(length, limit as u64, || {
        format!("an argument of type `{}`", std::any::type_name::<A>())
    })?;
    scratch[..PREFIX].copy_from_slice(&prefix(length, false));
    Ok(pins)
}

/// Feeds one task.
pub(super) fn feed_one(pool: &Shared, exchange: &Exchange, encoded: Vec<u8>) {
    exchange.set_total(1);
    pool.submit(Run::new(exchange.id, 0, 1, encoded.into()));
    pool.finish_feeding(exchange.id);
}

/// Feeds the tasks of an iterator, on a thread of its own.
pub(super) fn feed<A: Serialize>(
    pool: &Shared,
    exchange: &Arc<Exchange>,
    items: impl Iterator<Item = A>,
) {
    let mut feeder = Feeder { pool, exchange, fed: 0, look_at: 0, scratch: Vec::new() };
    let all = std::panic::AssertUnwindSafe(|| {
        items.take_while(|_| !exchange.is_stopped()).for_each(|item| feeder.add(&item))
    });
    if let Err(panic) = fiber_core::panics::catch(|| std::panic::catch_unwind(all)) {
        panic.print_backtrace();
        let problem = format!("the iterator panicked: {panic}");
        pool.cancel(exchange.id, Ending::LetFinish);
        return exchange.end(Error::invalid("Pool::map", problem));
    }
    if exchange.is_stopped() {
        // Tasks are left out, so there is no total.
        return pool.finish_feeding(exchange.id);
    }
    feeder.hand_over();
    exchange.set_total(feeder.fed);
    pool.finish_feeding(exchange.id);
}

struct Feeder<'a> {
    pool: &'a Shared,
    exchange: &'a Arc<Exchange>,
    fed: u64,
    /// At how many tasks to look whether the buffer is full.
    look_at: u64,
    scratch: Vec<u8>,
}

impl Feeder<'_> {
    #[inline]
    fn add<A: Serialize>(&mut self, item: &A) {
        let index = self.fed;
        self.fed += 1;
        let encoded = encode(item, &mut self.scratch, self.pool.max_message);
        if let Err(error) = encoded.map(|pins| self.exchange.pins.add(index, pins)) {
            self.skip(index);
            self.exchange.fail(index, error);
        } else if self.scratch.len() >= BLOCK_BYTES {
            self.skip(index);
            let bytes = self.exchange.store(std::mem::take(&mut self.scratch));
            self.pool.submit(Run::new(self.exchange.id, index, index + 1, bytes));
            self.look_at = self.fed;
        } else {
            let (tasks, bytes) = self.exchange.add(&self.scratch);
            let full = tasks >= BLOCK_TASKS || bytes >= BLOCK_BYTES;
            if full || (self.exchange.are_worth_it(tasks) && self.pool.has_idle()) {
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
        self.exchange.open_at(index + 1);
    }

    fn hand_over(&self) {
        if let Some(run) = self.exchange.take_open() {
            self.pool.submit(run);
        }
    }

    /// Waits while the buffer is full.
    fn wait_for_room(&mut self) {
        let least = self.pool.ahead_at_least();
        if self.exchange.is_full(self.fed, least) {
            self.hand_over();
            self.exchange.wait_for_room(self.fed, least);
        }
        self.look_at = self.fed + LOOK;
    }
}
