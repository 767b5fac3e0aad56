//! A parameter sweep that can be killed and started again: docs/durable.md explains it.
//!
//! ```text
//! cargo run --release -p fiber-examples --example sweep     # end it with Ctrl-C or kill -9
//! cargo run --release -p fiber-examples --example sweep     # it goes on from there
//! fiber journal show fiber-journals/sweep                   # what it has recorded
//! ```
//!
//! It looks for the infection and recovery rates with which a model of an epidemic comes closest to
//! observed numbers of cases.

use fiber::prelude::*;
use lexopt::prelude::*;
use serde::{Deserialize, Serialize};

const PEOPLE: f64 = 100_000.0;
const STEPS_PER_DAY: usize = 5_000;
/// The cases on the days 10, 20 and so on.
const OBSERVED: [f64; 6] = [98.0, 950.0, 8_100.0, 27_800.0, 22_400.0, 11_600.0];

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Rates {
    infection: f64,
    recovery: f64,
}

/// Returns how far the model is from the observed cases with these rates.
fn distance(rates: Rates) -> f64 {
    let (mut healthy, mut infected) = (PEOPLE - 10.0, 10.0);
    let step = 1.0 / STEPS_PER_DAY as f64;
    let mut squares = 0.0;
    for observed in OBSERVED {
        for _ in 0..10 * STEPS_PER_DAY {
            let new = rates.infection * healthy * infected / PEOPLE * step;
            healthy -= new;
            infected += new - rates.recovery * infected * step;
        }
        squares += (infected.ln() - observed.ln()).powi(2);
    }
    squares.sqrt()
}

#[fiber::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut pool, mut size, mut journal) = (Pool::builder().name("sweep"), 100, "sweep".into());
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("processes") => pool = pool.processes(arguments.value()?.parse()?),
            Long("size") => size = arguments.value()?.parse()?,
            Long("journal") => journal = arguments.value()?.string()?,
            other => return Err(other.unexpected().into()),
        }
    }
    let pool = pool.start().await?;
    let rate = move |number: u32| f64::from(number + 1) / f64::from(size);
    let grid: Vec<Rates> = (0..size * size)
        .map(|cell| Rates { infection: rate(cell / size), recovery: rate(cell % size) / 2.0 })
        .collect();
    let distances = pool.durable(journal).map(distance, grid.clone()).progress("sweep").await?;
    let (best, distance) = grid
        .iter()
        .zip(distances)
        .min_by(|(_, one), (_, other)| one.total_cmp(other))
        .ok_or("the grid is empty: give a --size of at least 1")?;
    println!(
        "infection {:.3}, recovery {:.3}: distance {distance:.3} after {} simulations",
        best.infection,
        best.recovery,
        grid.len()
    );
    Ok(())
}
