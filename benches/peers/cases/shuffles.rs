//! Values that are more than memory holds, and values that go between hosts.
//!
//! Each is measured in a session of its own, with its configuration.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::ensure;
use fiber::{Array, Output, Pool};

use super::{ask, print};
use crate::measure::{median_time, rate, ready_pool, seconds};
use crate::table::{Figure, Row, Table};

/// Arguments with which this binary starts itself again.
pub(super) const SORT: &str = "session-that-sorts";
pub(super) const SHUFFLE: &str = "session-that-shuffles";

const MIB: usize = 1 << 20;
const WORKERS: usize = 2;
/// How many MiB are sorted, and how many of them values may take.
const SORTED: usize = 4096;
const MEMORY: usize = 1024;
/// Bytes of a run that is sorted by itself.
const RUN: usize = 64 * MIB;
/// How many parts each part of a shuffle has, and bytes of a part of a part.
const PARTS: usize = 200;
const PART: usize = 40 << 10;

/// Makes a sorted run of random numbers.
fn run(seed: u64) -> Array<u64> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut numbers: Vec<u64> = (0..RUN / 8).map(|_| rng.u64(..)).collect();
    numbers.sort_unstable();
    numbers.into()
}

/// Takes the part `part` of `parts` equal ranges of numbers out of a sorted run.
fn range(run: Array<u64>, part: u64, parts: u64) -> Array<u64> {
    let bound = |part: u64| (u128::from(part) << 64) / u128::from(parts);
    let place = |bound: u128| run.partition_point(|number| u128::from(*number) < bound);
    run[place(bound(part))..place(bound(part + 1))].to_vec().into()
}

fn merge(parts: Vec<Array<u64>>) -> Array<u64> {
    let mut merged: Vec<u64> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    merged.sort_unstable();
    merged.into()
}

/// Returns how many numbers there are, and whether they are sorted.
fn check(sorted: Array<u64>) -> (usize, bool) {
    (sorted.len(), sorted.is_sorted())
}

pub(super) fn sort(table: &mut Table) -> anyhow::Result<()> {
    let memory = format!("{MEMORY}MiB");
    let (time, alone): (Duration, Duration) = ask(SORT, &[("FIBER_VALUE_MEMORY", &memory)])?;
    // Runs that don't fit go to the disk and back.
    let disk = write_and_read(SORTED - MEMORY)?;
    let row = Row::new(format!("sort of {SORTED} MiB, {MEMORY} MiB of values"), seconds(time))
        .beside("cores and disk", seconds(alone + disk))
        .at_most(1.0 / 0.7, "cores and disk")
        .at_most(0.5, "ray")
        .at_most(0.5, "dask");
    table.push(row);
    Ok(())
}

/// Prints how long the sort takes, and how long its functions take without a pool.
pub(super) fn answer_sort() -> anyhow::Result<()> {
    let runs = (SORTED * MIB / RUN) as u64;
    let pool = ready_pool(WORKERS)?;
    let start = Instant::now();
    let sorted_runs = pool.map(run, 0..runs).outputs();
    let merged: Vec<Output<Array<u64>>> = (0..runs)
        .map(|part| {
            let items: Vec<_> = sorted_runs.iter().map(|run| (run.clone(), part, runs)).collect();
            pool.apply(merge, pool.map(range, items).outputs()).output()
        })
        .collect();
    drop(sorted_runs);
    let checked = pool.map(check, merged).wait()?;
    let time = start.elapsed();
    ensure!(checked.iter().all(|(_, is_sorted)| *is_sorted), "a part is not sorted");
    let count: usize = checked.iter().map(|(count, _)| count).sum();
    ensure!(count == SORTED * MIB / 8, "numbers are missing");
    pool.stop().wait()?;
    // An eighth of the work, as threads.
    let some = runs / 8;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for worker in 0..WORKERS as u64 {
            scope.spawn(move || {
                for seed in (worker..some).step_by(WORKERS) {
                    let sorted = run(seed);
                    let parts = (0..runs).map(|part| range(sorted.clone(), part, runs));
                    assert!(check(merge(parts.collect())).1, "it is sorted");
                }
            });
        }
    });
    print(&(time, 8 * start.elapsed()))
}

/// Returns how long so many MiB take to the disk and back, in pieces as those of values.
fn write_and_read(mebibytes: usize) -> anyhow::Result<Duration> {
    let mut file: File = tempfile::tempfile()?;
    let mut piece = vec![7_u8; 4 * MIB];
    let pieces = mebibytes * MIB / piece.len();
    let start = Instant::now();
    (0..pieces).try_for_each(|_| file.write_all(&piece))?;
    file.sync_data()?;
    file.rewind()?;
    (0..pieces).try_for_each(|_| file.read_exact(&mut piece))?;
    Ok(start.elapsed())
}

pub(super) fn shuffle(table: &mut Table) -> anyhow::Result<()> {
    let (time, near, at_home): (Duration, u64, u64) = ask(SHUFFLE, &[("FIBER_LINK", "nng")])?;
    // Half of the parts are at the other host.
    let crossing = PARTS * PARTS * PART / 2;
    let link = Figure::Throughput(super::sealed::link_rate()?);
    let name = format!("shuffle of {PARTS} × {PARTS} between two hosts, what crosses");
    let row = Row::new(name, Figure::Throughput(rate(crossing, time)));
    table.push(row.beside("a sealed link", link).at_least(0.8, "a sealed link"));
    let row = Row::new("inputs of its tasks that were at home", Figure::Bytes(at_home as f64));
    let row = row.beside("all of them", Figure::Bytes(near as f64));
    table.push(row.at_least(0.95, "all of them"));
    Ok(())
}

fn block(number: u64) -> Array<u64> {
    vec![number; PARTS * PART / 8].into()
}

/// Takes a part out of a block.
fn cut(block: Array<u64>, part: usize) -> Array<u64> {
    block[part * PART / 8..(part + 1) * PART / 8].to_vec().into()
}

fn sum(parts: Vec<Array<u64>>) -> u64 {
    parts.iter().map(|part| part[0]).sum()
}

/// Prints how long a shuffle takes, how many bytes of inputs hosts had, and how many of them went to
/// their own workers.
pub(super) fn answer_shuffle() -> anyhow::Result<()> {
    let pool = Pool::builder().processes(2 * WORKERS).processes_per_job(WORKERS).build()?;
    pool.wait_until_ready().wait()?;
    let time = median_time(|| {
        let blocks = pool.map(block, 0..PARTS as u64).outputs();
        let parts: Vec<Vec<Output<Array<u64>>>> = (0..PARTS)
            .map(|part| {
                let items: Vec<_> = blocks.iter().map(|block| (block.clone(), part)).collect();
                pool.map(cut, items).outputs()
            })
            .collect();
        let sums = pool.map(sum, parts).wait()?;
        let expected = (PARTS * (PARTS - 1) / 2) as u64;
        ensure!(sums == vec![expected; PARTS], "a part is wrong");
        Ok(())
    })?;
    let stats = pool.stats();
    print(&(time, stats.near_bytes, stats.near_bytes_at_home))
}
