//! Streams of small items from a task and from a handler, beside a plain pipe and `imap`.

use std::time::{Duration, Instant};

use anyhow::ensure;
use fiber::actix::prelude::*;
use fiber::pipe::PipeSender;
use fiber::{AsyncManager, Pipe, Process, Queue, Sender, Stream};

use crate::measure::{median, median_time, rate, ready_pool, seconds};
use crate::table::{Figure, Row, Table};

const ITEMS: u64 = 1_000_000;
/// Streams whose first items are timed.
const FIRST: usize = 2000;

fn count(end: u64, out: Sender<u64>) -> fiber::Result<()> {
    (0..end).try_for_each(|n| out.send(n).wait())
}

struct Counter;

impl Actor for Counter {
    type Context = Context<Self>;
}

#[fiber::message(Stream<u64>)]
struct Count(u64);

#[fiber::handlers]
impl Counter {
    fn count(&mut self, Count(end): Count) -> Stream<u64> {
        Stream::new(move |out| async move {
            for n in 0..end {
                out.send(n).await?;
            }
            fiber::Result::<()>::Ok(())
        })
    }
}

/// Puts numbers into a pipe when it is told to.
fn fill(begin: Queue<u64>, pipe: PipeSender<u64>) -> fiber::Result<()> {
    for end in begin.stream().wait() {
        (0..end?).try_for_each(|n| pipe.send(n).wait())?;
    }
    Ok(())
}

fn sum(items: impl Iterator<Item = fiber::Result<u64>>) -> anyhow::Result<()> {
    let sum: u64 = items.sum::<fiber::Result<u64>>()?;
    ensure!(sum == (0..ITEMS).sum::<u64>(), "the items are not those that were sent");
    Ok(())
}

/// Returns the median time until the first item of a stream.
fn first_item(start: impl Fn() -> fiber::Result<Stream<u64>>) -> anyhow::Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..FIRST {
        let begun = Instant::now();
        let mut items = start()?.wait();
        ensure!(items.next().transpose()? == Some(0), "the first item is another");
        times.push(begun.elapsed());
        items.try_for_each(|item| item.map(drop))?;
    }
    Ok(median(times))
}

pub(super) fn streams(table: &mut Table) -> anyhow::Result<()> {
    let pool = ready_pool(1)?;
    let counter = AsyncManager::start(|()| Counter, ()).wait()?;
    let (begin, (sender, receiver)) = (Queue::new()?, Pipe::one_way()?);
    let process = Process::builder().try_spawn(fill, (begin.clone(), sender));
    let pipe = median_time(|| {
        begin.put(ITEMS).wait()?;
        sum(receiver.stream().wait().take(ITEMS as usize))
    })?;
    begin.close().wait()?;
    process.wait()?;
    let imap = median_time(|| sum(pool.imap(|n: u64| n, 0..ITEMS).wait()))?;
    let of_task = median_time(|| sum(pool.stream(count, ITEMS).wait()))?;
    let of_handler = median_time(|| sum(counter.send(Count(ITEMS)).wait()?.wait()))?;
    let figure = |time| Figure::Rate(rate(ITEMS as usize, time));
    for (case, time) in [("task", of_task), ("handler", of_handler)] {
        let row = Row::new(format!("stream: small items of a {case}"), figure(time))
            .beside("pipe", figure(pipe))
            .beside("imap", figure(imap))
            .above(Figure::Rate(2e6));
        table.push(row);
    }
    let of_task = first_item(|| Ok(pool.stream(count, 2)))?;
    let of_handler = first_item(|| counter.send(Count(2)).wait())?;
    for (case, time) in [("task", of_task), ("handler", of_handler)] {
        let row = Row::new(format!("stream: first item of a {case}"), seconds(time))
            .below(Figure::Seconds(30e-6));
        table.push(row);
    }
    Ok(())
}
