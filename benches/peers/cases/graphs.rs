//! Tasks that take the values of others.

use std::iter;
use std::time::{Duration, Instant};

use anyhow::ensure;
use fiber::sync::Event;
use fiber::{Output, Pool};

use super::resident;
use crate::measure::{median_time, rate, ready_pool, seconds};
use crate::table::{Figure, Row, Table};

const CHAIN: u64 = 10_000;
const FAN: u64 = 100_000;
/// How many outcomes are taken in a loop.
const FEW: u64 = 10_000;
/// The tasks of large graphs, and how many a layer has of those that have layers.
const MANY: u64 = 1_000_000;
const WIDE: usize = 10_000;
/// How many tasks of a call wait for inputs: no call is much more ahead of its outcomes.
const HELD: u64 = 50_000;
/// The tree of tasks below this number has 3,193 of them, each of which waits for two others.
const FIBONACCI: u64 = 16;
/// How many values a task of the tree takes.
const WIDTH: usize = 2;

fn increment(x: u64) -> u64 {
    x + 1
}

fn sum(numbers: Vec<u64>) -> u64 {
    numbers.iter().sum()
}

/// Returns the number of the layer whose tasks take values of these.
fn next(layers: Vec<u64>) -> u64 {
    1 + layers.into_iter().max().unwrap_or(0)
}

fn fibonacci(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let pool = Pool::current().expect("a worker runs this");
    let parts = [n - 1, n - 2].map(|part| pool.apply(fibonacci, part));
    parts.into_iter().map(|part| part.wait().expect("it returns")).sum()
}

pub(super) fn graph(table: &mut Table) -> anyhow::Result<()> {
    for (workers, bar) in [(1, 15e-6), (2, 25e-6)] {
        let pool = ready_pool(workers)?;
        let time = median_time(|| {
            let mut last = pool.apply(increment, 0).output();
            for _ in 1..CHAIN {
                last = pool.apply(increment, last).output();
            }
            ensure!(last.get().wait()? == CHAIN, "the chain has lost a link");
            Ok(())
        })?;
        let what = format!("a chain of tasks, each edge, {workers} workers");
        let row = Row::new(what, seconds(time / CHAIN as u32));
        table.push(row.below(Figure::Seconds(bar)));
    }
    let pool = ready_pool(2)?;
    let time = median_time(|| {
        let outputs = pool.map(increment, 0..FAN).outputs();
        ensure!(pool.apply(sum, outputs).wait()? == FAN * (FAN + 1) / 2, "values are missing");
        Ok(())
    })?;
    // 10,000 in 50 ms.
    let enough = Figure::Rate(200e3);
    let row = Row::new("outputs to one task", Figure::Rate(rate(FAN as usize, time)));
    table.push(row.above(enough));
    let time = median_time(|| {
        let calls = (0..FAN).map(|x| pool.apply(increment, x));
        let values = fiber::as_completed(calls).wait().map(|(_, value)| value);
        ensure!(values.sum::<fiber::Result<u64>>()? == FAN * (FAN + 1) / 2, "values are missing");
        Ok(())
    })?;
    let row = Row::new("outcomes of calls as they come", Figure::Rate(rate(FAN as usize, time)));
    table.push(row.above(enough));
    let time = median_time(|| {
        let outputs = pool.map(increment, 0..FEW).outputs();
        for output in &outputs {
            output.get().wait()?;
        }
        for (_, value) in fiber::as_completed(outputs).wait() {
            value?;
        }
        Ok(())
    })?;
    let row = Row::new(format!("first of {FEW} outputs, until none is left"), seconds(time));
    table.push(row.below(Figure::Seconds(50e-3)));
    let time = median_time(|| {
        let leaves = MANY / 2;
        let mut layer = pool.map(increment, 0..leaves).outputs();
        while layer.len() > 1 {
            let pairs: Vec<_> = layer.chunks(WIDTH).map(<[_]>::to_vec).collect();
            layer = pool.map(sum, pairs).outputs();
        }
        ensure!(layer[0].get().wait()? == leaves * (leaves + 1) / 2, "values are missing");
        Ok(())
    })?;
    let of_many = |shape: &str, time| {
        let row = Row::new(format!("tasks of {shape}"), Figure::Rate(rate(MANY as usize, time)));
        row.above(Figure::Rate(500e3))
    };
    table.push(of_many("a tree of pairs", time));
    for (shape, is_random) in [("layers", false), ("a random graph", true)] {
        let time = median_time(|| {
            let mut rng = fastrand::Rng::with_seed(7);
            let mut layer = pool.map(next, iter::repeat_n(Vec::<u64>::new(), WIDE)).outputs();
            let layers = MANY as usize / WIDE;
            for _ in 1..layers {
                let mut input = |place: usize| {
                    layer[if is_random { rng.usize(..WIDE) } else { place % WIDE }].clone()
                };
                let pairs: Vec<Vec<Output<u64>>> =
                    (0..WIDE).map(|task| vec![input(task), input(task + 1)]).collect();
                layer = pool.map(next, pairs).outputs();
            }
            for output in layer {
                ensure!(output.get().wait()? == layers as u64, "values are missing");
            }
            Ok(())
        })?;
        table.push(of_many(shape, time));
    }
    let memory = memory_of_a_held_task(&pool)?;
    let row = Row::new("memory of a task that waits for an input", Figure::Bytes(memory));
    table.push(row.below(Figure::Bytes(200.0)));
    let time = median_time(|| {
        let sum = pool.map(increment, 0..FAN).reduce(|a, b| a + b).wait()?;
        ensure!(sum == Some(FAN * (FAN + 1) / 2), "values are missing");
        Ok(())
    })?;
    let tasks = Figure::Rate(rate(2 * FAN as usize, time));
    table.push(Row::new("tasks of a map with `reduce`", tasks));
    for workers in [1, 2] {
        let pool = ready_pool(workers)?;
        let time = median_time(|| {
            ensure!(pool.apply(fibonacci, FIBONACCI).wait()? == 987, "a task has lost a part");
            Ok(())
        })?;
        let what = format!("tasks that make and wait for two tasks each, {workers} workers");
        table.push(Row::new(what, Figure::Rate(rate(3193, time))));
    }
    let pool = ready_pool(WORKERS)?;
    for pattern in [Pattern::Stencil, Pattern::Fft, Pattern::Tree, Pattern::Random] {
        let time = least_time(&pool, pattern)?;
        let what = format!("least time of tasks that keeps workers half busy, {pattern:?}");
        table.push(Row::new(what, seconds(time)).below(Figure::Seconds(20e-6)));
    }
    Ok(())
}

/// Returns how many bytes of this process a task takes that waits for another one, with its output.
fn memory_of_a_held_task(pool: &Pool) -> anyhow::Result<f64> {
    let gate = Event::new()?;
    let wait = |gate: Event| gate.wait_set().wait().map_or(0_u64, |()| 1);
    let first = pool.apply(wait, gate.clone()).output();
    let before = resident(std::process::id())?;
    let mut waiting = Vec::new();
    for _ in 0..MANY / HELD {
        let items = iter::repeat_n(first.clone(), HELD as usize);
        waiting.push(pool.map(increment, items).outputs());
    }
    while pool.stats().tasks.held < MANY {
        std::thread::sleep(Duration::from_millis(10));
    }
    let memory = (resident(std::process::id())? - before) / MANY as f64;
    drop(waiting);
    gate.set().wait()?;
    first.get().wait()?;
    Ok(memory)
}

const WORKERS: usize = 2;
/// How many tasks a layer of Task Bench has, and how many layers there are.
const LAYER: usize = 16;
const LAYERS: usize = 200;

/// The patterns of Task Bench (Slaughter et al., SC20): the tasks of the layer before whose values
/// a task takes.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    Stencil,
    Fft,
    Tree,
    Random,
}

impl Pattern {
    fn inputs(self, layer: usize, task: usize) -> Vec<usize> {
        match self {
            Pattern::Stencil => (task.saturating_sub(1)..(task + 2).min(LAYER)).collect(),
            Pattern::Fft => vec![task, task ^ (1 << (layer % LAYER.ilog2() as usize))],
            Pattern::Tree => vec![task / 2],
            Pattern::Random => {
                let mut rng = fastrand::Rng::with_seed((layer * LAYER + task) as u64);
                let mut inputs: Vec<_> = (0..LAYER).filter(|_| rng.u8(..4) == 0).collect();
                inputs.push(task);
                inputs
            }
        }
    }
}

/// Computes for a while.
fn compute(time: Duration, inputs: Vec<u64>) -> u64 {
    let end = Instant::now() + time;
    while Instant::now() < end {}
    inputs.len() as u64
}

/// Returns Task Bench's METG(50 %): how long a task takes, with all that it costs, where workers
/// compute half of the time.
fn least_time(pool: &Pool, pattern: Pattern) -> anyhow::Result<Duration> {
    let mut least = Duration::MAX;
    let mut computing = Duration::from_micros(200);
    while computing >= Duration::from_micros(1) {
        let time = median_time(|| {
            let first = (0..LAYER).map(|_| (computing, Vec::<u64>::new()));
            let mut outputs = pool.map(compute, first.collect::<Vec<_>>()).outputs();
            for layer in 1..LAYERS {
                let inputs = |task| pattern.inputs(layer, task).into_iter();
                let of = |task| inputs(task).map(|input| outputs[input].clone()).collect();
                let tasks: Vec<(_, Vec<Output<u64>>)> =
                    (0..LAYER).map(|task| (computing, of(task))).collect();
                outputs = pool.map(compute, tasks).outputs();
            }
            outputs.into_iter().try_for_each(|output| output.get().wait().map(drop))?;
            Ok(())
        })?;
        let each = time * WORKERS as u32 / (LAYER * LAYERS) as u32;
        if 2 * computing < each {
            break;
        }
        least = each;
        computing = computing * 4 / 5;
    }
    ensure!(least < Duration::MAX, "workers are less than half busy with tasks of 200 us");
    Ok(least)
}
