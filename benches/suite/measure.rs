//! How a case measures: repeats, medians, and what `/proc` says about memory.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;
use fiber::Pool;

use crate::table::Figure;

/// How often a case is run.
const REPEATS: usize = 3;

/// Workers of the cases that are run on the peers' five workers too.
pub(crate) const WORKERS: usize = 5;

/// Returns a pool of which all workers are ready.
pub(crate) fn ready_pool(processes: usize) -> fiber::Result<Pool> {
    let pool = Pool::builder().processes(processes).build()?;
    pool.wait_until_ready().wait()?;
    Ok(pool)
}

/// Returns the median of what `work` takes, over three runs.
pub(crate) fn median_time(
    mut work: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Duration> {
    let mut times = Vec::with_capacity(REPEATS);
    for _ in 0..REPEATS {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed());
    }
    eprintln!("  fiber: {times:.1?}");
    Ok(median(times))
}

/// Returns the middle one, or the later of two in the middle.
pub(crate) fn median<T: Ord>(mut values: Vec<T>) -> T {
    values.sort();
    let middle = values.len() / 2;
    values.swap_remove(middle)
}

/// Returns so much in that time, a second.
pub(crate) fn rate(amount: usize, time: Duration) -> f64 {
    amount as f64 / time.as_secs_f64()
}

pub(crate) fn seconds(time: Duration) -> Figure {
    Figure::Seconds(time.as_secs_f64())
}

/// Returns the memory of a process, in bytes. Each page that it shares counts for its share only.
pub(crate) fn proportional(pid: u32) -> anyhow::Result<f64> {
    kilobytes(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
}

/// Returns a field of a file that is given in kB, in bytes.
pub(crate) fn kilobytes(path: &str, field: &str) -> anyhow::Result<f64> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let number = text.lines().find_map(|line| line.strip_prefix(field)?.strip_suffix(" kB"));
    let number = number.with_context(|| format!("{field} in {path}"))?.trim();
    Ok(number.parse::<f64>().with_context(|| format!("{field} {number} in {path}"))? * 1024.0)
}
