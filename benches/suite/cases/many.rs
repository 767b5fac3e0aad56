//! 1024 worker processes on one machine.

use std::collections::BTreeSet;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use anyhow::ensure;
use fiber::Pool;

use super::observed::inspector_row;
use crate::measure::{median, proportional, rate, ready_pool, resident, seconds};
use crate::table::{Figure, Row, Table, Target};

const MANY: usize = 1024;
const FEW: usize = 4;
const TASKS: usize = 100_000;
/// The least number of rounds.
const ROUNDS: usize = 5;
/// After so many rounds, a worker that has had no task will not get one.
const MAX_ROUNDS: usize = 50;

fn pid(_: u64) -> u32 {
    process::id()
}

pub(super) fn many(table: &mut Table) -> anyhow::Result<()> {
    let few = ready_pool(FEW)?;
    let few_time = rounds(&few, FEW)?.time;
    few.kill();
    few.join().wait()?;
    drop(few);
    eprintln!("  {FEW} workers: {few_time:.1?} for {TASKS} tasks");

    let start = Instant::now();
    let pool = ready_pool(MANY)?;
    let ready = start.elapsed();
    eprintln!("  {MANY} workers: ready after {ready:.1?}");
    let done = rounds(&pool, MANY)?;
    eprintln!("  {MANY} workers: {:.1?} for {TASKS} tasks", done.time);
    inspector_row(table, MANY)?;
    let parent = resident(process::id())?;
    let workers =
        done.pids.iter().map(|pid| Ok((resident(*pid)? as u64, proportional(*pid)? as u64)));
    let (whole, shares): (Vec<_>, Vec<_>) =
        workers.collect::<anyhow::Result<Vec<_>>>()?.into_iter().unzip();
    let sum: u64 = shares.iter().sum();

    let start = Instant::now();
    pool.kill();
    pool.join().wait()?;
    let end = start.elapsed();
    let left = done.pids.iter().filter(|pid| Path::new(&format!("/proc/{pid}")).exists()).count();
    ensure!(left == 0, "{left} of {MANY} workers are still there after the pool has ended");
    eprintln!("  {MANY} workers: gone after {end:.1?}");

    table.push(Row::new(format!("{MANY} workers ready"), seconds(ready)));
    let fewer = format!("{FEW} workers");
    let row =
        Row::new(format!("{TASKS} tasks on {MANY} workers"), Figure::Rate(rate(TASKS, done.time)))
            .beside(&fewer, Figure::Rate(rate(TASKS, few_time)))
            .target(Target::at_least(0.6, &fewer))
            .note(format!(
                "Each of the {MANY} workers has done some; this took {} rounds of {TASKS} tasks.",
                done.until_all
            ));
    table.push(row);
    table.push(Row::new(format!("memory of the parent of {MANY}"), Figure::Bytes(parent)));
    let share = Figure::Bytes(median(shares) as f64);
    let note = format!(
        "The pages that workers share counted once, the median is {share}, the sum {}.",
        Figure::Bytes(sum as f64)
    );
    table.push(
        Row::new(format!("memory of a worker of {MANY}"), Figure::Bytes(median(whole) as f64))
            .note(note),
    );
    table.push(Row::new(format!("{MANY} workers gone"), seconds(end)));
    Ok(())
}

struct Done {
    /// The median round's.
    time: Duration,
    pids: BTreeSet<u32>,
    /// How many rounds it took until every worker had done something.
    until_all: usize,
}

/// Runs all tasks several times, of which every worker has to do some.
fn rounds(pool: &Pool, workers: usize) -> anyhow::Result<Done> {
    let (mut times, mut pids, mut until_all) = (Vec::new(), BTreeSet::new(), 0);
    for round in 1..=MAX_ROUNDS {
        let start = Instant::now();
        let results =
            pool.imap_unordered(pid, 0..TASKS as u64).wait().collect::<fiber::Result<Vec<_>>>()?;
        times.push(start.elapsed());
        ensure!(results.len() == TASKS, "{} of {TASKS} tasks came back", results.len());
        pids.extend(results);
        eprintln!("  round {round}: {:.1?}, {} workers have worked", times[round - 1], pids.len());
        if until_all == 0 && pids.len() == workers {
            until_all = round;
        }
        if until_all > 0 && round >= ROUNDS {
            break;
        }
    }
    ensure!(
        pids.len() == workers,
        "{} processes have done something, and there are {workers} workers",
        pids.len()
    );
    Ok(Done { time: median(times), pids, until_all })
}
