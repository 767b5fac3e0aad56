//! Kills its own workers while they work, and gets all results all the same.
//!
//! ```text
//! cargo run --release --example chaos
//! ```
//!
//! The tree of supervisors is printed on the way: it shows who was killed how often.

use std::time::Duration;

use clap::Parser;
use fiber::prelude::*;
use rustix::process::{Pid, Signal, kill_process};

#[derive(Parser)]
struct Arguments {
    /// Worker processes.
    #[arg(long, default_value_t = 6)]
    processes: usize,
    /// Tasks, of half a millisecond each.
    #[arg(long, default_value_t = 20_000)]
    tasks: u64,
}

fn square(x: u64) -> (u64, u32) {
    std::thread::sleep(Duration::from_micros(500));
    (x * x, std::process::id())
}

#[fiber::main]
fn main() -> fiber::Result<()> {
    let Arguments { processes, tasks } = Arguments::parse();
    let pool = Pool::builder().name("chaos").processes(processes).start().wait()?;
    let (mut wrong, mut killed) = (0, 0);
    // Whoever is killed here did nothing wrong, so no task is to be given up for it.
    let results = pool.max_deaths(u32::MAX).imap(square, 0..tasks);
    for (x, result) in (0..).zip(results.wait()) {
        let (squared, pid) = result?;
        wrong += u64::from(squared != x * x);
        let victim = i32::try_from(pid).ok().and_then(Pid::from_raw);
        if x % 500 == 499 && victim.is_some_and(|victim| kill_process(victim, Signal::KILL).is_ok()) {
            killed += 1;
        }
        if x % (tasks / 3).max(1) == tasks / 6 {
            println!("{}", fiber::tree());
        }
    }
    println!("{tasks} tasks, {killed} workers killed, {wrong} wrong results");
    Ok(())
}
