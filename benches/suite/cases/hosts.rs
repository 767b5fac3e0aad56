//! Workers in a host beside workers that are connected by themselves.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fiber::Pool;
use serde::{Deserialize, Serialize};

use crate::measure::{WORKERS, median};
use crate::table::{Figure, Row, Table, Target};

/// Argument with which this binary starts itself again to measure through a host.
pub(crate) const THROUGH_HOST: &str = "through-a-host";

const ROUNDS: usize = 10;
const TRIPS: usize = 2_000;
const NOOPS: u64 = 500_000;

/// The output of a process that was started to measure: times in seconds.
#[derive(Serialize, Deserialize)]
struct Answer {
    apply: f64,
    noops: f64,
    apply_alone: f64,
    noops_alone: f64,
}

pub(super) fn hosts(table: &mut Table) -> anyhow::Result<()> {
    // The configuration counts for a process, so another process measures.
    let program = std::env::current_exe()?;
    let output = Command::new(program).arg(THROUGH_HOST).env("FIBER_LINK", "nng").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    eprint!("{said}");
    ensure!(output.status.success(), "measuring failed ({})", output.status);
    let answer: Answer =
        serde_json::from_slice(&output.stdout).context("measuring printed no result")?;

    let row = Row::new("one apply there and back through a host", Figure::Seconds(answer.apply))
        .beside("its own nng link", Figure::Seconds(answer.apply_alone))
        .target(Target::at_most(1.2, "its own nng link"));
    table.push(row);
    let of = |time| Figure::Rate(NOOPS as f64 / time);
    let row = Row::new("no-op tasks through a host", of(answer.noops))
        .beside("their own nng links", of(answer.noops_alone))
        .target(Target::at_least(0.8, "their own nng links"));
    table.push(row);
    Ok(())
}

/// Measures in turns: whatever else the machine does meanwhile, it does to both.
pub(crate) fn answer_through_host() -> anyhow::Result<()> {
    let one = [pool(1, 1)?, pool(1, 2)?];
    let (mut alone, mut hosted) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (pool, times) in one.iter().zip([&mut alone, &mut hosted]) {
            times.extend(trips(pool)?);
        }
    }
    drop(one);
    let (apply_alone, apply) = (median(alone), median(hosted));

    let many = [pool(WORKERS, 1)?, pool(WORKERS, WORKERS)?];
    let (mut alone, mut hosted) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (pool, times) in many.iter().zip([&mut alone, &mut hosted]) {
            times.push(noops(pool)?);
        }
    }
    eprintln!("  no-op tasks, each with a link: {alone:.1?}\n  through a host: {hosted:.1?}");
    let (noops_alone, noops) = (median(alone), median(hosted));
    eprintln!("  apply, with a link: {apply_alone:.1?}, through a host: {apply:.1?}");

    let [apply, noops, apply_alone, noops_alone] =
        [apply, noops, apply_alone, noops_alone].map(|time| time.as_secs_f64());
    let answer = Answer { apply, noops, apply_alone, noops_alone };
    println!("{}", serde_json::to_string(&answer)?);
    Ok(())
}

fn pool(processes: usize, per_job: usize) -> anyhow::Result<Pool> {
    let pool = Pool::builder().processes(processes).processes_per_job(per_job).build()?;
    pool.wait_until_ready().wait()?;
    Ok(pool)
}

fn trips(pool: &Pool) -> anyhow::Result<Vec<Duration>> {
    let trip = |_| {
        let start = Instant::now();
        pool.apply(|()| (), ()).wait()?;
        Ok(start.elapsed())
    };
    (0..TRIPS).map(trip).collect()
}

fn noops(pool: &Pool) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let mut done = 0;
    for outcome in pool.imap_unordered(|_: u64| (), 0..NOOPS).wait() {
        outcome?;
        done += 1;
    }
    ensure!(done == NOOPS, "{done} of {NOOPS} tasks came back");
    Ok(start.elapsed())
}
