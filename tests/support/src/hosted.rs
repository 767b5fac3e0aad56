//! A program with several processes in each of its jobs.

use std::collections::BTreeSet;
use std::io::stdin;
use std::time::Duration;

use fiber::stats::EventKind;
use fiber::sync::{Barrier, Event};
use fiber::{Array, Meta, Pool};

use crate::scenarios::init;
use crate::wait::wait_until;
use crate::{scenario, tasks};

fn machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the jobs in which the workers of a pool are, when all of them are ready.
fn jobs(pool: &Pool) -> BTreeSet<String> {
    pool.wait_until_ready().wait().unwrap();
    let task = |all: Barrier| {
        all.wait_all().wait().unwrap();
        machine()
    };
    let machines = pool.chunk(1).map(task, tasks::all_at_once(pool.ready_workers()));
    machines.wait().unwrap().into_iter().collect()
}

/// Works with eight workers, and then, at each line of input, until the test has ended a job.
#[scenario("hosted")]
fn hosted() {
    init();
    let pool = Pool::builder().processes(8).start().wait().unwrap();
    pool.on_event(|event| {
        if let EventKind::WorkerEnded { exit, .. } = &event.kind {
            println!("ended: {}", exit.reason);
        }
    });
    let before = jobs(&pool);
    println!("jobs: {}", before.len());

    let pi = |n: u64| {
        let (x, y) = (((n % 1000) as f64 + 0.5) / 1000.0, ((n / 1000) as f64 + 0.5) / 1000.0);
        x * x + y * y < 1.0
    };
    let hits = pool.map(pi, 0..1_000_000).wait().unwrap();
    println!("pi: {:.2}", 4.0 * hits.iter().filter(|hit| **hit).count() as f64 / 1e6);

    // More than the 64 MiB that /dev/shm has in a container, shared with neighbours.
    let share = |value: f64| {
        let array = Array::build(10 << 20, |elements: &mut [f64]| elements.fill(value));
        let same = |array: Array<f64>| (array.is_shared(), array[0] == array[(10 << 20) - 1]);
        Pool::new(2).unwrap().map(same, [array.clone(), array]).wait().unwrap()
    };
    println!("shared: {:?}", pool.apply(share, 7.0).wait().unwrap());

    let died = Event::new().unwrap();
    let dies_once = |(n, died): (u64, Event)| {
        if n == 50 && !died.is_set().wait().unwrap() {
            died.set().wait().unwrap();
            println!("about to die");
            std::process::abort();
        }
        n
    };
    let arguments = (0..100).map(move |n| (n, died.clone()));
    println!("sum: {}", pool.map(dies_once, arguments).wait().unwrap().iter().sum::<u64>());
    println!("deaths: {}", pool.stats().deaths);
    println!("the same jobs: {}", jobs(&pool) == before);

    for _ in stdin().lines() {
        let task = |n: u64| {
            std::thread::sleep(Duration::from_millis(2));
            n * 3
        };
        let mut results = pool.max_deaths(1000).imap(task, 0..4000).wait();
        println!("begun: {}", results.next().unwrap().unwrap());
        let rest: Vec<u64> = results.map(Result::unwrap).collect();
        println!("right: {}", rest.into_iter().eq((1..4000).map(|n| n * 3)));
        println!("jobs again: {}", jobs(&pool).len());
    }
}

fn eat() -> usize {
    tasks::eat()
}

/// Prints the limits of a job, and what becomes of a worker that exceeds its own.
#[scenario("hosted limits")]
fn limits() {
    init();
    let meta = Meta::new().cpu(0.25).memory(64 << 20);
    let pool = Pool::builder().processes(4).meta(meta).start().wait().unwrap();
    println!("limits: {}", pool.apply(tasks::limits, ()).wait().unwrap());
    let before = jobs(&pool);
    let error = pool.max_deaths(1).apply(eat, ()).wait().unwrap_err();
    println!("error: {}", error.to_string().lines().next().unwrap());
    println!("the same job: {}", jobs(&pool) == before);
}

/// Prints which graphics processors each worker sees that has room, and when all have it.
#[scenario("hosted gpus")]
fn gpus() {
    init();
    let meta = Meta::new().gpu(2);
    let pool = Pool::builder().processes(4).meta(meta).start().wait().unwrap();
    let mut seen = BTreeSet::new();
    while seen.len() < 2 {
        let task = |()| {
            std::thread::sleep(Duration::from_millis(20));
            (std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default(), machine())
        };
        seen.extend(pool.map(task, [(); 2]).wait().unwrap());
    }
    let machines: BTreeSet<_> = seen.iter().map(|(_, machine)| machine).collect();
    let each: Vec<_> = seen.iter().map(|(gpus, _)| &**gpus).collect();
    println!("gpus: {} in {} job", each.join(" "), machines.len());
    wait_until("all workers", || pool.ready_workers() == 4);
    println!("grown: {}", pool.ready_workers());
}

#[scenario("hosted too much")]
fn too_much() {
    init();
    let pool = Pool::builder().processes(8).meta(Meta::new().cpu(100.0)).start().wait();
    println!("error: {}", pool.map(drop).unwrap_err());
}
