//! A pool whose workers kill themselves at random and that still returns every result.
//!
//! ```text
//! cargo run --release -p fiber-examples --example chaos
//! ```
//!
//! Prints the supervision tree a few times, which counts the restarts of each worker.

use std::time::Duration;

use clap::Parser;
use fiber::prelude::*;
use rustix::process::{Signal, getpid, kill_process};

#[derive(Parser)]
struct Arguments {
    /// Worker processes.
    #[arg(long, default_value_t = 6)]
    processes: usize,
    /// Tasks of half a millisecond each.
    #[arg(long, default_value_t = 20_000)]
    tasks: u64,
}

/// Kills its worker in one call of 500.
fn square(x: u64) -> u64 {
    if rand::random_bool(1.0 / 500.0) {
        let _ = kill_process(getpid(), Signal::KILL);
    }
    std::thread::sleep(Duration::from_micros(500));
    x * x
}

#[fiber::main]
fn main() -> fiber::Result<()> {
    let Arguments { processes, tasks } = Arguments::parse();
    let pool = Pool::builder().name("chaos").processes(processes).start().wait()?;
    let mut wrong = 0;
    // Deaths are random here, so no number of them speaks against a task.
    let results = pool.max_deaths(u32::MAX).imap(square, 0..tasks);
    for (x, squared) in (0..).zip(results.wait()) {
        wrong += u64::from(squared? != x * x);
        if x % (tasks / 3).max(1) == tasks / 6 {
            println!("{}", fiber::tree());
        }
    }
    let workers = fiber::tree().find("chaos").map(|pool| pool.children.clone()).unwrap_or_default();
    let replaced: u64 = workers.iter().map(|worker| worker.restarts).sum();
    println!("{tasks} tasks, {replaced} workers replaced, {wrong} wrong results");
    Ok(())
}
