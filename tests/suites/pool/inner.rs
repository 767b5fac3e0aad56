//! Tasks that make tasks: calls at the pool that runs them.

use std::path::Path;
use std::time::Duration;

use fiber::{Broadcast, Error, Pool, as_completed};
use fiber_test_support::wait::wait_until;
use futures_util::FutureExt;

use super::{pool, square};

fn fibonacci(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let pool = Pool::current().unwrap();
    let parts = pool.map(fibonacci, [n - 1, n - 2]).wait().unwrap();
    parts[0] + parts[1]
}

async fn fibonacci_async(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let pool = Pool::current().unwrap();
    let (first, second) =
        (pool.apply(fibonacci_async, n - 1), pool.apply(fibonacci_async, n - 2).output());
    first.await.unwrap() + second.await.unwrap()
}

#[test]
fn a_worker_has_few_threads_more_than_its_tasks_are_deep() {
    let threads = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
        threads.unwrap().trim().parse::<u32>().unwrap()
    };
    let pool = pool(1);
    // From the second on, the pool knows how long such a task takes, with its waits.
    for _ in 0..3 {
        assert_eq!(pool.apply(fibonacci, 13).wait().unwrap(), 233);
        let threads = pool.apply(threads, ()).wait().unwrap();
        assert!(threads < 50, "{threads} threads");
    }
}

#[test]
fn async_tasks_await_tasks() {
    let pool = Pool::builder().processes(1).threads_per_worker(2).build().unwrap();
    assert_eq!(pool.apply(fibonacci_async, 10).wait().unwrap(), 55);
}

#[test]
fn all_calls_work_in_tasks() {
    let all = || {
        let pool = Pool::current().unwrap();
        assert_eq!(pool.name(), "outer");
        let streamed: Result<Vec<u64>, _> = pool.imap(square, 0..).wait().take(100).collect();
        assert_eq!(streamed.unwrap()[99], 99 * 99);
        let mut unordered: Vec<u64> =
            pool.imap_unordered(square, 0..50).wait().map(Result::unwrap).collect();
        unordered.sort_unstable();
        assert_eq!(unordered[49], 49 * 49);
        let outputs = pool.map(square, 0..10).outputs();
        let sum = pool.apply(|numbers: Vec<u64>| numbers.iter().sum::<u64>(), outputs);
        assert_eq!(sum.wait().unwrap(), 285);
        let calls: Vec<_> = (0..20).map(|x| pool.apply(square, x)).collect();
        let sum: u64 = as_completed(calls).wait().map(|(_, square)| square.unwrap()).sum();
        assert_eq!(sum, (0..20).map(|x| x * x).sum::<u64>());
        let failed = pool.try_apply(|_: u8| Err::<u8, _>("no rain".to_string()), 1).wait();
        let problem = failed.unwrap_err().to_string();
        assert!(problem.contains("no rain"), "{problem}");
        let count = pool.map(square, 0..20_000).wait().unwrap().len();
        assert_eq!(count, 20_000);
    };
    let pool = Pool::builder().name("outer").processes(2).build().unwrap();
    pool.apply(all, ()).wait().unwrap();
}

#[test]
fn a_task_that_kills_its_workers_is_abandoned_with_those_that_wait_for_it() {
    let outer = || {
        let inner = Pool::current().unwrap().max_deaths(1).apply(|| std::process::abort(), ());
        inner.wait().unwrap_err().to_string()
    };
    // The waiting task dies with the other, if that runs in the same worker.
    match pool(2).max_deaths(2).apply(outer, ()).wait() {
        Ok(problem) => assert!(problem.contains("worker"), "{problem}"),
        Err(problem) => assert!(matches!(problem, Error::WorkerDied { .. }), "{problem}"),
    }
    let problem = pool(1).max_deaths(2).apply(outer, ()).wait().unwrap_err();
    assert!(matches!(problem, Error::WorkerDied { deaths: 2, .. }), "{problem}");
}

#[test]
fn inner_tasks_have_time_limits() {
    let timed = || {
        let pool = Pool::current().unwrap().timeout(Duration::from_millis(50));
        let slow = pool.apply(|| std::thread::sleep(Duration::from_secs(60)), ());
        matches!(slow.wait(), Err(Error::TaskTimedOut { .. }))
    };
    // The worker dies with the waiting task, if both are in one: that counts as a death.
    match pool(2).apply(timed, ()).wait() {
        Ok(has_timed_out) => assert!(has_timed_out),
        Err(problem) => assert!(matches!(problem, Error::WorkerDied { .. }), "{problem}"),
    }
    let problem = pool(1).max_deaths(2).apply(timed, ()).wait().unwrap_err();
    assert!(matches!(problem, Error::WorkerDied { deaths: 2, .. }), "{problem}");
    assert!(problem.to_string().contains("for which it waited ran past"), "{problem}");
}

#[test]
fn a_cancelled_inner_task_does_not_kill_the_one_that_cancels_it() {
    fn slow(marker: String) {
        std::fs::write(&marker, "").unwrap();
        wait_until("the word to end", || !Path::new(&marker).exists());
    }
    let outer = |marker: String| {
        let mut slow = Pool::current().unwrap().apply(slow, marker.clone());
        // That lends the slot of this task.
        assert!((&mut slow).now_or_never().is_none());
        wait_until("the inner task", || Path::new(&marker).exists());
        slow.cancel();
        assert!(matches!(slow.wait(), Err(Error::Cancelled { .. })));
        std::fs::remove_file(marker).unwrap();
    };
    let directory = tempfile::tempdir().unwrap();
    for workers in [1, 2] {
        let pool = pool(workers);
        let marker = directory.path().join(workers.to_string()).display().to_string();
        pool.max_deaths(1).apply(outer, marker).wait().unwrap();
        assert_eq!(pool.apply(square, 4).wait().unwrap(), 16);
    }
}

#[test]
fn tasks_share_values_with_theirs() {
    let outer = |x: u64| {
        let pool = Pool::current().unwrap();
        let shared = pool.broadcast(vec![x; 10]).unwrap();
        let sum = |factor: u64, shared: Broadcast<Vec<u64>>| {
            shared.get().unwrap().iter().sum::<u64>() * factor
        };
        let items = [(1, shared.clone()), (2, shared.clone())];
        let sums = pool.map(sum, items).wait().unwrap();
        let scaled = pool.with(x).map(|y: u64, x: &u64| x * y, 0..3).wait().unwrap();
        (sums, scaled)
    };
    let pool = pool(2);
    for x in 1..4 {
        let (sums, scaled) = pool.apply(outer, x).wait().unwrap();
        assert_eq!((sums, scaled), (vec![10 * x, 20 * x], vec![0, x, 2 * x]));
    }
}

#[test]
fn what_only_the_owner_may_do_fails_in_tasks() {
    let outer = || {
        let pool = Pool::current().unwrap();
        let problems = [
            pool.scale(2).wait().unwrap_err(),
            pool.stop().wait().unwrap_err(),
            pool.durable("none").apply(square, 2).wait().unwrap_err(),
        ];
        pool.kill();
        pool.wait_until_ready().wait().unwrap();
        problems.map(|problem| problem.to_string())
    };
    let pool = pool(1);
    let problems = pool.apply(outer, ()).wait().unwrap();
    for (problem, part) in problems.iter().zip(["scale", "join", "durable"]) {
        assert!(problem.contains(part), "{problem}");
    }
    assert_eq!(pool.apply(square, 3).wait().unwrap(), 9);
    let problem = Pool::current().unwrap_err().to_string();
    assert!(problem.contains("no worker of a pool"), "{problem}");
}

fn descend(depth: u32) -> u32 {
    match Pool::current().unwrap().try_apply(try_descend, depth + 1).wait() {
        Ok(depth) => depth,
        Err(problem) => {
            assert!(problem.to_string().contains("256"), "{problem}");
            depth
        }
    }
}

fn try_descend(depth: u32) -> fiber::Result<u32> {
    Ok(descend(depth))
}

#[test]
fn a_recursion_without_end_is_an_error() {
    assert_eq!(pool(1).apply(descend, 0).wait().unwrap(), 256);
}
