//! Many tasks that do nothing.

use anyhow::ensure;

use crate::measure::{WORKERS, median_time, rate, ready_pool};
use crate::table::{Figure, Row, Table};

const NOOPS: usize = 2_000_000;

fn nothing(_: u64) {}

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
    let row = Row::new("no-op tasks, each tracked on its own", Figure::Rate(rate(NOOPS, time)));
    table.push(row.at_least(40.0, "multiprocessing"));
    Ok(())
}
