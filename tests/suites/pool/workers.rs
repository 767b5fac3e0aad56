//! The number of a pool's workers, their lifetime and their threads.

use std::collections::HashSet;
use std::sync::mpsc::channel;

use fiber::Pool;
use fiber::stats::EventKind;
use fiber_test_support::wait::wait_until;

use super::{pid_after, pool, square};

#[test]
fn workers_are_replaced_after_tasks_per_worker() {
    let pool = Pool::builder().processes(2).tasks_per_worker(10).build().unwrap();
    let pids = pool.map(|_: u32| std::process::id(), 0..100).wait().unwrap();
    let mut counts = std::collections::HashMap::new();
    pids.iter().for_each(|pid| *counts.entry(pid).or_insert(0) += 1);
    assert!(counts.len() >= 10 && counts.values().all(|count| *count <= 10), "{counts:?}");
}

#[test]
fn the_threads_of_a_worker_run_tasks_at_the_same_time() {
    // Each task waits for three others, so the test ends only if four run at a time.
    let meet = |_: u32| {
        static HERE: std::sync::Barrier = std::sync::Barrier::new(4);
        HERE.wait();
        std::process::id()
    };
    let pool = Pool::builder().processes(1).threads_per_worker(4).build().unwrap();
    let pids: HashSet<_> = pool.map(meet, 0..40).wait().unwrap().into_iter().collect();
    assert_eq!(pids.len(), 1);
}

#[test]
fn new_workers_without_a_task_that_a_pool_gives_up_have_not_failed() {
    let pool = pool(10);
    let (sender, ends) = channel();
    pool.on_event(move |event| {
        if let EventKind::WorkerEnded { .. } = event.kind {
            let _ = sender.send(());
        }
    });
    pool.wait_until_ready().wait().unwrap();
    pool.scale(1).wait().unwrap();
    (0..9).for_each(|_| ends.recv().unwrap());
    assert_eq!(pool.apply(square, 3).wait().unwrap(), 9);
}

#[test]
fn a_pool_scales_with_the_number_of_tasks() {
    let pool = Pool::builder().scale_between(1..=3).build().unwrap();
    let pids = pool.imap_unordered(pid_after, std::iter::repeat(5));
    let mut seen = HashSet::new();
    for pid in pids.wait() {
        seen.insert(pid.unwrap());
        if seen.len() == 3 {
            break;
        }
    }
    // The handle was dropped: the pool shrinks, and still works.
    wait_until("the end of two workers", || pool.ready_workers() <= 1);
    assert_eq!(pool.map(square, 0..3).wait().unwrap(), [0, 1, 4]);
}

#[test]
fn numbers_of_processes_and_threads_have_bounds() {
    for pool in [
        Pool::new(0),
        Pool::builder().threads_per_worker(0).build(),
        Pool::builder().scale_between(0..=3).build(),
    ] {
        let error = pool.unwrap_err().to_string();
        assert!(error.contains("at least 1"), "{error}");
    }
    let (last, first) = (1, 4);
    let error = Pool::builder().scale_between(first..=last).build().unwrap_err().to_string();
    assert!(error.contains("scale_between") && error.contains("the bounds are 4..=1"), "{error}");
    let error = Pool::new(usize::MAX).unwrap_err().to_string();
    assert!(error.contains("there can be 100000"), "{error}");
}
