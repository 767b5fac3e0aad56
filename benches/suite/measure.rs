//! How a case measures: repeats, medians, what `/proc` says about memory, and what the peers need
//! for the same.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;
use fiber::Pool;

use crate::peers::{self, HYPERQUEUE, PeerResult};
use crate::table::{Figure, Row, Table};

/// How often a case is run.
const REPEATS: usize = 3;

/// Workers of the cases that are run on the peers' five workers too.
pub(crate) const WORKERS: usize = 5;

/// A pool of which all workers are ready.
pub(crate) fn ready_pool(processes: usize) -> fiber::Result<Pool> {
    let pool = Pool::builder().processes(processes).build()?;
    pool.wait_until_ready().wait()?;
    Ok(pool)
}

/// The median of what `work` takes, over three runs.
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

/// The middle one, or the later of two in the middle.
pub(crate) fn median<T: Ord>(mut values: Vec<T>) -> T {
    values.sort();
    let middle = values.len() / 2;
    values.swap_remove(middle)
}

/// So much in that time, a second.
pub(crate) fn rate(amount: usize, time: Duration) -> f64 {
    amount as f64 / time.as_secs_f64()
}

pub(crate) fn seconds(time: Duration) -> Figure {
    Figure::Seconds(time.as_secs_f64())
}

/// Adds what each of the wanted libraries measures in a case. One that fails is said on stderr and
/// left out.
pub(crate) fn beside_peers(
    row: Row,
    table: &mut Table,
    case: &str,
    args: &[&str],
    figure: impl Fn(&PeerResult) -> Option<Figure>,
) -> Row {
    let mut libraries = peers::wanted();
    libraries.retain(|library| library != HYPERQUEUE);
    beside(row, table, &libraries, case, args, figure)
}

/// Adds the figures of Ray and Dask to a row, which have graphs of tasks.
pub(crate) fn beside_graphs(
    row: Row,
    table: &mut Table,
    case: &str,
    figure: impl Fn(&PeerResult) -> Option<Figure>,
) -> Row {
    let mut libraries = peers::wanted();
    libraries.retain(|library| library == "ray" || library == "dask");
    beside(row, table, &libraries, case, &[], figure)
}

fn beside(
    mut row: Row,
    table: &mut Table,
    libraries: &[String],
    case: &str,
    args: &[&str],
    figure: impl Fn(&PeerResult) -> Option<Figure>,
) -> Row {
    for library in libraries {
        match peers::run(library, case, args) {
            Ok(result) => {
                eprintln!("  {library}: {:.3} s", result.seconds);
                table.machine().version(&result.library, &result.version);
                if let Some(figure) = figure(&result) {
                    row = row.beside(&result.library, figure);
                }
                if let Some(note) = &result.note {
                    row = row.note(format!("{library}: {note}"));
                }
            }
            Err(error) => {
                eprintln!("  {error:#}");
                row = row.note(format!("{error:#}"));
            }
        }
    }
    row
}

/// A field of `/proc/PID/status` or `/proc/PID/smaps_rollup` that is given in kB, in bytes.
fn kilobytes(path: &str, field: &str) -> anyhow::Result<f64> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .with_context(|| format!("{field} in {path}"))?;
    let number = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    Ok(number.parse::<f64>().with_context(|| format!("{field}{line} in {path}"))? * 1024.0)
}

/// The resident memory of a process, pages that it shares with others included.
pub(crate) fn resident(pid: u32) -> anyhow::Result<f64> {
    kilobytes(&format!("/proc/{pid}/status"), "VmRSS")
}

/// The resident memory of a process, each page that it shares counted for its share only.
pub(crate) fn proportional(pid: u32) -> anyhow::Result<f64> {
    kilobytes(&format!("/proc/{pid}/smaps_rollup"), "Pss")
}
