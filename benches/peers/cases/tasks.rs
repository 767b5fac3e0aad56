//! Tasks of a pool: many small ones, what fiber adds to the time that they take, one there and back,
//! and large arguments and results.

use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::bare;
use crate::measure::{WORKERS, median, median_time, rate, ready_pool, seconds};
use crate::table::{Figure, Row, Table};

const INTEGERS: u64 = 1_000_000;
/// How many sleeps of how many microseconds: a second's work for five workers each.
const SLEEPS: [(usize, u64); 5] =
    [(5, 1_000_000), (50, 100_000), (500, 10_000), (5_000, 1_000), (50_000, 100)];
const REPEATS: usize = 3;
const TRIPS: usize = 20_000;
const WARM_UP: usize = 1_000;
const MIB: usize = 1 << 20;
const MESSAGES: usize = 512;
/// Workers that echo, and bare processes that do.
const ECHOES: usize = 2;

fn nothing() {}

fn increment(x: u64) -> u64 {
    x + 1
}

fn sleep_micros(micros: u64) {
    thread::sleep(Duration::from_micros(micros));
}

fn echo(data: Vec<u8>) -> Vec<u8> {
    data
}

pub(super) fn map(table: &mut Table) -> anyhow::Result<()> {
    let pool = ready_pool(WORKERS)?;
    let time = median_time(|| {
        let results = pool.map(increment, 0..INTEGERS).wait()?;
        ensure!(results.into_iter().eq(1..=INTEGERS), "the results are not those of the tasks");
        Ok(())
    })?;
    let row = Row::new("map of a million integers", Figure::Rate(rate(INTEGERS as usize, time)));
    table.push(row.at_least(5.0, "multiprocessing"));
    Ok(())
}

pub(super) fn sleep(table: &mut Table) -> anyhow::Result<()> {
    for (tasks, micros) in SLEEPS {
        let duration = Duration::from_micros(micros);
        let pool = ready_pool(WORKERS)?;
        let time = median_time(|| {
            let done = pool.imap_unordered(sleep_micros, std::iter::repeat_n(micros, tasks)).wait();
            let done = done.collect::<fiber::Result<Vec<()>>>()?.len();
            ensure!(done == tasks, "{done} of {tasks} sleeps came back");
            Ok(())
        })?;
        drop(pool);
        let bare = sleep_loop(WORKERS, tasks, duration);
        eprintln!("  bare: {bare:.1?}");
        let row = Row::new(format!("{tasks} × {duration:?} on {WORKERS} workers"), seconds(time))
            .beside("bare", seconds(bare));
        table.push(row.at_most(1.05, "bare"));
    }
    Ok(())
}

/// Returns the time of `tasks` sleeps of `duration` on `threads` threads that take from one counter:
/// the median of three runs.
fn sleep_loop(threads: usize, tasks: usize, duration: Duration) -> Duration {
    let runs: Vec<_> = (0..REPEATS)
        .map(|_| {
            let left = AtomicUsize::new(tasks);
            let ready = Barrier::new(threads + 1);
            thread::scope(|scope| {
                let sleepers: Vec<_> = (0..threads)
                    .map(|_| {
                        scope.spawn(|| {
                            ready.wait();
                            while bare::take(&left) {
                                thread::sleep(duration);
                            }
                        })
                    })
                    .collect();
                ready.wait();
                let start = Instant::now();
                for sleeper in sleepers {
                    sleeper.join().expect("a sleeper has nothing to panic about");
                }
                start.elapsed()
            })
        })
        .collect();
    median(runs)
}

/// Measures the median of 20,000 tasks that follow each other.
pub(super) fn apply(table: &mut Table) -> anyhow::Result<()> {
    let pool = ready_pool(1)?;
    let mut times = Vec::with_capacity(TRIPS);
    for trip in 0..WARM_UP + TRIPS {
        let start = Instant::now();
        pool.apply(nothing, ()).wait()?;
        if trip >= WARM_UP {
            times.push(start.elapsed());
        }
    }
    let row = Row::new("one apply there and back", seconds(median(times)))
        .beside("bare", seconds(bare::unix_ping()?))
        .at_most(4.0, "bare");
    table.push(row);
    Ok(())
}

pub(super) fn bytes(table: &mut Table) -> anyhow::Result<()> {
    let pool = ready_pool(ECHOES)?;
    let message = vec![7; MIB];
    let time = median_time(|| {
        let messages = std::iter::repeat_n(message.clone(), MESSAGES);
        let mut done = 0;
        for outcome in pool.imap_unordered(echo, messages).wait() {
            let data = outcome?;
            // To compare all would take a part of the time.
            ensure!(done % 64 != 0 || data == message, "a result is not what was sent");
            done += 1;
        }
        ensure!(done == MESSAGES, "{done} of {MESSAGES} messages came back");
        Ok(())
    })?;
    let figure = Figure::Throughput(rate(2 * MIB * MESSAGES, time));
    let row = Row::new("1 MiB there and back", figure)
        .beside("bare", Figure::Throughput(bare::unix_stream(MIB, MESSAGES, ECHOES)?))
        .at_least(0.5, "bare")
        .at_least(3.0, "multiprocessing")
        .note(
            "Each way the bytes are copied into shared memory and out of it, into a value. The \
             bare link copies them into the kernel and out of it.",
        );
    table.push(row);
    Ok(())
}
