//! Single situations. The property test in [`model`] covers the sequences.

mod follow;
mod model;
mod near;
mod suspects;

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{Exit, ExitReason};
use fiber_values::Parts;
use fiber_values::blob::Blobs;

use super::super::batch::{Order, Release};
use super::super::buffer::Buffer;
use super::super::run::push_item;
use super::super::verdict::{Life, Lived, Verdict, judge};
use super::super::wire::{Assignment, ResultRun};
use super::*;

/// A caller that has submitted all its tasks.
#[derive(Clone, Debug)]
pub(crate) struct TestCaller {
    pub(crate) id: CallId,
    order: Order,
    buffer: Rc<Buffer>,
}

/// A caller that takes all outcomes together.
pub(crate) fn caller(id: CallId) -> TestCaller {
    TestCaller { id, order: Order::Together, buffer: Rc::new(Buffer::new(0, Release::Completed)) }
}

/// Returns a call of a function with this number.
pub(crate) fn new_call(
    caller: TestCaller,
    function: u64,
    options: CallOptions,
) -> Call<TestCaller> {
    let room = Room::new(caller.buffer.max_outcomes(), caller.order == Order::Tasks);
    let entry = EntryRef { offset: function, name: 0 };
    let durable = caller.id.is_multiple_of(2);
    let mut call = Call::new(caller, entry, options, room);
    call.durable = durable;
    call
}

/// Returns the encoded arguments of `count` tasks.
pub(crate) fn arguments(count: u64) -> Bytes {
    let mut bytes = Vec::new();
    (0..count).for_each(|task| push_item(&mut bytes, &task.to_le_bytes(), false));
    bytes.into()
}

/// Bytes of an outcome of [`results`].
const OUTCOME: u64 = 11;

/// Returns the message of a worker that has completed `count` tasks.
pub(crate) fn results(call: CallId, first: u64, count: u64, failed: bool) -> Results {
    let mut outcomes = Vec::new();
    (0..count).for_each(|_| push_item(&mut outcomes, b"outcome", failed));
    assert_eq!(outcomes.len() as u64, count * OUTCOME);
    let run = ResultRun { first, count: count as u32, length: outcomes.len() as u32 };
    Results {
        call,
        busy: 1000 * count,
        failed: if failed { count as u32 } else { 0 },
        thread: 0,
        runs: vec![run],
        outcomes: outcomes.into(),
        blobs: Blobs::default(),
    }
}

pub(crate) fn options() -> CallOptions {
    CallOptions {
        chunk: 1,
        timeout: None,
        retries: 0,
        max_deaths: 3,
        max_timeouts: 1,
        comes_first: false,
    }
}

/// Judges the end of a worker that had tasks.
pub(super) fn ended(reason: ExitReason) -> Verdict {
    judge(Exit::new(reason, Vec::new()), Life { lived: Lived::WithTask, ..Life::default() })
}

fn lost_host(reason: ExitReason) -> ExitReason {
    ExitReason::HostEnded { host: "pool-1/host-1".to_string(), reason: Box::new(reason) }
}

const LIMIT: Duration = Duration::from_secs(7);

/// Runs a task in workers that end for the reasons of `ends`, one after the other, until the task
/// is abandoned. Returns the number of workers.
fn workers_until_abandoned(options: CallOptions, ends: impl Fn(u64) -> ExitReason) -> u32 {
    let mut scheduler = Scheduler::new();
    scheduler.begin(1, new_call(caller(1), 1, options));
    scheduler.submit(Run::new(1, 0, 1, arguments(1)), &mut Effects::default());
    for worker in 0..100 {
        let mut effects = Effects::default();
        scheduler.join(worker, worker, 1, None, None, &mut effects);
        assert_eq!(effects.assignments.len(), 1, "the task runs again");
        let reason = ends(worker);
        let mut effects = Effects::default();
        if let ExitReason::TaskTimedOut(_) = reason {
            scheduler.overdue(worker, 1, 0, None, &mut effects);
        }
        scheduler.lost(worker, &ended(reason), &mut effects);
        if let Some((_, Completion::Abandoned { workers, .. })) = effects.completions.first() {
            return *workers;
        }
    }
    unreachable!("the task is never abandoned")
}

#[test]
fn timeouts_and_deaths_have_separate_limits() {
    let limited = |max_deaths, max_timeouts| CallOptions {
        timeout: Some(LIMIT),
        max_deaths,
        max_timeouts,
        ..options()
    };
    let timeout = |_| ExitReason::TaskTimedOut(LIMIT);
    let death = |_| ExitReason::Signal(9);
    let in_turn = |worker| if worker % 2 == 0 { death(worker) } else { timeout(worker) };
    assert_eq!(workers_until_abandoned(limited(3, 1), timeout), 1, "one timeout is enough");
    assert_eq!(workers_until_abandoned(limited(1, 4), timeout), 4, "a timeout is no death");
    assert_eq!(workers_until_abandoned(limited(3, 1), death), 3, "a death is no timeout");
    assert_eq!(
        workers_until_abandoned(limited(3, 3), in_turn),
        5,
        "death, timeout, death, timeout, death"
    );
    assert_eq!(
        workers_until_abandoned(limited(9, 2), in_turn),
        4,
        "death, timeout, death, timeout"
    );
}

#[test]
fn ends_from_outside_never_count_against_a_task() {
    let limited = CallOptions { max_deaths: 1, ..options() };
    let disrupted =
        |worker: u64| if worker == 90 { ExitReason::Signal(11) } else { ExitReason::Terminated };
    assert_eq!(workers_until_abandoned(limited, disrupted), 1, "only the crash counts");
}

#[test]
fn deaths_of_hosts_have_a_limit_of_their_own() {
    let limited = |max_deaths| CallOptions { max_deaths, ..options() };
    let killed = |_| lost_host(ExitReason::Signal(9));
    let out_of_memory = |_| lost_host(ExitReason::OutOfMemory);
    let in_turn = |worker| if worker % 2 == 0 { killed(worker) } else { ExitReason::Signal(9) };
    assert_eq!(workers_until_abandoned(limited(3), killed), 9);
    assert_eq!(workers_until_abandoned(limited(1), killed), 3);
    assert_eq!(workers_until_abandoned(limited(3), in_turn), 6, "its own three deaths abandon it");
    assert_eq!(workers_until_abandoned(limited(2), out_of_memory), 2, "it used up the memory");
}

#[test]
fn a_host_that_ends_with_all_its_workers_counts_once_against_a_task() {
    let mut scheduler = Scheduler::new();
    scheduler.begin(1, new_call(caller(1), 1, CallOptions { max_deaths: 1, ..options() }));
    scheduler.submit(Run::new(1, 0, 1, arguments(1)), &mut Effects::default());
    let mut effects = Effects::default();
    (0..8).for_each(|id| scheduler.join(id, id, 1, None, Some(5), &mut effects));
    assert_eq!(effects.assignments.len(), 1);
    let exit = ended(lost_host(ExitReason::Signal(9)));
    (0..8).for_each(|id| scheduler.lost(id, &exit, &mut effects));
    assert_eq!((scheduler.workers(), scheduler.idle()), (0, 0));
    assert_eq!(effects.assignments.len(), 1, "its neighbours are lost, too");
    assert!(effects.completions.is_empty() && effects.retired.is_empty());
    scheduler.join(8, 8, 1, None, Some(6), &mut effects);
    assert_eq!(effects.assignments.len(), 2);
}

#[test]
fn a_worker_that_sigterm_asks_to_end_is_retired_and_replaced() {
    let mut scheduler = Scheduler::new();
    scheduler.begin(1, new_call(caller(1), 1, options()));
    scheduler.join(1, 1, 2, None, None, &mut Effects::default());
    scheduler.submit(Run::new(1, 0, 2, arguments(2)), &mut Effects::default());
    let mut effects = Effects::default();
    scheduler.drain(1, Retirement::Terminating, &mut effects);
    assert!(effects.retired.is_empty(), "it runs two tasks");
    scheduler.returned(1, 1, 1, 1, &mut effects);
    assert!(effects.assignments.is_empty(), "it gets no task back");
    // The pool may be scaled down meanwhile. Then another worker goes, and this one is replaced.
    assert!(scheduler.retire_some(1, &mut effects).is_empty());
    scheduler.complete(1, results(1, 0, 1, false), &mut effects);
    assert_eq!(effects.retired, [(1, false)]);
    assert_eq!(scheduler.idle(), 0);
}

#[test]
fn a_task_that_fails_in_a_worker_that_takes_no_more_runs_again_in_an_idle_one() {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    let retried = CallOptions { retries: 1, ..options() };
    scheduler.begin(1, new_call(caller(1), 1, retried));
    scheduler.join(1, 1, 1, None, None, &mut effects);
    scheduler.submit(Run::new(1, 0, 1, arguments(1)), &mut effects);
    assert_eq!(scheduler.retire_some(1, &mut effects), [1]);
    scheduler.join(2, 2, 1, None, None, &mut effects);
    let mut effects = Effects::default();
    scheduler.complete(1, results(1, 0, 1, true), &mut effects);
    let workers: Vec<_> = effects.assignments.iter().map(|(worker, _)| *worker).collect();
    assert_eq!(workers, [2]);
}

#[test]
fn a_pool_that_shrinks_gives_up_whole_hosts() {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    scheduler.begin(1, new_call(caller(1), 1, options()));
    // Workers 1 to 4 are in host 0, 5 to 7 in host 1, 8 and 9 in host 2.
    let host = |worker: &u64| Some(if *worker < 5 { 0 } else { worker / 8 + 1 });
    (1..=9).for_each(|id| scheduler.join(id, id, 1, None, host(&id), &mut effects));
    scheduler.submit(Run::new(1, 0, 8, arguments(8)), &mut effects);
    let busy: Vec<_> = effects.assignments.iter().map(|(worker, _)| *worker).collect();
    let is_idle = |worker: &u64| !busy.contains(worker);
    assert!(scheduler.retire_some(0, &mut effects).is_empty());
    let first = scheduler.retire_some(3, &mut effects);
    let hosts: Vec<_> = first.iter().filter_map(host).collect();
    assert_eq!(hosts, [2, 2, 1]);
    assert_eq!(scheduler.workers(), 6);
    let rest = scheduler.retire_some(100, &mut effects);
    assert_eq!((rest.len(), scheduler.workers()), (6, 0));
    assert!(rest[..2].iter().all(|worker| host(worker) == Some(1)), "it has lost a worker");
    let idle = [&first[..2], &first[2..], &rest[2..]].map(|some| some.iter().position(is_idle));
    assert!(idle.iter().all(|place| place.is_none_or(|place| place == 0)), "idle ones go first");
    scheduler.lost(8, &ended(ExitReason::Shutdown), &mut effects);
    assert_eq!(scheduler.workers(), 0, "it was not counted any more");
}

#[test]
fn all_tasks_of_a_worker_that_time_out_together_fail() {
    let mut scheduler = Scheduler::new();
    scheduler.begin(1, new_call(caller(1), 1, CallOptions { timeout: Some(LIMIT), ..options() }));
    scheduler.join(1, 1, 2, None, None, &mut Effects::default());
    let mut effects = Effects::default();
    scheduler.submit(Run::new(1, 0, 2, arguments(2)), &mut effects);
    scheduler.overdue(1, 1, 0, None, &mut effects);
    scheduler.overdue(1, 1, 1, None, &mut effects);
    scheduler.lost(1, &ended(ExitReason::TaskTimedOut(LIMIT)), &mut effects);
    assert_eq!(effects.completions.len(), 2);
}

#[test]
fn each_thread_gets_one_long_task() {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    scheduler.begin(1, new_call(caller(1), 1, options()));
    scheduler.join(1, 1, 2, None, None, &mut effects);
    scheduler.submit(Run::new(1, 0, 100, arguments(100)), &mut effects);
    let count = |effects: &Effects<_, _>| {
        effects.assignments.iter().map(|(_, a): &(u64, Assignment)| a.count).sum::<u32>()
    };
    assert_eq!(count(&effects), 2, "the time of a task is not known yet");
    let mut effects = Effects::default();
    let slow = Results { busy: 10_000_000, ..results(1, 0, 1, false) };
    scheduler.complete(1, slow, &mut effects);
    assert_eq!(count(&effects), 1, "a task of 10 ms exceeds the pending time of a thread");
}

#[test]
fn calls_share_a_worker_by_the_time_of_their_tasks() {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    for call in [1, 2] {
        scheduler.begin(call, new_call(caller(call), call, options()));
        scheduler.submit(Run::new(call, 0, 1000, arguments(1000)), &mut effects);
    }
    scheduler.join(1, 1, 1, None, None, &mut effects);
    let (mut assigned, mut nanos) = (effects.assignments, [0u64; 2]);
    for _ in 0..200 {
        let (_, assignment) = assigned.remove(0);
        // Tasks of the second call take ten times as long.
        let busy =
            if assignment.call == 1 { 1_000_000 } else { 10_000_000 } * u64::from(assignment.count);
        nanos[assignment.call as usize - 1] += busy;
        let mut effects = Effects::default();
        let done = results(assignment.call, assignment.first, u64::from(assignment.count), false);
        scheduler.complete(1, Results { busy, ..done }, &mut effects);
        assigned.extend(effects.assignments);
    }
    let ratio = nanos[0] as f64 / nanos[1] as f64;
    assert!((0.8..1.25).contains(&ratio), "{nanos:?}");
}

#[test]
fn tasks_of_a_call_that_comes_first_overtake_those_that_wait() {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    let first = CallOptions { comes_first: true, ..options() };
    for (id, options) in [(1, options()), (2, options()), (3, first)] {
        scheduler.begin(id, new_call(caller(id), id, options));
        let tasks = if id == 3 { 1 } else { 1000 };
        scheduler.submit(Run::new(id, 0, tasks, arguments(tasks)), &mut effects);
    }
    scheduler.join(1, 1, 1, None, None, &mut effects);
    let (mut assigned, mut next) = (effects.assignments, 1);
    for _ in 0..100 {
        let (_, assignment) = assigned.remove(0);
        if assignment.call == 3 {
            scheduler.submit(Run::new(3, next, next + 1, arguments(1)), &mut Effects::default());
            next += 1;
        }
        let mut effects = Effects::default();
        let done = results(assignment.call, assignment.first, u64::from(assignment.count), false);
        scheduler.complete(1, Results { busy: 10_000_000, ..done }, &mut effects);
        assigned.extend(effects.assignments);
    }
    // One waits behind the one task that the worker has already.
    assert!(next > 40, "{next} of 100 tasks are of the call that comes first");
}

#[test]
fn a_worker_that_returned_all_its_tasks_gets_tasks_again() {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    scheduler.begin(1, new_call(caller(1), 1, options()));
    scheduler.submit(Run::new(1, 0, 10, arguments(10)), &mut effects);
    scheduler.join(7, 7, 1, None, None, &mut effects);
    scheduler.complete(7, Results { busy: 1_500_000, ..results(1, 0, 1, false) }, &mut effects);
    scheduler.complete(7, Results { busy: 5_000_000, ..results(1, 1, 1, false) }, &mut effects);
    let mut effects = Effects::default();
    scheduler.returned(7, 1, 2, 1, &mut effects);
    assert_eq!(scheduler.idle(), 0);
    assert!(!effects.assignments.is_empty());
}

/// Returns a call whose caller takes outcomes in the order of its tasks and has room for four, and
/// the effects of the first outcome of its only worker.
fn full_buffer() -> (Scheduler<WorkerId, TestCaller>, TestCaller, Effects<WorkerId, TestCaller>) {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    let caller = TestCaller {
        order: Order::Tasks,
        buffer: Rc::new(Buffer::new(8 * OUTCOME, Release::Taken)),
        ..caller(1)
    };
    scheduler.begin(1, new_call(caller.clone(), 1, options()));
    scheduler.submit(Run::new(1, 0, 100, arguments(100)), &mut effects);
    scheduler.join(1, 1, 1, None, None, &mut effects);
    let mut effects = Effects::default();
    scheduler.complete(1, Results { busy: 1, ..results(1, 0, 1, false) }, &mut effects);
    (scheduler, caller, effects)
}

pub(super) fn assigned(effects: &Effects<WorkerId, TestCaller>) -> Vec<u64> {
    let range = |(_, a): &(WorkerId, Assignment)| a.first..a.first + u64::from(a.count);
    effects.assignments.iter().flat_map(range).collect()
}

#[test]
fn no_task_is_handed_out_without_room_for_its_outcome() {
    let (mut scheduler, caller, effects) = full_buffer();
    assert_eq!(assigned(&effects), [1, 2, 3], "one of four outcomes has arrived");
    assert_eq!(effects.throttled.len(), 1);
    assert!(!caller.buffer.throttle(effects.throttled[0].1), "nothing has been taken");
    let mut effects = Effects::default();
    scheduler.complete(1, results(1, 1, 3, false), &mut effects);
    assert!(assigned(&effects).is_empty());
    assert!(effects.throttled.is_empty(), "the caller was asked before");
    assert!(caller.buffer.free_outcomes(2, 2 * OUTCOME, 2), "the call is throttled");
    let mut effects = Effects::default();
    scheduler.report(1, caller.buffer.report(), &mut effects);
    assert_eq!(assigned(&effects), [4, 5]);
    assert_eq!(effects.throttled.len(), 1);
}

/// Completes all tasks that are assigned, one after the other, and returns how many there were.
fn complete_all(
    scheduler: &mut Scheduler<WorkerId, TestCaller>,
    mut effects: Effects<WorkerId, TestCaller>,
) -> usize {
    let mut tasks = VecDeque::from(assigned(&effects));
    let mut count = 0;
    while let Some(task) = tasks.pop_front() {
        effects = Effects::default();
        scheduler.complete(1, results(1, task, 1, false), &mut effects);
        tasks.extend(assigned(&effects));
        count += 1;
    }
    count
}

#[test]
fn a_call_goes_on_without_memory_when_its_caller_takes_outcomes_at_once() {
    let (mut scheduler, mut effects) = (Scheduler::new(), Effects::default());
    scheduler.set_memory(0, 1000);
    scheduler.begin(1, new_call(caller(1), 1, options()));
    scheduler.submit(Run::new(1, 0, 100, arguments(100)), &mut effects);
    scheduler.join(1, 1, 1, None, None, &mut effects);
    let before = complete_all(&mut scheduler, effects);
    assert!(before < 100, "there is room for a few");
    let mut effects = Effects::default();
    scheduler.takes_at_once(1, &mut effects);
    assert_eq!(before + complete_all(&mut scheduler, effects), 100);
}

#[test]
fn the_task_that_the_caller_waits_for_ignores_a_full_buffer() {
    let (mut scheduler, caller, _) = full_buffer();
    assert!(!caller.buffer.free_outcomes(1, OUTCOME, 1) && caller.buffer.throttle(0));
    let mut effects = Effects::default();
    scheduler.report(1, caller.buffer.report(), &mut effects);
    // The outcomes after task 1 fill the buffer, and the worker of task 1 dies.
    let mut effects = Effects::default();
    scheduler.complete(1, results(1, 2, 2, false), &mut effects);
    caller.buffer.add_outcomes(0, 10 * OUTCOME);
    let mut effects = Effects::default();
    scheduler.report(1, caller.buffer.report(), &mut effects);
    scheduler.lost(1, &ended(ExitReason::Shutdown), &mut effects);
    scheduler.join(2, 2, 1, None, None, &mut effects);
    assert_eq!(assigned(&effects), [1]);
}

#[test]
fn tasks_return_when_outcomes_are_larger_than_expected() {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    let caller = TestCaller {
        order: Order::Arrival,
        buffer: Rc::new(Buffer::new(1000, Release::Taken)),
        ..caller(1)
    };
    scheduler.begin(1, new_call(caller.clone(), 1, options()));
    scheduler.submit(Run::new(1, 0, 100, arguments(100)), &mut effects);
    scheduler.join(1, 1, 1, None, None, &mut effects);
    scheduler.complete(1, Results { busy: 1, ..results(1, 0, 1, false) }, &mut Effects::default());
    let mut outcome = Vec::new();
    push_item(&mut outcome, &[0; 600], false);
    let run = ResultRun { first: 1, count: 1, length: outcome.len() as u32 };
    let large = Results {
        call: 1,
        busy: 1,
        failed: 0,
        thread: 0,
        runs: vec![run],
        outcomes: outcome.into(),
        blobs: Blobs::default(),
    };
    let mut effects = Effects::default();
    scheduler.complete(1, large, &mut effects);
    assert_eq!(effects.recalls, [(1, 1)]);
    assert!(assigned(&effects).is_empty());
}

#[test]
fn a_call_lasts_until_its_last_task_has_come() {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    scheduler.begin(1, new_call(caller(1), 1, options()));
    scheduler.join(1, 1, 1, None, None, &mut effects);
    assert_eq!(effects.wanted.len(), 1, "the caller may have tasks");
    // The feeder finds no more tasks, while another thread submits those that it had prepared.
    scheduler.finish_feeding(1, Some(1));
    assert!(!scheduler.is_empty());
    let mut effects = Effects::default();
    scheduler.submit(Run::new(1, 0, 1, arguments(1)), &mut effects);
    assert_eq!(assigned(&effects), [0]);
    let mut effects = Effects::default();
    scheduler.complete(1, results(1, 0, 1, false), &mut effects);
    assert!(scheduler.is_empty() && effects.wanted.is_empty());
    scheduler.begin(2, new_call(caller(2), 1, options()));
    scheduler.finish_feeding(2, None);
    assert!(scheduler.is_empty(), "a call that has stopped waits for no task");
}

#[test]
fn tasks_that_take_values_come_first_when_memory_is_scarce() {
    let taker = |index| Run::with_parts(2, index, Bytes::new(), Parts::default());
    let next_call = |room| {
        let mut scheduler = Scheduler::new();
        let mut effects = Effects::default();
        scheduler.begin(2, new_call(caller(2), 1, options()));
        scheduler.join(1, 1, 1, None, None, &mut effects);
        scheduler.submit(taker(0), &mut effects);
        scheduler.complete(1, results(2, 0, 1, false), &mut effects);
        // The other call has received less time.
        scheduler.begin(1, new_call(caller(1), 2, options()));
        scheduler.submit(Run::new(1, 0, 3, arguments(3)), &mut effects);
        scheduler.submit(taker(1), &mut effects);
        scheduler.set_memory(room, 100);
        let mut effects = Effects::default();
        scheduler.complete(1, results(1, 0, 1, false), &mut effects);
        effects.assignments.first().map(|(_, assignment)| assignment.call)
    };
    assert_eq!(next_call(60), Some(1));
    assert_eq!(next_call(40), Some(2));
}
