//! A pool loses no task while its workers are killed at random.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use fiber::Pool;
use fiber_test_support::soak;
use rand::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};

const WORKERS: usize = 6;

/// A task of random length, which sometimes kills its worker.
fn task(index: u64, seed: u64) -> u64 {
    let mut random =
        rand::rngs::SmallRng::seed_from_u64(seed ^ index ^ u64::from(std::process::id()));
    match random.random_range(0..4000) {
        0 => std::process::abort(),
        1 => std::process::exit(7),
        _ => {}
    }
    std::thread::sleep(Duration::from_micros(random.random_range(0..600)));
    index * 3
}

/// Kills and stops (SIGSTOP) workers of the pool until `end` is set.
fn disturb(pool: &Pool, end: &AtomicBool) {
    let mut random = rand::rngs::SmallRng::seed_from_u64(17);
    while !end.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(random.random_range(10..60)));
        let victims = children();
        // On a busy machine a start takes longer than the pause. Without any complete start, the
        // pool would give up.
        if victims.is_empty() || 2 * pool.ready_workers() < WORKERS {
            continue;
        }
        let victim = victims[random.random_range(0..victims.len())];
        let signal = if random.random_range(0..4) == 0 { Signal::STOP } else { Signal::KILL };
        let _ = kill_process(victim, signal);
    }
}

fn children() -> Vec<Pid> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    let lists = tasks
        .flatten()
        .map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Runs all kinds of calls while workers are killed. The cases run one after the other, so all
/// children of this process belong to the pool.
fn run_case(tasks: u64, chunk: u32, threads: usize) {
    static CONFIGURE: Once = Once::new();
    CONFIGURE.call_once(|| {
        fiber::init_with(|config| {
            config.heartbeat = Duration::from_millis(200);
            config.heartbeat_timeout = Duration::from_secs(2);
        });
    });
    let pool =
        Arc::new(Pool::builder().processes(WORKERS).threads_per_worker(threads).build().unwrap());
    pool.wait_until_ready().wait().unwrap();
    let end = Arc::new(AtomicBool::new(false));
    let disturber = std::thread::spawn({
        let (pool, end) = (Arc::clone(&pool), Arc::clone(&end));
        move || disturb(&pool, &end)
    });
    let calls = pool.chunk(chunk).max_deaths(1000);
    let items = |seed: u64| (0..tasks).map(move |index| (index, seed));
    let expected: Vec<_> = (0..tasks).map(|index| index * 3).collect();

    assert_eq!(calls.map(task, items(1)).wait().unwrap(), expected, "map");
    let ordered: Result<Vec<_>, _> = calls.imap(task, items(2)).wait().collect();
    assert_eq!(ordered.unwrap(), expected, "imap");
    let unordered: Result<Vec<_>, _> = calls.imap_unordered(task, items(3)).wait().collect();
    let mut unordered = unordered.unwrap();
    unordered.sort_unstable();
    assert_eq!(unordered, expected, "imap_unordered");

    end.store(true, Ordering::Release);
    disturber.join().unwrap();
    pool.kill();
    pool.join().wait().unwrap();
}

#[test]
fn no_task_is_lost_while_workers_are_killed() {
    for (tasks, chunk, threads) in
        [(2_000, 1, 1), (750, 7, 1), (750, 32, 1), (750, 1, 3), (750, 7, 3)]
    {
        eprintln!("chunks of {chunk}, {threads} threads a worker");
        run_case(tasks * soak() as u64, chunk, threads);
    }
}
