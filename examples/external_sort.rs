//! Sorts more numbers than the memory of values holds: sorted runs and their parts go to a file
//! where memory is short, and come back for the tasks that need them.
//!
//! ```text
//! FIBER_VALUE_MEMORY=64MiB cargo run --release -p fiber-examples --example external_sort -- 256
//! ```

use fiber::prelude::*;
use fiber::{Array, Output};

/// Bytes of a run.
const RUN: usize = 4 << 20;
const NUMBERS: usize = RUN / size_of::<u64>();

/// Makes a sorted run of numbers by splitmix64 (Steele, Lea and Flood, 2014).
fn run(seed: u64) -> Array<u64> {
    let mut state = seed << 32;
    let mut numbers: Vec<u64> = Vec::with_capacity(NUMBERS);
    for _ in 0..NUMBERS {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        numbers.push(mixed ^ (mixed >> 31));
    }
    numbers.sort_unstable();
    numbers.into()
}

/// Takes the part `part` of `parts` equal ranges of numbers out of a sorted run.
fn part(run: Array<u64>, part: u64, parts: u64) -> Array<u64> {
    let bound = |part: u64| (u128::from(part) << 64) / u128::from(parts);
    let place = |bound: u128| run.partition_point(|number| u128::from(*number) < bound);
    run[place(bound(part))..place(bound(part + 1))].to_vec().into()
}

fn merge(parts: Vec<Array<u64>>) -> Array<u64> {
    let mut merged: Vec<u64> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    merged.sort_unstable();
    merged.into()
}

/// Returns the number of numbers, the first and the last, and whether they are sorted.
fn describe(sorted: Array<u64>) -> (usize, u64, u64, bool) {
    let last = sorted.last().copied().unwrap_or(0);
    (sorted.len(), sorted.first().copied().unwrap_or(u64::MAX), last, sorted.is_sorted())
}

#[fiber::main]
fn main() -> fiber::Result<()> {
    let size = std::env::args().nth(1).map_or(Ok(64), |size| size.parse::<usize>());
    let Some(runs) = size.ok().filter(|size| *size > 0).map(|size| (size << 20).div_ceil(RUN))
    else {
        eprintln!("usage: external_sort [MEBIBYTES], where MEBIBYTES is a number above 0");
        std::process::exit(2);
    };
    let pool = Pool::builder().build()?;
    let sorted_runs = pool.map(run, 0..runs as u64).outputs();
    let parts = runs as u64;
    let merged: Vec<Output<Array<u64>>> = (0..parts)
        .map(|number| {
            let items: Vec<_> =
                sorted_runs.iter().map(|run| (run.clone(), number, parts)).collect();
            pool.apply(merge, pool.map(part, items).outputs()).output()
        })
        .collect();
    drop(sorted_runs);
    let (mut count, mut before) = (0, 0);
    for part in pool.map(describe, merged).wait()? {
        let (len, first, last, is_sorted) = part;
        assert!(is_sorted && before <= first, "the parts are in their order");
        (count, before) = (count + len, last);
    }
    println!("sorted {count} numbers; {}", fiber::value_memory());
    Ok(())
}
