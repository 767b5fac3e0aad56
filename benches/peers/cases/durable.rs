//! Durable calls: what recording costs, and how fast a program that is started again gets the
//! recorded outcomes.
//!
//! A program keeps its journal open, so each measurement is a program of its own.

use std::env;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use fiber::{Journal, Pool};
use tempfile::TempDir;

use super::{ask, print};
use crate::measure::{WORKERS, median, rate, ready_pool, seconds};
use crate::table::{Figure, Row, Table};

/// The argument of a program that makes one call.
pub(super) const PROGRAM: &str = "one-durable-call";
/// The variables with the tasks of the call, and with its journal if it has one.
const WORK: &str = "BENCH_WORK";
const JOURNAL: &str = "BENCH_JOURNAL";

const NOOPS: u64 = 2_000_000;
const SLEEPS: u64 = 5_000;
const REPEATS: usize = 3;

fn same(x: u64) -> u64 {
    x
}

fn sleep_a_millisecond(x: u64) -> u64 {
    thread::sleep(Duration::from_millis(1));
    x
}

/// How long a call takes without a journal, with a new one, and with all outcomes in it.
struct Measured {
    plain: Duration,
    durable: Duration,
    again: Duration,
}

pub(super) fn durable(table: &mut Table) -> anyhow::Result<()> {
    let noop = measure("noop")?;
    let figure = |time| Figure::Rate(rate(NOOPS as usize, time));
    let row = Row::new("no-op tasks of a durable call", figure(noop.durable))
        .beside("plain", figure(noop.plain))
        .above(Figure::Rate(1e6));
    table.push(row);
    let row =
        Row::new("recorded outcomes, delivered again", figure(noop.again)).above(Figure::Rate(3e6));
    table.push(row);
    let sleeps = measure("sleep")?;
    let name = format!("{SLEEPS} × 1ms on {WORKERS} workers, durable");
    let row = Row::new(name, seconds(sleeps.durable)).beside("plain", seconds(sleeps.plain));
    table.push(row.at_most(1.05, "plain"));
    Ok(())
}

fn measure(work: &str) -> anyhow::Result<Measured> {
    let (mut plain, mut durable, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        // On a disk: the directory for temporary files may be in memory.
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))?;
        plain.push(run_program(work, None)?);
        durable.push(run_program(work, Some(folder.path()))?);
        again.push(run_program(work, Some(folder.path()))?);
    }
    eprintln!("  {work}: plain {plain:.1?}, durable {durable:.1?}, again {again:.1?}");
    Ok(Measured { plain: median(plain), durable: median(durable), again: median(again) })
}

fn run_program(work: &str, journal: Option<&Path>) -> anyhow::Result<Duration> {
    let journal = journal.map(|journal| (JOURNAL, journal.to_str().expect("it is text")));
    let variables: Vec<_> = [(WORK, work)].into_iter().chain(journal).collect();
    ask(PROGRAM, &variables)
}

/// In a program with one call: prints how long it takes.
pub(super) fn answer_durable() -> anyhow::Result<()> {
    let pool = ready_pool(WORKERS)?;
    let pool = match env::var_os(JOURNAL) {
        Some(journal) => pool.durable(Journal::at(journal)),
        None => pool,
    };
    let start = Instant::now();
    match &*env::var(WORK)? {
        "noop" => check(&pool, same, NOOPS)?,
        "sleep" => check(&pool, sleep_a_millisecond, SLEEPS)?,
        other => bail!("{WORK}={other}: not known"),
    }
    print(&start.elapsed())
}

fn check<F>(pool: &Pool, function: F, tasks: u64) -> anyhow::Result<()>
where
    F: Fn(u64) -> u64 + Copy + Send + Sync + 'static,
{
    let sum: u64 = pool.map(function, 0..tasks).wait()?.into_iter().sum();
    ensure!(sum == tasks * (tasks - 1) / 2, "the results are not those of the tasks");
    Ok(())
}
