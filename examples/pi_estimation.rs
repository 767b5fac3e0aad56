//! Estimates pi on all cores: random points in a square, and the share of them inside a circle.
//!
//! ```text
//! cargo run --release -p fiber-examples --example pi_estimation -- --processes 4 --samples 1000000
//! ```
//!
//! `make run` does the same, and optimizes only what tasks pass. Kill workers while it runs (`kill
//! -9`): their tasks run again, and the estimate stays right.

use fiber::prelude::*;
use lexopt::prelude::*;

#[fiber::meta(cpu = 1)]
fn inside(_: u64) -> bool {
    let (x, y) = (fastrand::f64(), fastrand::f64());
    x * x + y * y < 1.0
}

#[fiber::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut pool, mut samples) = (Pool::builder(), 10_000_000_u64);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("processes") => pool = pool.processes(arguments.value()?.parse()?),
            Long("samples") => samples = arguments.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    let pool = pool.start().await?;
    let hits = pool.map(inside, 0..samples).progress("points").await?;
    let hits = hits.into_iter().filter(|hit| *hit).count();
    println!("Pi is roughly {}", 4.0 * hits as f64 / samples as f64);
    Ok(())
}
