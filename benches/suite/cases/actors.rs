//! An actor in another process: calls one by one, and many at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use actix::prelude::*;
use fiber::{AsyncManager, Reply};

use crate::bare;
use crate::measure::{median, median_time, rate, seconds};
use crate::table::{Figure, Row, Table};

const TRIPS: usize = 20_000;
const WARM_UP: usize = 1_000;
/// Calls that are under way at once.
const WINDOW: usize = 10_000;
const PIPELINED: usize = 300_000;

struct Counter(u64);

impl Actor for Counter {
    type Context = Context<Self>;
}

#[fiber::message(u64)]
struct Add(u64);

#[fiber::handlers]
impl Counter {
    fn add(&mut self, add: Add) -> u64 {
        self.0 += add.0;
        self.0
    }
}

pub(super) fn call(table: &mut Table) -> anyhow::Result<()> {
    let time = round_trip()?;
    let bare = bare::unix_ping()?;
    eprintln!("  fiber: {time:?}, bare: {bare:?}");
    let row = Row::new("one call of an actor, there and back", seconds(time))
        .beside("bare", seconds(bare))
        .at_most(4.0, "bare")
        .at_most(0.5, "multiprocessing")
        .note(
            "fiber's threads spin for 100 µs before they sleep; the ends of a bare ping, and \
             multiprocessing's, sleep at once.",
        );
    table.push(row);

    let counter = AsyncManager::start(Counter, 0).wait()?;
    let time = median_time(|| {
        let mut pending = VecDeque::with_capacity(WINDOW);
        for _ in 0..PIPELINED {
            if pending.len() == WINDOW {
                // Half of them have most likely been answered by now: this thread sleeps seldom.
                pending
                    .drain(..WINDOW / 2)
                    .try_for_each(|call: Reply<u64>| call.wait().map(drop))?;
            }
            pending.push_back(counter.send(Add(1)));
        }
        Ok(pending.into_iter().try_for_each(|call| call.wait().map(drop))?)
    })?;
    let row = Row::new(
        "300,000 calls of one actor, up to 10,000 at once",
        Figure::Rate(rate(PIPELINED, time)),
    );
    table.push(row.above(Figure::Rate(300_000.0)));
    Ok(())
}

/// Returns the median of calls that follow each other.
fn round_trip() -> anyhow::Result<Duration> {
    let counter = AsyncManager::start(Counter, 0).wait()?;
    let mut times = Vec::with_capacity(TRIPS);
    for trip in 0..WARM_UP + TRIPS {
        let start = Instant::now();
        counter.send(Add(1)).wait()?;
        if trip >= WARM_UP {
            times.push(start.elapsed());
        }
    }
    Ok(median(times))
}
