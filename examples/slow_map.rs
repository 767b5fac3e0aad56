//! A map that is slow, to look at: docs/observability.md finds out why.
//!
//! ```text
//! cargo run --release -p fiber-examples --example slow_map -- --processes 4
//! fiber top                               # in another terminal, while it runs
//! fiber stack slow/worker-1
//! cargo run --release -p fiber-examples --example slow_map -- --quick   # mended
//! ```

use std::time::Instant;

use fiber::prelude::*;
use lexopt::prelude::*;

const DOCUMENTS: u64 = 400;

/// Returns the median number of a document. Most have a few thousand numbers, some have many more.
fn median(document: u64, quick: bool) -> u64 {
    let mut numbers = load(document);
    if quick {
        numbers.sort_unstable();
    } else {
        insertion_sort(&mut numbers);
    }
    numbers[numbers.len() / 2]
}

fn load(document: u64) -> Vec<u64> {
    let length = if document % 100 == 37 { 500_000 } else { 4_000 };
    let scrambled = |number: u64| (document + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
    (0..length).map(scrambled).collect()
}

/// Takes time that grows with the square of the length.
#[inline(never)]
fn insertion_sort(numbers: &mut [u64]) {
    for end in 1..numbers.len() {
        let mut place = end;
        while place > 0 && numbers[place - 1] > numbers[place] {
            numbers.swap(place - 1, place);
            place -= 1;
        }
    }
}

#[fiber::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut pool, mut quick) = (Pool::builder().name("slow"), false);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("processes") => pool = pool.processes(arguments.value()?.parse()?),
            Long("quick") => quick = true,
            other => return Err(other.unexpected().into()),
        }
    }
    let (pool, start) = (pool.start().await?, Instant::now());
    let documents = (0..DOCUMENTS).map(move |document| (document, quick));
    let medians = pool.map(median, documents).progress("documents").await?;
    println!("the medians add up to {} after {:.1?}", medians.iter().sum::<u64>(), start.elapsed());
    for function in pool.stats().functions {
        let time = |share| function.times.quantile(share);
        println!(
            "{}: {} tasks, half of them within {:.1?}, 99 % within {:.1?}, the longest {:.1?}",
            function.function,
            function.done,
            time(0.5),
            time(0.99),
            function.times.max()
        );
    }
    Ok(())
}
