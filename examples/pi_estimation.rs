//! Estimates pi by throwing darts, on all cores: the first program that one writes with a pool.
//!
//! ```text
//! cargo run --release --example pi_estimation -- --processes 4 --samples 10000000
//! ```
//!
//! Kill some of the workers while it runs (`kill -9`): the estimate comes out all the same.

use clap::Parser;
use fiber::prelude::*;

#[derive(Parser)]
struct Arguments {
    /// Worker processes; one a core by default.
    #[arg(long)]
    processes: Option<usize>,
    /// Darts to throw.
    #[arg(long, default_value_t = 10_000_000)]
    samples: u64,
}

#[fiber::meta(cpu = 1)]
fn inside(_: u64) -> bool {
    let (x, y): (f64, f64) = rand::random();
    x * x + y * y < 1.0
}

#[fiber::main]
async fn main() -> fiber::Result<()> {
    let arguments = Arguments::parse();
    let mut pool = Pool::builder();
    if let Some(processes) = arguments.processes {
        pool = pool.processes(processes);
    }
    let pool = pool.start().await?;
    let hits = pool.map(inside, 0..arguments.samples).progress("darts").await?;
    let hits = hits.into_iter().filter(|hit| *hit).count();
    println!("Pi is roughly {}", 4.0 * hits as f64 / arguments.samples as f64);
    Ok(())
}
