//! Workers that SIGTERM asks to end.

use std::sync::mpsc::{Receiver, channel};

use fiber::stats::EventKind;
use fiber::{Pool, Queue, error::ExitReason, sync};
use fiber_test_support::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{pool, sleep_ms, square};

fn terminate(pid: u32) {
    signal(pid, Signal::TERM);
}

fn signal(pid: u32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), signal);
}

/// The end of a worker.
#[derive(Debug)]
struct End {
    reason: ExitReason,
    expected: bool,
    blamed: usize,
    redelivered: u64,
}

/// Returns the pids of workers that get ready, and the ends of workers.
fn events(pool: &Pool) -> (Receiver<u32>, Receiver<End>) {
    let ((started, starts), (ended, ends)) = (channel(), channel());
    pool.on_event(move |event| match &event.kind {
        EventKind::WorkerStarted { place, .. } => {
            let pid = place.split(' ').nth(1).and_then(|pid| pid.parse().ok());
            let _ = started.send(pid.expect("workers are processes"));
        }
        EventKind::WorkerEnded { exit, expected, blamed, redelivered, .. } => {
            let (reason, blamed) = (exit.reason.clone(), blamed.len());
            let (expected, redelivered) = (*expected, *redelivered);
            let _ = ended.send(End { reason, expected, blamed, redelivered });
        }
        _ => {}
    });
    (starts, ends)
}

#[track_caller]
fn was_drained(end: &End, redelivered: u64) {
    assert_eq!(end.reason, ExitReason::Terminated);
    assert_eq!((end.expected, end.blamed, end.redelivered), (true, 0, redelivered), "{end:?}");
}

/// Where a task reports that it runs, and what it waits for.
type Gate = (Queue<u32>, sync::Event);

fn gate() -> Gate {
    (Queue::new().unwrap(), sync::Event::new().unwrap())
}

/// Reports its process if it is to wait, waits, and returns its argument and its process.
fn pass(x: u64, gate: Option<Gate>) -> (u64, u32) {
    let pid = std::process::id();
    if let Some((running, open)) = gate {
        running.put(pid).wait().unwrap();
        open.wait_set().wait().unwrap();
    }
    (x, pid)
}

#[test]
fn a_worker_ends_its_task_and_returns_the_others() {
    let pool = pool(2).max_deaths(1);
    let (_, ends) = events(&pool);
    let gate = gate();
    let (running, open) = gate.clone();
    // With chunks, tasks wait behind the one that runs.
    let tasks = (0..100).map(move |x| (x, (x == 0).then(|| gate.clone())));
    let mut results = pool.chunk(10).imap_unordered(pass, tasks).wait();
    let pid = running.get().wait().unwrap();
    terminate(pid);
    // The other worker has the rest, while the task still runs.
    let mut seen: Vec<_> = results.by_ref().take(99).map(|result| result.unwrap().0).collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..100).collect::<Vec<_>>());
    wait_until("one ready worker", || pool.ready_workers() == 1);
    open.set().wait().unwrap();
    assert_eq!(results.next().unwrap().unwrap(), (0, pid));
    was_drained(&ends.recv().unwrap(), 0);
    pool.wait_until_ready().wait().unwrap();
    let stats = pool.stats();
    assert_eq!((stats.deaths, stats.tasks.redelivered), (0, 0));
}

#[test]
fn nothing_counts_if_a_worker_is_killed_before_its_task_has_ended() {
    let pool = pool(1).max_deaths(1);
    let (_, ends) = events(&pool);
    let gate = gate();
    let (running, open) = gate.clone();
    let call = pool.apply(pass, (0, Some(gate)));
    for _ in 0..4 {
        let pid = running.get().wait().unwrap();
        // Twice, as kubelets and shells do.
        terminate(pid);
        terminate(pid);
        wait_until("the end of all workers", || pool.ready_workers() == 0);
        signal(pid, Signal::KILL);
        was_drained(&ends.recv().unwrap(), 1);
    }
    running.get().wait().unwrap();
    open.set().wait().unwrap();
    assert_eq!(call.wait().unwrap().0, 0);
    assert_eq!(pool.stats().deaths, 0);
}

#[test]
fn a_crash_counts_also_after_sigterm() {
    fn crash(gate: Gate) {
        pass(0, Some(gate));
        std::process::abort();
    }
    let pool = pool(1).max_deaths(1);
    let gate = gate();
    let (running, open) = gate.clone();
    let call = pool.apply(crash, gate);
    terminate(running.get().wait().unwrap());
    wait_until("the end of all workers", || pool.ready_workers() == 0);
    open.set().wait().unwrap();
    let error = call.wait().unwrap_err();
    assert!(matches!(error, fiber::Error::WorkerDied { deaths: 1, .. }), "{error}");
}

#[test]
fn all_workers_end_at_once_also_with_their_process_groups() {
    let pool = pool(3).max_deaths(1);
    let (starts, ends) = events(&pool);
    let results = pool.imap_unordered(
        |x: u64| {
            sleep_ms(1);
            x
        },
        0..3000,
    );
    let mut results = results.wait();
    let mut seen = Vec::new();
    for round in 0..6 {
        let pids: Vec<_> = (0..3).map(|_| starts.recv().unwrap()).collect();
        seen.push(results.next().unwrap().unwrap());
        for pid in pids {
            match round % 2 {
                0 => terminate(pid),
                _ => {
                    let group = Pid::from_raw(pid as i32).unwrap();
                    kill_process_group(group, Signal::TERM).unwrap();
                }
            }
        }
        (0..3).for_each(|_| was_drained(&ends.recv().unwrap(), 0));
    }
    seen.extend(results.map(Result::unwrap));
    seen.sort_unstable();
    assert_eq!(seen, (0..3000).collect::<Vec<_>>());
    let stats = pool.stats();
    assert_eq!((stats.deaths, stats.tasks.redelivered), (0, 0));
}

#[test]
fn sigterm_during_the_start_is_no_failed_start() {
    let gate = gate();
    let (running, open) = gate.clone();
    // The first start of its only worker: if that fails, a pool gives up.
    let pool = Pool::builder()
        .processes(1)
        .initializer(
            |gate: Gate| {
                pass(0, Some(gate));
            },
            gate,
        )
        .build()
        .unwrap();
    let call = pool.apply(square, 3);
    for _ in 0..5 {
        terminate(running.get().wait().unwrap());
    }
    running.get().wait().unwrap();
    open.set().wait().unwrap();
    assert_eq!(call.wait().unwrap(), 9);
}
