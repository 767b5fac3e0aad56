//! Estimates pi on all cores: random points in a square, and the share of them inside a circle.
//!
//! ```text
//! cargo run --release -p fiber-examples --example pi_estimation -- --processes 4 --samples 1000000
//! ```
//!
//! `make run` does the same. Kill workers while it runs (`kill -9`): their tasks run again, and the
//! estimate stays right.

use clap::Parser;
use fiber::prelude::*;

#[derive(Parser)]
struct Arguments {
    /// Worker processes (default: one a core).
    #[arg(long)]
    processes: Option<usize>,
    /// Points to sample.
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
    let hits = pool.map(inside, 0..arguments.samples).progress("points").await?;
    let hits = hits.into_iter().filter(|hit| *hit).count();
    println!("Pi is roughly {}", 4.0 * hits as f64 / arguments.samples as f64);
    Ok(())
}
