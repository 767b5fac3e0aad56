//! Workers that share jobs: which one each of them is in, and what happens when one dies.
//!
//! ```text
//! cargo run --release -p fiber-examples --example hosts
//! FIBER_BACKEND=docker cargo run --release -p fiber-examples --features docker --example hosts
//! ```
//!
//! With the local backend a job is a process, the host, with its workers below it.

use std::collections::BTreeSet;

use fiber::prelude::*;
use fiber::stats::{EventKind, ProcessRole};
use fiber::sync::Event;

/// Dies once, on the way to its result.
fn square((n, died): (u64, Event)) -> u64 {
    if n == 500 && !died.is_set().wait().unwrap() {
        died.set().wait().unwrap();
        std::process::abort();
    }
    n * n
}

fn main() -> fiber::Result<()> {
    fiber::init();
    let pool = Pool::builder().name("squares").processes(8).processes_per_job(4).build()?;
    pool.on_event(|event| match &event.kind {
        EventKind::WorkerStarted { worker, place, .. } => println!("{worker} is {place}"),
        EventKind::WorkerEnded { worker, exit, expected: false, .. } => {
            println!("{worker} {}", exit.reason);
        }
        _ => {}
    });
    pool.wait_until_ready().wait()?;

    let died = Event::new()?;
    let sum: u64 = pool.map(square, (0..1000).map(move |n| (n, died.clone()))).wait()?.iter().sum();
    println!("the sum of the squares is {sum}");
    pool.wait_until_ready().wait()?;

    let hosts: BTreeSet<String> = fiber::stats()?
        .report
        .processes
        .iter()
        .filter(|process| process.role == ProcessRole::Host)
        .map(|process| process.name.clone())
        .collect();
    println!("{} workers in {} jobs: {hosts:?}", pool.ready_workers(), hosts.len());
    Ok(())
}
