//! An iterator without end: does the parent's memory stay as it is?

use std::env;
use std::process;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::measure::{WORKERS, ready_pool, resident};
use crate::table::{Figure, Row, Table, Target};

fn twice(x: u64) -> u64 {
    x.wrapping_mul(2)
}

pub(super) fn endless(table: &mut Table) -> anyhow::Result<()> {
    let whole = match env::var("BENCH_SECONDS") {
        Ok(seconds) => seconds
            .parse()
            .with_context(|| format!("BENCH_SECONDS={seconds}: not a number of seconds"))?,
        Err(_) => 60,
    };
    let (whole, early) = (Duration::from_secs(whole), Duration::from_secs(whole) / 6);
    let pool = ready_pool(WORKERS)?;
    let (start, mut tasks, mut before) = (Instant::now(), 0u64, None);
    for outcome in pool.imap_unordered(twice, 0u64..).wait() {
        outcome?;
        tasks += 1;
        // The clock costs more than a task does.
        if tasks % 1024 != 0 {
            continue;
        }
        if before.is_none() && start.elapsed() >= early {
            before = Some(resident(process::id())?);
        }
        if start.elapsed() >= whole {
            break;
        }
    }
    let after = resident(process::id())?;
    let before = before.context("the time is too short to look twice")?;
    let early = format!("after {} s", early.as_secs());
    let (rate, whole) = (Figure::Rate(tasks as f64 / whole.as_secs_f64()), whole.as_secs());
    eprintln!(
        "  {} {early}, {} after {whole} s, {rate}",
        Figure::Bytes(before),
        Figure::Bytes(after)
    );
    let row = Row::new("parent's memory, iterator without end", Figure::Bytes(after))
        .beside(&early, Figure::Bytes(before));
    table.push(
        row.target(Target::at_most(1.1, &early))
            .note(format!("{tasks} tasks in {whole} s: {rate}.")),
    );
    Ok(())
}
