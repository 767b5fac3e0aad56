//! Deaths of workers that held many tasks.

use std::collections::VecDeque;

use super::*;

type Task = (CallId, u64);

/// What became of the tasks of a scheduler.
#[derive(Debug, Default)]
struct Played {
    deaths: usize,
    messages: usize,
    done: u64,
    abandoned: Vec<Task>,
}

/// Submits `tasks` tasks to each of the calls, of which each fails after `max_deaths` deaths.
fn submitted(
    calls: std::ops::Range<CallId>,
    tasks: u64,
    max_deaths: u32,
) -> Scheduler<WorkerId, TestCaller> {
    let mut scheduler = Scheduler::new();
    for id in calls {
        scheduler.begin(id, new_call(caller(id), 1, CallOptions { max_deaths, ..options() }));
        scheduler.submit(Run::new(id, 0, tasks, arguments(tasks)), &mut Effects::default());
        scheduler.finish_feeding(id, Some(tasks));
    }
    scheduler
}

/// Completes all tasks, in one worker after the other: each dies at a message with a task that
/// `kills`.
fn play(
    mut scheduler: Scheduler<WorkerId, TestCaller>,
    threads: u64,
    kills: impl Fn(Task) -> bool,
) -> Played {
    let mut played = Played::default();
    while !scheduler.is_empty() {
        let worker = played.deaths as WorkerId;
        let mut effects = Effects::default();
        scheduler.join(worker, worker, threads, None, None, &mut effects);
        let mut messages = VecDeque::from(std::mem::take(&mut effects.assignments));
        assert!(!messages.is_empty(), "tasks are left, and a worker gets none");
        while let Some((_, tasks)) = messages.pop_front() {
            played.messages += 1;
            let (call, first, count) = (tasks.call, tasks.first, u64::from(tasks.count));
            let dies = (first..first + count).any(|index| kills((call, index)));
            if dies {
                scheduler.lost(worker, &ended(ExitReason::Signal(9)), &mut effects);
            } else {
                scheduler.complete(worker, results(call, first, count, false), &mut effects);
            }
            for (caller, completion) in effects.completions.drain(..) {
                match completion {
                    Completion::Abandoned { index, .. } => {
                        played.abandoned.push((caller.id, index));
                    }
                    Completion::Outcomes(run) | Completion::Away { outcome: run, .. } => {
                        played.done += run.len();
                    }
                }
            }
            if dies {
                break;
            }
            messages.extend(effects.assignments.drain(..));
        }
        played.deaths += 1;
    }
    played.deaths -= 1;
    played
}

#[test]
fn suspects_run_alone() {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    scheduler.begin(1, new_call(caller(1), 1, CallOptions { chunk: 10, ..options() }));
    scheduler.join(1, 1, 1, None, None, &mut effects);
    scheduler.submit(Run::new(1, 0, 10, arguments(10)), &mut effects);
    let mut effects = Effects::default();
    scheduler.lost(1, &ended(ExitReason::Signal(9)), &mut effects);
    assert!(effects.completions.is_empty());
    for index in 0..10 {
        let mut effects = Effects::default();
        if index == 0 {
            scheduler.join(2, 2, 1, None, None, &mut effects);
        } else {
            scheduler.complete(2, results(1, index - 1, 1, false), &mut effects);
        }
        assert_eq!(effects.assignments.len(), 1);
        assert_eq!((effects.assignments[0].1.first, effects.assignments[0].1.count), (index, 1));
    }
}

#[test]
fn one_of_thousands_of_suspects_is_found_by_few_deaths_and_messages() {
    let scheduler = submitted(1..2, 9000, 3);
    let played = play(scheduler, 1, |task| task == (1, 3210));
    assert_eq!((&*played.abandoned, played.done), (&[(1, 3210)][..], 8999));
    assert!(played.deaths <= 2 + 3, "{played:?}: three deaths count");
    assert!(played.messages < 300, "{played:?}");
}

#[test]
fn suspects_of_many_calls_run_in_parts() {
    let scheduler = submitted(1..3001, 1, 1);
    let played = play(scheduler, 1, |(call, _)| call == 777);
    assert_eq!((&*played.abandoned, played.done), (&[(777, 0)][..], 2999));
    assert!(played.deaths <= 3, "{played:?}");
}

#[test]
fn a_death_counts_against_no_part_of_several_suspects() {
    // Parts of two, in workers of two threads.
    let scheduler = submitted(1..2, 102, 1);
    let played = play(scheduler, 2, |(_, index)| index == 50);
    assert_eq!((&*played.abandoned, played.done), (&[(1, 50)][..], 101));
    assert_eq!(played.deaths, 3);
}

#[test]
fn tasks_that_a_worker_returns_stay_suspects() {
    let mut scheduler = submitted(1..2, 200, 3);
    let mut effects = Effects::default();
    scheduler.join(1, 1, 1, None, None, &mut effects);
    scheduler.complete(1, results(1, 0, 1, false), &mut effects);
    scheduler.lost(1, &ended(ExitReason::Signal(9)), &mut effects);
    let mut effects = Effects::default();
    scheduler.join(2, 2, 1, None, None, &mut effects);
    assert_eq!(assigned(&effects), [1, 2, 3, 4]);
    scheduler.returned(2, 1, 2, 1, &mut effects);
    let mut effects = Effects::default();
    scheduler.join(3, 3, 1, None, None, &mut effects);
    assert_eq!(assigned(&effects), [2, 5, 6, 7]);
}
