//! The feeder of a call encodes its tasks and submits them.
//!
//! A single task is encoded on the caller's thread. The tasks of an iterator, which may block or be
//! endless, are encoded on a thread of the call's own. They collect in the open block of the
//! exchange. The feeder submits the block when it is full, or when a worker is idle and the block
//! is worth a message. While the iterator blocks the feeder, the pool takes the block: when a
//! worker can take more tasks, and every millisecond while a worker is idle. The feeder waits while
//! the call's [buffer](super::buffer) is full, so an endless iterator runs in bounded memory.

use std::mem::needs_drop;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fiber_core::blob::Blobs;
use fiber_core::transfer::{self, KeepAlive};
use fiber_core::{Error, Result, codec};
use serde::Serialize;

use super::exchange::Exchange;
use super::run::{PREFIX, Run, prefix};
use super::state::{Cancellation, PoolState};

/// The feeder submits a block of this many tasks or bytes.
const BLOCK_TASKS: u64 = 4096;
const BLOCK_BYTES: usize = 64 << 10;
/// After how many tasks the feeder checks whether the buffer is full, besides after each block.
const CHECK_TASKS: u64 = 16;

/// Submits the open block every millisecond while a worker is idle and the iterator blocks the
/// feeder.
pub(super) async fn submit_while_blocked(pool: Weak<PoolState>, exchange: Arc<Exchange>) {
    while !exchange.is_stopped() && exchange.total().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let Some(pool) = pool.upgrade() else { return };
        if pool.has_idle() && exchange.has_open() {
            pool.with_scheduler(|scheduler, effects| scheduler.dispatch(effects));
        }
    }
}

/// Writes the length of a task's arguments and the encoded arguments into `scratch`.
#[inline]
pub(super) fn encode<A: Serialize>(
    arguments: &A,
    scratch: &mut Vec<u8>,
    limit: usize,
) -> Result<(KeepAlive, Blobs)> {
    scratch.clear();
    scratch.extend_from_slice(&[0; PREFIX]);
    // A handle has something to drop, and so has an array.
    let (blobs, keep_alive) = if needs_drop::<A>() {
        let (blobs, keep_alive) =
            transfer::repeatable(|| codec::append_owned_apart(scratch, arguments));
        (blobs?, keep_alive)
    } else {
        codec::append(scratch, arguments)?;
        (Blobs::default(), KeepAlive::default())
    };
    let length = scratch.len() - PREFIX;
    codec::check_size(length + blobs.total_len(), limit as u64, || {
        format!("an argument of type `{}`", std::any::type_name::<A>())
    })?;
    scratch[..PREFIX].copy_from_slice(&prefix(length, false));
    Ok((keep_alive, blobs))
}

/// Submits one task.
pub(super) fn feed_one(pool: &PoolState, exchange: &Exchange, encoded: Vec<u8>, blobs: Blobs) {
    exchange.set_total(1);
    pool.submit(Run::with_blobs(exchange.id, 0, encoded.into(), blobs));
    pool.finish_feeding(exchange.id);
}

/// Submits the tasks of an iterator. It blocks, so it runs on a thread of its own.
pub(super) fn feed<A: Serialize>(
    pool: &PoolState,
    exchange: &Arc<Exchange>,
    items: impl Iterator<Item = A>,
) {
    let mut feeder = Feeder { pool, exchange, fed: 0, check_at: 0, scratch: Vec::new() };
    let all = std::panic::AssertUnwindSafe(|| {
        items.take_while(|_| !exchange.is_stopped()).for_each(|item| feeder.add(&item))
    });
    if let Err(panic) = fiber_core::panics::catch(|| std::panic::catch_unwind(all)) {
        panic.print_backtrace();
        let problem = format!("the iterator panicked: {panic}");
        pool.cancel(exchange.id, Cancellation::LetFinish);
        return exchange.end(Error::invalid("Pool::map", problem));
    }
    if exchange.is_stopped() {
        // Some tasks were not submitted, so there is no total.
        return pool.finish_feeding(exchange.id);
    }
    feeder.submit_open();
    exchange.set_total(feeder.fed);
    pool.finish_feeding(exchange.id);
}

struct Feeder<'a> {
    pool: &'a PoolState,
    exchange: &'a Arc<Exchange>,
    fed: u64,
    /// At how many tasks to check whether the buffer is full.
    check_at: u64,
    scratch: Vec<u8>,
}

impl Feeder<'_> {
    #[inline]
    fn add<A: Serialize>(&mut self, item: &A) {
        let index = self.fed;
        self.fed += 1;
        match encode(item, &mut self.scratch, self.pool.max_message) {
            Err(error) => {
                self.skip(index);
                self.exchange.fail(index, error);
            }
            Ok((keep_alive, blobs)) => {
                self.exchange.keep_alive.add(index, keep_alive);
                if self.scratch.len() >= BLOCK_BYTES || !blobs.is_empty() {
                    self.submit_alone(index, blobs);
                } else {
                    self.add_to_open();
                }
            }
        }
        if self.fed >= self.check_at {
            self.wait_for_room();
        }
    }

    /// Adds the task in `scratch` to the open block.
    #[inline]
    fn add_to_open(&self) {
        let (tasks, bytes) = self.exchange.add(&self.scratch);
        let full = tasks >= BLOCK_TASKS || bytes >= BLOCK_BYTES;
        if full || (self.exchange.is_worth_sending(tasks) && self.pool.has_idle()) {
            self.submit_open();
        }
    }

    /// Submits the task in `scratch` as a run of its own.
    fn submit_alone(&mut self, index: u64, blobs: Blobs) {
        self.skip(index);
        let bytes = self.exchange.store(std::mem::take(&mut self.scratch), &blobs);
        self.pool.submit(Run::with_blobs(self.exchange.id, index, bytes, blobs));
        self.check_at = self.fed;
    }

    /// Leaves a task out of the open block, which holds consecutive tasks.
    fn skip(&self, index: u64) {
        self.submit_open();
        self.exchange.open_at(index + 1);
    }

    fn submit_open(&self) {
        if let Some(run) = self.exchange.take_open() {
            self.pool.submit(run);
        }
    }

    /// Waits while the buffer is full.
    fn wait_for_room(&mut self) {
        let least = self.pool.min_ahead();
        if self.exchange.is_full(self.fed, least) {
            self.submit_open();
            self.exchange.wait_for_room(self.fed, least);
        }
        self.check_at = self.fed + CHECK_TASKS;
    }
}
