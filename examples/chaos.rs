//! A pool whose workers kill themselves at random and that still returns every result.
//!
//! ```text
//! cargo run --release -p fiber-examples --example chaos
//! ```
//!
//! Prints the supervision tree a few times, which counts the restarts of each worker.

use std::time::Duration;

use fiber::prelude::*;
use rustix::process::{Signal, getpid, kill_process};

const WORKERS: usize = 6;
/// Tasks of half a millisecond each.
const TASKS: u64 = 20_000;

/// Kills its worker in one call of 500.
fn square(x: u64) -> u64 {
    if fastrand::u32(0..500) == 0 {
        let _ = kill_process(getpid(), Signal::KILL);
    }
    std::thread::sleep(Duration::from_micros(500));
    x * x
}

#[fiber::main]
fn main() -> fiber::Result<()> {
    let pool = Pool::builder().name("chaos").processes(WORKERS).start().wait()?;
    let mut wrong = 0;
    // Deaths are random here, so no number of them speaks against a task.
    let results = pool.max_deaths(u32::MAX).imap(square, 0..TASKS);
    for (x, squared) in (0..).zip(results.wait()) {
        wrong += u64::from(squared? != x * x);
        if x % (TASKS / 3) == TASKS / 6 {
            println!("{}", fiber::tree());
        }
    }
    let workers = fiber::tree().find("chaos").map(|pool| pool.children.clone()).unwrap_or_default();
    let replaced: u64 = workers.iter().map(|worker| worker.restarts).sum();
    println!("{TASKS} tasks, {replaced} workers replaced, {wrong} wrong results");
    Ok(())
}
