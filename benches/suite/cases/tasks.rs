//! Many tasks: how many a second, and what fiber adds to the time that they take.

use std::thread;
use std::time::Duration;

use anyhow::ensure;

use crate::bare;
use crate::measure::{WORKERS, beside_peers, median_time, rate, ready_pool, seconds};
use crate::table::{Figure, Row, Table, Target};

const NOOPS: usize = 2_000_000;
const INTEGERS: u64 = 1_000_000;
/// How many sleeps of how many microseconds: a second's work for five workers each.
const SLEEPS: [(usize, u64); 5] =
    [(5, 1_000_000), (50, 100_000), (500, 10_000), (5_000, 1_000), (50_000, 100)];

fn nothing(_: u64) {}

fn increment(x: u64) -> u64 {
    x + 1
}

fn sleep_micros(micros: u64) {
    thread::sleep(Duration::from_micros(micros));
}

pub(super) fn noop(table: &mut Table) -> anyhow::Result<()> {
    let pool = ready_pool(WORKERS)?;
    let time = median_time(|| {
        let mut done = 0;
        for outcome in pool.imap_unordered(nothing, 0..NOOPS as u64).wait() {
            outcome?;
            done += 1;
        }
        ensure!(done == NOOPS, "{done} of {NOOPS} tasks came back");
        Ok(())
    })?;
    drop(pool);
    let row = Row::new("no-op tasks, each tracked on its own", Figure::Rate(rate(NOOPS, time)))
        .target(Target::at_least(40.0, "multiprocessing"));
    let row = beside_peers(row, table, "noop", &[], |peer| peer.rate.map(Figure::Rate));
    table.push(row);
    Ok(())
}

pub(super) fn map(table: &mut Table) -> anyhow::Result<()> {
    let pool = ready_pool(WORKERS)?;
    let time = median_time(|| {
        let results = pool.map(increment, 0..INTEGERS).wait()?;
        ensure!(results.into_iter().eq(1..=INTEGERS), "the results are not those of the tasks");
        Ok(())
    })?;
    drop(pool);
    let row = Row::new("map of a million integers", Figure::Rate(rate(INTEGERS as usize, time)))
        .target(Target::at_least(5.0, "multiprocessing"));
    let row = beside_peers(row, table, "map", &[], |peer| peer.rate.map(Figure::Rate));
    table.push(row);
    Ok(())
}

pub(super) fn sleep(table: &mut Table) -> anyhow::Result<()> {
    for (tasks, micros) in SLEEPS {
        let duration = Duration::from_micros(micros);
        eprintln!("  {tasks} × {duration:?}");
        let pool = ready_pool(WORKERS)?;
        let time = median_time(|| {
            let done = pool.imap_unordered(sleep_micros, std::iter::repeat_n(micros, tasks)).wait();
            let done = done.collect::<fiber::Result<Vec<()>>>()?.len();
            ensure!(done == tasks, "{done} of {tasks} sleeps came back");
            Ok(())
        })?;
        drop(pool);
        let bare = bare::sleep_loop(WORKERS, tasks, duration);
        eprintln!("  bare: {bare:.1?}");
        let row = Row::new(format!("{tasks} × {duration:?} on {WORKERS} workers"), seconds(time))
            .beside("bare", seconds(bare))
            .target(Target::at_most(1.05, "bare"));
        let (tasks, duration) = (tasks.to_string(), duration.as_secs_f64().to_string());
        let row = beside_peers(row, table, "sleep", &[&tasks, &duration], |peer| {
            Some(Figure::Seconds(peer.seconds))
        });
        table.push(row);
    }
    Ok(())
}
