//! Tasks whose inputs are in some hosts.

use super::*;
use crate::run::Near;

const MEBIBYTE: u64 = 1 << 20;

/// A pool with two workers of one thread in each of the hosts 0 and 1. Worker n is in host n / 2.
fn two_hosts() -> (Scheduler<WorkerId, TestCaller>, Effects<WorkerId, TestCaller>) {
    let (mut scheduler, mut effects) = (Scheduler::new(), Effects::default());
    for id in 0..4 {
        scheduler.join(id, id, 1, None, Some(id / 2), &mut effects);
    }
    (scheduler, effects)
}

/// A call of one task that has inputs in a host.
fn begin(
    scheduler: &mut Scheduler<WorkerId, TestCaller>,
    call: CallId,
    near: Near,
    effects: &mut Effects<WorkerId, TestCaller>,
) {
    scheduler.begin(call, new_call(caller(call), 1, options()));
    scheduler.submit(Run::new(call, 0, 1, arguments(1)).with_near(near), effects);
    scheduler.finish_feeding(call, Some(1));
}

fn assigned(effects: &mut Effects<WorkerId, TestCaller>) -> Vec<(WorkerId, CallId)> {
    let assignments = std::mem::take(&mut effects.assignments);
    assignments.into_iter().map(|(worker, assignment)| (worker, assignment.call)).collect()
}

/// Lets the scheduler know that a task takes this long.
fn learn(scheduler: &mut Scheduler<WorkerId, TestCaller>, nanos: u64) {
    let mut effects = Effects::default();
    scheduler.begin(100, new_call(caller(100), 1, options()));
    scheduler.submit(Run::new(100, 0, 1, arguments(1)), &mut effects);
    scheduler.finish_feeding(100, Some(1));
    let worker = effects.assignments[0].0;
    let done = Results { busy: nanos, ..results(100, 0, 1, false) };
    scheduler.complete(worker, done, &mut effects);
}

#[test]
fn tasks_go_where_their_inputs_are_while_a_worker_is_free_there() {
    let (mut scheduler, mut effects) = two_hosts();
    for (call, host) in [(1, 1), (2, 0), (3, 0), (4, 1)] {
        begin(&mut scheduler, call, Near { host, bytes: MEBIBYTE }, &mut effects);
    }
    let hosts = assigned(&mut effects).into_iter().map(|(worker, call)| (call, worker / 2));
    assert_eq!(hosts.collect::<Vec<_>>(), [(1, 1), (2, 0), (3, 0), (4, 1)]);
    let counts = scheduler.counts;
    assert_eq!((counts.near_bytes, counts.near_bytes_at_home), (4 * MEBIBYTE, 4 * MEBIBYTE));
}

#[test]
fn tasks_wait_for_a_near_worker_for_as_long_as_their_inputs_would_travel() {
    for (bytes, waits) in [(8 * MEBIBYTE, true), (MEBIBYTE / 2, false)] {
        let (mut scheduler, mut effects) = two_hosts();
        learn(&mut scheduler, 4_000_000);
        for call in 1..=3 {
            begin(&mut scheduler, call, Near { host: 0, bytes }, &mut effects);
        }
        let mut workers: Vec<_> = assigned(&mut effects).into_iter().map(|(id, _)| id).collect();
        workers.sort_unstable();
        assert_eq!(workers.len(), if waits { 2 } else { 3 }, "{bytes} bytes");
        assert_eq!(scheduler.counts.near_bytes_at_home, 2 * bytes);
        assert_eq!(workers[..2], [0, 1]);
        if waits {
            // The near worker that is free first gets it.
            scheduler.complete(1, results(2, 0, 1, false), &mut effects);
            scheduler.complete(1, results(1, 0, 1, false), &mut effects);
            assert_eq!(assigned(&mut effects), [(1, 3)]);
        }
    }
}

#[test]
fn tasks_that_wait_for_a_near_worker_make_the_next_wait_longer() {
    let (mut scheduler, mut effects) = two_hosts();
    learn(&mut scheduler, 4_000_000);
    for call in 1..=6 {
        begin(&mut scheduler, call, Near { host: 0, bytes: 8 * MEBIBYTE }, &mut effects);
    }
    // Two run, and three wait: after 4, 6 and 8 ms. The inputs of the next travel in 8.4 ms.
    let moved: Vec<_> = assigned(&mut effects).into_iter().filter(|(id, _)| *id >= 2).collect();
    assert_eq!(moved.len(), 1, "{moved:?}");
}

#[test]
fn tasks_wait_no_longer_for_near_workers_whose_tasks_are_long() {
    let (mut scheduler, mut effects) = two_hosts();
    learn(&mut scheduler, 4_000_000);
    for call in 1..=3 {
        begin(&mut scheduler, call, Near { host: 0, bytes: 8 * MEBIBYTE }, &mut effects);
    }
    let busy = assigned(&mut effects);
    for (worker, call) in busy {
        let since = std::time::Instant::now();
        scheduler.note_long_running(worker, call, 0, since, &mut effects);
    }
    let moved = assigned(&mut effects);
    assert!(matches!(moved[..], [(2 | 3, 3)]), "{moved:?}");
}

#[test]
fn a_worker_looks_for_tasks_whose_inputs_are_near() {
    let (mut scheduler, mut effects) = (Scheduler::new(), Effects::default());
    // The inputs of the first ten are in host 0, those of the others in host 1.
    scheduler.begin(1, new_call(caller(1), 1, options()));
    for index in 0..20 {
        let near = Near { host: index / 10, bytes: MEBIBYTE };
        let run = Run::new(1, index, index + 1, arguments(1)).with_near(near);
        scheduler.submit(run, &mut effects);
    }
    for id in 0..4 {
        scheduler.join(id, id, 1, None, Some(id / 2), &mut effects);
    }
    let mut done = 0;
    while let Some((worker, assignment)) = effects.assignments.pop() {
        let first = assignment.first;
        assert_eq!(worker / 2, first / 10, "task {first}");
        scheduler.complete(worker, results(1, first, 1, false), &mut effects);
        done += 1;
    }
    assert_eq!(done, 20);
}
