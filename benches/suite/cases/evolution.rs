//! The rounds of an evolution strategy: parameters for all, then many tasks of a fixed time.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::ensure;
use fiber::{Array, Broadcast};

use crate::measure::{median, ready_pool, seconds};
use crate::table::{Row, Table, Target};

const TASKS: usize = 2048;
const TASK: Duration = Duration::from_millis(100);
/// Elements of 100 kB of parameters.
const PARAMETERS: usize = 25_000;
const ROUNDS: usize = 5;

fn evaluate(parameters: Broadcast<Array<f32>>, index: usize) -> fiber::Result<f32> {
    let parameters = parameters.get()?;
    sleep(TASK);
    Ok(parameters[index])
}

/// Workers, and how many times the ideal a round may take: the target and the aim.
const POOLS: [(usize, Option<(f64, f64)>); 4] =
    [(32, None), (128, None), (512, Some((1.25, 1.1))), (1024, Some((1.6, 1.3)))];

pub(super) fn evolution(table: &mut Table) -> anyhow::Result<()> {
    for (workers, targets) in POOLS {
        let time = round(workers)?;
        let ideal = TASK * (TASKS / workers) as u32;
        let name = format!("round of an evolution strategy, {workers} workers");
        let mut row = Row::new(name, seconds(time)).beside("ideal", seconds(ideal));
        if let Some((most, aim)) = targets {
            row = row.target(Target::at_most(most, "ideal").aim(aim));
        }
        table.push(row);
    }
    Ok(())
}

/// Returns the median time of a round.
fn round(workers: usize) -> anyhow::Result<Duration> {
    let pool = ready_pool(workers)?;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let start = Instant::now();
        let parameters: Array<f32> = (0..PARAMETERS).map(|index| (index + round) as f32).collect();
        let parameters = pool.broadcast(parameters)?;
        let tasks: Vec<_> = (0..TASKS).map(|index| (parameters.clone(), index)).collect();
        let results = pool.try_map(evaluate, tasks).wait()?;
        ensure!(results[TASKS - 1] == (TASKS - 1 + round) as f32, "a result is wrong");
        times.push(start.elapsed());
        eprintln!("  {workers} workers: {:.1?}", times[round]);
    }
    pool.kill();
    pool.join().wait()?;
    Ok(median(times))
}
