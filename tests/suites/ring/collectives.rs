//! Collectives, compared with what one process computes.

use fiber::{Error, Reduction, Ring, RingNode, ring::Number};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::LONG;

/// The data of one trial, in which a ring runs all collectives.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Trial {
    length: usize,
    root: usize,
    how: u8,
    seed: u64,
}

const HOW: [Reduction; 5] =
    [Reduction::Sum, Reduction::Product, Reduction::Min, Reduction::Max, Reduction::Mean];

/// A number small enough that sums and products of all ranks are exact as `f32`.
trait TestNumber: Number + PartialEq + std::fmt::Debug + Serialize + DeserializeOwned {
    fn of(value: u64) -> Self;
    fn join(values: impl Iterator<Item = Self>, how: Reduction) -> Self;
}

macro_rules! number {
    ($($type:ty)+) => {
        $(impl TestNumber for $type {
            fn of(value: u64) -> $type {
                (value % 4) as $type
            }

            fn join(values: impl Iterator<Item = $type>, how: Reduction) -> $type {
                let values: Vec<f64> = values.map(|value| value as f64).collect();
                let joined = match how {
                    Reduction::Sum => values.iter().sum::<f64>(),
                    Reduction::Product => values.iter().product(),
                    Reduction::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
                    Reduction::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    _ => return (values.iter().sum::<f64>() as $type) / (values.len() as $type),
                };
                joined as i64 as $type
            }
        })+
    };
}

number!(f32 f64 i32 i64 u8);

fn element<T: TestNumber>(trial: &Trial, rank: usize, at: usize) -> T {
    let mixed = (trial.seed ^ (rank as u64) << 32 ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    T::of(mixed >> 40)
}

fn array<T: TestNumber>(trial: &Trial, rank: usize) -> Vec<T> {
    (0..trial.length).map(|at| element(trial, rank, at)).collect()
}

fn segment(length: usize, size: usize, rank: usize) -> std::ops::Range<usize> {
    let starts: Vec<usize> =
        (0..=size).map(|rank| rank * (length / size) + rank.min(length % size)).collect();
    starts[rank]..starts[rank + 1]
}

/// Runs all collectives and compares their results with what one process computes.
fn check_all<T: TestNumber>(node: &mut RingNode, trial: &Trial) -> Result<(), String> {
    let (rank, size) = (node.rank(), node.size());
    let (root, how) = (trial.root % size, HOW[usize::from(trial.how) % HOW.len()]);
    let own: Vec<T> = array(trial, rank);
    let all: Vec<Vec<T>> = (0..size).map(|rank| array(trial, rank)).collect();
    let joined: Vec<T> =
        (0..trial.length).map(|at| T::join(all.iter().map(|array| array[at]), how)).collect();
    let wrong = |what: &str| {
        Err(format!("{what} ({how:?}, root {root}) at rank {rank} of {size}, {trial:?}"))
    };
    let text = |error: Error| error.to_string();

    node.barrier().map_err(text)?;
    let mut data = own.clone();
    node.broadcast(root, &mut data).map_err(text)?;
    if data != all[root] {
        return wrong("broadcast");
    }
    let mut data = own.clone();
    node.reduce(root, &mut data, how).map_err(text)?;
    if data != if rank == root { joined.clone() } else { own.clone() } {
        return wrong("reduce");
    }
    let mut data = own.clone();
    node.all_reduce(&mut data, how).map_err(text)?;
    if data != joined {
        return wrong("all_reduce");
    }
    if node.all_gather(&own).map_err(text)? != all.concat() {
        return wrong("all_gather");
    }
    if node.reduce_scatter(&own, how).map_err(text)? != joined[segment(trial.length, size, rank)] {
        return wrong("reduce_scatter");
    }
    let gathered = node.gather(root, &own).map_err(text)?;
    if gathered != if rank == root { all.concat() } else { Vec::new() } {
        return wrong("gather");
    }
    let from_root = if rank == root { own.clone() } else { Vec::new() };
    if node.scatter(root, &from_root).map_err(text)? != all[root][segment(trial.length, size, rank)]
    {
        return wrong("scatter");
    }
    Ok(())
}

fn check_trials(mut node: RingNode, trials: Vec<Trial>) -> Result<(), String> {
    for trial in &trials {
        match trial.seed % 5 {
            0 => check_all::<f32>(&mut node, trial)?,
            1 => check_all::<f64>(&mut node, trial)?,
            2 => check_all::<i32>(&mut node, trial)?,
            3 => check_all::<i64>(&mut node, trial)?,
            _ => check_all::<u8>(&mut node, trial)?,
        }
    }
    Ok(())
}

const PRIMES: [usize; 8] = [2, 3, 7, 31, 127, 4_099, 16_411, 65_537];

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        Just(0usize),
        Just(1usize),
        (0..PRIMES.len()).prop_map(|at| PRIMES[at]),
        0usize..40,
        0usize..50_000,
    ]
}

#[test]
fn all_collectives_return_what_one_process_computes() {
    let trial = || {
        let parts = (lengths(), 0usize..7, any::<u8>(), any::<u64>());
        parts.prop_map(|(length, root, how, seed)| Trial { length, root, how, seed })
    };
    for size in 1..=7 {
        let mut runner =
            TestRunner::new(Config { cases: 2, failure_persistence: None, ..Config::default() });
        // Each ring runs many trials, because its start takes longer than a trial.
        let result = runner.run(&prop::collection::vec(trial(), 12), |trials| {
            let done = Ring::builder().size(size).try_run(check_trials, trials).wait();
            done.map(drop).map_err(|error| TestCaseError::fail(error.to_string()))
        });
        result.unwrap_or_else(|error| panic!("{size} nodes: {error}"));
    }
}

#[test]
fn collectives_work_on_arrays_that_are_longer_than_any_buffer() {
    for (size, seed) in [(2, 0), (3, 5), (4, 4), (3, 3)] {
        let trials = vec![Trial { length: LONG, root: 1, how: 0, seed }];
        Ring::builder().size(size).try_run(check_trials, trials).wait().unwrap();
    }
}

#[test]
fn results_are_equal_on_all_ranks_and_in_all_runs_bit_for_bit() {
    fn reduce(mut node: RingNode, length: usize) -> fiber::Result<Vec<u32>> {
        // The sum of these values depends on the order of the additions.
        let mut data: Vec<f32> =
            (0..length).map(|at| ((at * 31 + node.rank() * 17 + 1) as f32).recip()).collect();
        node.all_reduce(&mut data, Reduction::Sum)?;
        Ok(data.into_iter().map(f32::to_bits).collect())
    }
    for (size, length) in [(3, 1_000), (3, 50_000), (5, 70_001), (7, 77)] {
        let runs: Vec<_> = (0..2)
            .map(|_| Ring::builder().size(size).try_run(reduce, length).wait().unwrap())
            .collect();
        let first = &runs[0][0];
        assert!(runs.iter().flatten().all(|bits| bits == first), "{size} nodes, {length} elements");
    }
}
