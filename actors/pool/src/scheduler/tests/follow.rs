//! Tasks that follow others in their worker.

use std::sync::Arc;

use fiber_values::codec::EncodedValue;
use fiber_values::{Argument, Output, OutputCell, PartsBuilder};

use super::*;

/// A call of one task, as the others of its function.
fn begin(scheduler: &mut Scheduler<WorkerId, TestCaller>, call: CallId) -> Run {
    scheduler.begin(call, new_call(caller(call), 1, options()));
    scheduler.finish_feeding(call, Some(1));
    Run::new(call, 0, 1, arguments(1))
}

/// Returns a scheduler whose worker has a task of call 3. A task of call 5 follows it, and takes
/// the value of `input`.
fn followed(input: Arc<OutputCell>) -> Scheduler<WorkerId, TestCaller> {
    let (mut scheduler, mut effects) = (Scheduler::new(), Effects::default());
    scheduler.join(1, 1, 1, None, None, &mut effects);
    let [first, before, _] = [1, 3, 5].map(|call| begin(&mut scheduler, call));
    let mut parts = PartsBuilder::default();
    Argument::<u64>::add(&Output::<u64>::of(input), &mut parts).unwrap();
    let run = Run::with_parts(5, 0, Bytes::new(), parts.build());
    scheduler.submit(first, &mut effects);
    assert_eq!(scheduler.follow(1, (1, 0), run.clone(), arguments(1)), None, "its time is unknown");
    scheduler.complete(1, results(1, 0, 1, false), &mut effects);
    assert_eq!(scheduler.follow(1, (1, 0), run.clone(), arguments(1)), None, "that one has ended");
    scheduler.submit(before, &mut effects);
    assert_eq!(scheduler.follow(2, (3, 0), run.clone(), arguments(1)), None, "it is elsewhere");
    let follower = scheduler.follow(1, (3, 0), run, arguments(1)).expect("it follows");
    assert_eq!((follower.call, follower.first, follower.count), (5, 0, 1));
    scheduler
}

/// Completes all tasks one after the other, those last that wait for an input. Returns their calls.
fn complete_all(
    scheduler: &mut Scheduler<WorkerId, TestCaller>,
    mut effects: Effects<WorkerId, TestCaller>,
) -> Vec<CallId> {
    let mut calls = Vec::new();
    loop {
        if let Some((worker, assignment)) = effects.assignments.pop() {
            calls.push(assignment.call);
            scheduler.complete(worker, results(assignment.call, 0, 1, false), &mut effects);
        } else if let Some((_, run)) = effects.held.pop() {
            scheduler.submit(Run::new(run.call, run.start, run.end, arguments(1)), &mut effects);
        } else {
            break;
        }
    }
    assert!(scheduler.is_empty(), "{calls:?}");
    calls.sort_unstable();
    calls
}

#[test]
fn a_task_that_follows_is_pending_as_any_other() {
    let (mut scheduler, mut effects) = (followed(OutputCell::pending()), Effects::default());
    scheduler.complete(1, results(3, 0, 1, false), &mut effects);
    scheduler.complete(1, results(5, 0, 1, false), &mut effects);
    assert_eq!(complete_all(&mut scheduler, effects), [0; 0]);
}

#[test]
fn a_task_that_follows_runs_again_when_its_worker_dies() {
    let (mut scheduler, mut effects) = (followed(OutputCell::pending()), Effects::default());
    scheduler.lost(1, &ended(ExitReason::Signal(9)), &mut effects);
    assert_eq!(effects.held.len(), 1, "it is no suspect");
    scheduler.join(2, 2, 1, None, None, &mut effects);
    assert_eq!(complete_all(&mut scheduler, effects), [3, 5]);
}

#[test]
fn the_call_of_a_task_that_comes_back_looks_at_its_input() {
    for is_there in [false, true] {
        let input = OutputCell::pending();
        let (mut scheduler, mut effects) = (followed(Arc::clone(&input)), Effects::default());
        scheduler.complete(1, results(3, 0, 1, false), &mut effects);
        if is_there {
            // It may be large, and in some host.
            input.fill(EncodedValue::new(&7_u64));
        }
        scheduler.returned(1, 5, 0, 1, &mut effects);
        assert_eq!((effects.held.len(), effects.assignments.len()), (1, 0), "{is_there}");
        assert_eq!(complete_all(&mut scheduler, effects), [5]);
    }
}

#[test]
fn a_worker_with_a_free_slot_gets_tasks_when_one_comes_back() {
    let (mut scheduler, mut effects) = (followed(OutputCell::pending()), Effects::default());
    let other = begin(&mut scheduler, 7);
    scheduler.waits(1, (3, 0), true, &mut effects);
    scheduler.submit(other, &mut effects);
    assert_eq!(assigned(&effects), [0; 0], "all slots are taken");
    scheduler.returned(1, 5, 0, 1, &mut effects);
    assert_eq!(effects.assignments.len(), 1);
    scheduler.complete(1, results(3, 0, 1, false), &mut effects);
    assert_eq!(complete_all(&mut scheduler, effects), [5, 7]);
}
