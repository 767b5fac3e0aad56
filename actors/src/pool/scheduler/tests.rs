//! The scheduler against a simple model: a table that says of each task where it is.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use fiber_core::entry::EntryRef;
use fiber_core::{Exit, ExitReason};
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::buffer::Buffer;
use super::super::exchange::{Order, Release};
use super::super::run::{Items, push_item};
use super::super::wire::Piece;
use super::*;

/// A caller that has submitted all that it has.
#[derive(Clone, Debug)]
struct Nobody {
    id: CallId,
    order: Order,
    buffer: Rc<Buffer>,
}

/// A caller that takes all outcomes together.
fn nobody(id: CallId) -> Nobody {
    Nobody { id, order: Order::Together, buffer: Rc::new(Buffer::new(0, Release::Settled)) }
}

impl Caller for Nobody {
    fn more(&self) -> Option<Run> {
        None
    }

    fn paced(&self, _: u64) {}

    fn stored(&self, tasks: u64, bytes: u64) {
        self.buffer.store_outcomes(tasks, bytes);
    }

    fn room(&self, pending: u64, least: u64) -> u64 {
        self.buffer.room(pending, least)
    }

    fn withhold(&self) {
        self.buffer.withhold();
    }

    fn overflows(&self, pending: u64, least: u64) -> bool {
        self.buffer.overflows(pending, least)
    }

    fn needs(&self) -> Option<u64> {
        (self.order == Order::Tasks).then(|| self.buffer.next())
    }
}

/// What may happen to a pool. Numbers choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    Begin {
        chunk: u32,
        deaths: u32,
        timeouts: u32,
        retries: u32,
        order: Order,
    },
    Submit {
        call: usize,
        tasks: u64,
    },
    Join {
        threads: u64,
        quota: Option<u64>,
    },
    Complete {
        worker: usize,
        first: usize,
        tasks: usize,
        failed: bool,
    },
    /// What a worker that is gone, or has said it before, says.
    Stale {
        worker: u64,
        call: u64,
        first: u64,
    },
    Return {
        worker: usize,
        tasks: usize,
    },
    Lose {
        worker: usize,
        planned: bool,
    },
    /// A task runs past its timeout, for which its worker is killed.
    TimeOut {
        worker: usize,
        task: usize,
    },
    /// The caller takes what it can of its next outcomes.
    Take {
        call: usize,
        tasks: usize,
    },
    Cancel {
        call: usize,
    },
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1u32..5, 1u32..4, 1u32..3, 0u32..2, order()).prop_map(|(chunk, deaths, timeouts, retries, order)| {
            Step::Begin { chunk, deaths, timeouts, retries, order }
        }),
        4 => (any::<usize>(), 1u64..30).prop_map(|(call, tasks)| Step::Submit { call, tasks }),
        2 => (1u64..4, proptest::option::of(1u64..20)).prop_map(|(threads, quota)| Step::Join { threads, quota }),
        8 => (any::<usize>(), any::<usize>(), 1usize..8, proptest::bool::weighted(0.2))
            .prop_map(|(worker, first, tasks, failed)| Step::Complete { worker, first, tasks, failed }),
        1 => (0u64..20, 0u64..4, 0u64..60).prop_map(|(worker, call, first)| Step::Stale { worker, call, first }),
        1 => (any::<usize>(), 1usize..5).prop_map(|(worker, tasks)| Step::Return { worker, tasks }),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(worker, planned)| Step::Lose { worker, planned }),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(worker, task)| Step::TimeOut { worker, task }),
        3 => (any::<usize>(), 1usize..8).prop_map(|(call, tasks)| Step::Take { call, tasks }),
        1 => any::<usize>().prop_map(|call| Step::Cancel { call }),
        1 => Just(Step::Drain),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Together), Just(Order::Tasks), Just(Order::Arrival)]
}

type Task = (CallId, u64);

/// The model.
#[derive(Default)]
struct Model {
    calls: BTreeMap<CallId, Terms>,
    callers: BTreeMap<CallId, Nobody>,
    /// Outcomes that have arrived and have not been taken: index and end of their tasks, and bytes.
    untaken: BTreeMap<CallId, Vec<(u64, u64, u64)>>,
    submitted: BTreeMap<CallId, u64>,
    /// Tasks that each worker holds, in the order in which it got them.
    workers: BTreeMap<WorkerId, Vec<Task>>,
    threads: BTreeMap<WorkerId, u64>,
    settled: BTreeSet<Task>,
    certain_deaths: BTreeMap<Task, u32>,
    timeouts: BTreeMap<Task, u32>,
    /// Workers that take tasks without end.
    lasting: BTreeSet<WorkerId>,
    next_worker: WorkerId,
    next_call: CallId,
}

struct Table {
    scheduler: Scheduler<WorkerId, Nobody>,
    model: Model,
}

fn arguments(count: u64) -> Bytes {
    let mut bytes = Vec::new();
    (0..count).for_each(|task| push_item(&mut bytes, &task.to_le_bytes(), false));
    bytes.into()
}

/// Bytes of an outcome.
const OUTCOME: u64 = 11;

fn results(call: CallId, first: u64, count: u64, failed: bool) -> Results {
    let mut outcomes = Vec::new();
    (0..count).for_each(|_| push_item(&mut outcomes, b"outcome", failed));
    assert_eq!(outcomes.len() as u64, count * OUTCOME);
    let piece = Piece { first, count: count as u32, length: outcomes.len() as u32 };
    Results { call, busy: 1000 * count, pieces: vec![piece], outcomes: outcomes.into() }
}

impl Table {
    fn new() -> Table {
        Table { scheduler: Scheduler::new(), model: Model { next_call: 1, ..Model::default() } }
    }

    fn pick<K: Copy, V>(map: &BTreeMap<K, V>, choice: usize) -> Option<K> {
        map.keys().nth(choice.checked_rem(map.len())?).copied()
    }

    fn take(&mut self, step: Step) {
        let mut effects = Effects::default();
        match step {
            Step::Begin { chunk, deaths, timeouts, retries, order } => {
                let id = self.model.next_call;
                self.model.next_call += 1;
                let terms = Terms { chunk, timeout: Some(LIMIT), retries, deaths, timeouts };
                // Room for two outcomes of those that follow each other.
                let release =
                    if order == Order::Together { Release::Settled } else { Release::Taken };
                let caller =
                    Nobody { id, order, buffer: Rc::new(Buffer::new(4 * OUTCOME, release)) };
                self.scheduler.begin(id, caller.clone(), EntryRef { offset: id, name: 0 }, terms);
                self.model.calls.insert(id, terms);
                self.model.callers.insert(id, caller);
                self.model.submitted.insert(id, 0);
            }
            Step::Submit { call, tasks } => {
                let Some(call) = Table::pick(&self.model.calls, call) else { return };
                let first = self.model.submitted[&call];
                self.model.submitted.insert(call, first + tasks);
                self.scheduler
                    .submit(Run::new(call, first, first + tasks, arguments(tasks)), &mut effects);
            }
            Step::Join { threads, quota } => {
                let id = self.model.next_worker;
                self.model.next_worker += 1;
                self.model.workers.insert(id, Vec::new());
                self.model.threads.insert(id, threads);
                if quota.is_none() {
                    self.model.lasting.insert(id);
                }
                self.scheduler.join(id, id, threads, quota, &mut effects);
            }
            Step::Complete { worker, first, tasks, failed } => {
                let Some(worker) = Table::pick(&self.model.workers, worker) else { return };
                let held = self.model.workers.get_mut(&worker).expect("it was just picked");
                let Some(first) = first.checked_rem(held.len()) else { return };
                // Tasks that follow each other, as an executor would tell of them.
                let (call, start) = held[first];
                let run = held[first..]
                    .iter()
                    .take(tasks)
                    .zip(start..)
                    .take_while(|(task, index)| **task == (call, *index));
                let count = run.count();
                let done: Vec<_> = held.drain(first..first + count).collect();
                self.scheduler.complete(
                    worker,
                    results(call, start, count as u64, failed),
                    &mut effects,
                );
                let known = self.model.calls.contains_key(&call);
                let retried =
                    failed && self.model.calls.get(&call).is_some_and(|terms| terms.retries > 0);
                if known && !retried {
                    assert_eq!(
                        count_settled(&effects),
                        done.len() as u64,
                        "what was held is settled"
                    );
                }
            }
            Step::Stale { worker, call, first } => {
                let held = self.model.workers.get(&worker);
                if held.is_some_and(|held| held.contains(&(call, first))) {
                    return;
                }
                self.scheduler.complete(worker, results(call, first, 1, false), &mut effects);
                assert_eq!(count_settled(&effects), 0, "only who holds a task can settle it");
            }
            Step::Return { worker, tasks } => {
                let Some(worker) = Table::pick(&self.model.workers, worker) else { return };
                let held = self.model.workers.get_mut(&worker).expect("it was just picked");
                let Some(&(call, last)) = held.last() else { return };
                let run = held.iter().rev().take(tasks).zip((0..=last).rev());
                let count = run.take_while(|(task, index)| **task == (call, *index)).count();
                held.truncate(held.len() - count);
                self.scheduler.returned(
                    worker,
                    call,
                    last + 1 - count as u64,
                    count as u64,
                    &mut effects,
                );
            }
            Step::Lose { worker, planned } => {
                let Some(worker) = Table::pick(&self.model.workers, worker) else { return };
                let held = self.model.workers.remove(&worker).expect("it was just picked");
                self.model.lasting.remove(&worker);
                let certain = !planned && held.len() as u64 <= self.model.threads[&worker];
                if certain {
                    held.iter()
                        .for_each(|task| *self.model.certain_deaths.entry(*task).or_default() += 1);
                }
                let reason =
                    if planned { ExitReason::TaskCancelled } else { ExitReason::Signal(9) };
                self.scheduler.lost(worker, &Exit::new(reason, Vec::new()), &mut effects);
            }
            Step::TimeOut { worker, task } => {
                let Some(worker) = Table::pick(&self.model.workers, worker) else { return };
                let held = &self.model.workers[&worker];
                let Some(&task) = task.checked_rem(held.len()).and_then(|task| held.get(task))
                else {
                    return;
                };
                if !self.model.calls.contains_key(&task.0) {
                    return;
                }
                self.scheduler.overdue(worker, task.0, task.1, &mut effects);
                let killed = std::mem::take(&mut effects.kills);
                assert_eq!(killed, [(worker, ExitReason::TaskTimedOut(LIMIT))]);
                self.model.workers.remove(&worker);
                self.model.lasting.remove(&worker);
                *self.model.timeouts.entry(task).or_default() += 1;
                self.scheduler.lost(
                    worker,
                    &Exit::new(ExitReason::TaskTimedOut(LIMIT), Vec::new()),
                    &mut effects,
                );
            }
            Step::Take { call, tasks } => {
                let Some(call) = Table::pick(&self.model.calls, call) else { return };
                for _ in 0..tasks {
                    self.take_outcome(call, &mut effects);
                }
            }
            Step::Cancel { call } => {
                let Some(call) = Table::pick(&self.model.calls, call) else { return };
                self.model.calls.remove(&call);
                let told = self.scheduler.cancel(call);
                let holders = self
                    .model
                    .workers
                    .iter()
                    .filter(|(_, held)| held.iter().any(|task| task.0 == call));
                let holders: BTreeSet<_> = holders.map(|(worker, _)| *worker).collect();
                assert_eq!(
                    told.into_iter().collect::<BTreeSet<_>>(),
                    holders,
                    "who holds tasks of it is told"
                );
            }
            Step::Drain => {
                if let Some(drained) = self.scheduler.drain_one(&mut effects) {
                    self.model.lasting.remove(&drained);
                }
            }
        }
        self.apply(effects);
    }

    /// The caller of a call takes one outcome, if there is one for it.
    fn take_outcome(&mut self, call: CallId, effects: &mut Effects<WorkerId, Nobody>) -> bool {
        let (caller, untaken) =
            (&self.model.callers[&call], self.model.untaken.entry(call).or_default());
        let in_turn = |(start, ..): &(u64, u64, u64)| {
            caller.order != Order::Tasks || *start == caller.buffer.next()
        };
        let Some(place) = untaken.iter().position(in_turn) else { return false };
        let (start, end, bytes) = untaken.remove(place);
        if caller.buffer.free_outcomes(end - start, bytes, end) {
            self.scheduler.resume(call, effects);
        }
        true
    }

    fn apply(&mut self, effects: Effects<WorkerId, Nobody>) {
        for (Nobody { id: caller, .. }, settled) in effects.settled {
            let (start, end, bytes) = match &settled {
                Settled::Outcomes(run) => (run.start, run.end, run.size() as u64),
                Settled::Abandoned { index, .. } => (*index, *index + 1, 0),
            };
            self.model.untaken.entry(caller).or_default().push((start, end, bytes));
            let tasks: Vec<_> = match settled {
                Settled::Outcomes(run) => {
                    assert!(
                        Items::new(&run.arguments()).count() as u64 >= run.len(),
                        "each task has an outcome"
                    );
                    (run.start..run.end).collect()
                }
                Settled::Abandoned { index, workers, .. } => {
                    let terms = self.model.calls[&caller];
                    let of = |counts: &BTreeMap<Task, u32>| {
                        counts.get(&(caller, index)).copied().unwrap_or(0)
                    };
                    let (deaths, timeouts) =
                        (of(&self.model.certain_deaths), of(&self.model.timeouts));
                    assert!(deaths + timeouts >= workers, "only certain deaths and timeouts count");
                    assert!(
                        deaths >= terms.deaths || timeouts >= terms.timeouts,
                        "each has a count of its own"
                    );
                    vec![index]
                }
            };
            for index in tasks {
                assert!(
                    self.model.calls.contains_key(&caller),
                    "nothing of a cancelled call is settled"
                );
                assert!(
                    self.model.settled.insert((caller, index)),
                    "task {index} of call {caller} was settled twice"
                );
            }
        }
        for (worker, assignment) in effects.assignments {
            let held =
                self.model.workers.get_mut(&worker).expect("only workers that live get tasks");
            let end = assignment.first + u64::from(assignment.count);
            assert!(Items::new(&assignment.arguments).count() >= assignment.count as usize);
            let first = Items::new(&assignment.arguments).next().expect("there is one").0;
            assert_eq!(first.len(), 8);
            held.extend((assignment.first..end).map(|index| (assignment.call, index)));
        }
        for (worker, _) in effects.retired {
            assert!(
                self.model.workers[&worker].is_empty(),
                "a worker ends when it has done what it holds"
            );
        }
        let mut seen = BTreeSet::new();
        for task in self.model.workers.values().flatten() {
            assert!(seen.insert(*task), "{task:?} is at two workers");
            assert!(!self.model.settled.contains(task), "{task:?} is settled and runs again");
        }
    }

    /// Whether all that was submitted, and not cancelled, is settled.
    fn unsettled(&self) -> Option<Task> {
        let all =
            self.model.submitted.iter().filter(|(call, _)| self.model.calls.contains_key(call));
        let mut all = all.flat_map(|(call, count)| (0..*count).map(|index| (*call, index)));
        all.find(|task| !self.model.settled.contains(task))
    }

    /// The workers do what they are given, and callers take what comes, until there is nothing
    /// more.
    fn work(&mut self) {
        loop {
            if let Some(busy) = self.model.workers.values().position(|held| !held.is_empty()) {
                self.take(Step::Complete { worker: busy, first: 0, tasks: 1000, failed: false });
                continue;
            }
            let mut effects = Effects::default();
            let calls: Vec<_> = self.model.calls.keys().copied().collect();
            let taken =
                calls.into_iter().filter(|call| self.take_outcome(*call, &mut effects)).count();
            self.apply(effects);
            if taken == 0 {
                return;
            }
        }
    }

    /// All that was submitted is done: by the workers that there are, if one takes tasks without
    /// end, else by a new one.
    fn finish(&mut self) {
        self.work();
        if !self.model.lasting.is_empty() {
            assert_eq!(
                self.unsettled(),
                None,
                "a task was forgotten, although a worker has nothing to do"
            );
        }
        for worker in self.model.workers.keys().copied().collect::<Vec<_>>() {
            let position =
                self.model.workers.keys().position(|id| *id == worker).expect("it is still there");
            self.take(Step::Lose { worker: position, planned: true });
        }
        self.take(Step::Join { threads: 2, quota: None });
        self.work();
        assert_eq!(self.unsettled(), None, "a task was lost");
        assert_eq!(self.scheduler.open(), 0);
        assert_eq!(self.scheduler.idle(), 1);
    }
}

fn count_settled(effects: &Effects<WorkerId, Nobody>) -> u64 {
    let count =
        |settled: &Settled| if let Settled::Outcomes(run) = settled { run.len() } else { 1 };
    effects.settled.iter().map(|(_, settled)| count(settled)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_task_is_settled_once_whatever_happens(steps in vec(step(), 1..120)) {
        let mut table = Table::new();
        for step in steps {
            table.take(step);
        }
        table.finish();
    }
}

fn terms() -> Terms {
    Terms { chunk: 1, timeout: None, retries: 0, deaths: 3, timeouts: 1 }
}

const LIMIT: Duration = Duration::from_secs(7);

/// Hands the first task of `terms` to workers that end as `ends` says, one after the other, until
/// it is abandoned. Returns how many it cost.
fn workers_until_abandoned(terms: Terms, ends: impl Fn(u64) -> ExitReason) -> u32 {
    let mut scheduler = Scheduler::new();
    scheduler.begin(1, nobody(1), EntryRef { offset: 1, name: 0 }, terms);
    scheduler.submit(Run::new(1, 0, 1, arguments(1)), &mut Effects::default());
    for worker in 0..100 {
        let mut effects = Effects::default();
        scheduler.join(worker, worker, 1, None, &mut effects);
        assert_eq!(effects.assignments.len(), 1, "the task runs again");
        let reason = ends(worker);
        let mut effects = Effects::default();
        if let ExitReason::TaskTimedOut(_) = reason {
            scheduler.overdue(worker, 1, 0, &mut effects);
        }
        scheduler.lost(worker, &Exit::new(reason, Vec::new()), &mut effects);
        if let Some((_, Settled::Abandoned { workers, .. })) = effects.settled.first() {
            return *workers;
        }
    }
    unreachable!("it is never abandoned")
}

#[test]
fn timeouts_and_deaths_are_counted_apart() {
    let limited = |deaths, timeouts| Terms { timeout: Some(LIMIT), deaths, timeouts, ..terms() };
    let timeout = |_| ExitReason::TaskTimedOut(LIMIT);
    let death = |_| ExitReason::Signal(9);
    let in_turn = |worker| if worker % 2 == 0 { death(worker) } else { timeout(worker) };
    assert_eq!(
        workers_until_abandoned(limited(3, 1), timeout),
        1,
        "a timeout is as long as it says"
    );
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
fn tasks_of_one_worker_that_run_past_their_timeout_together_all_count() {
    let mut scheduler = Scheduler::new();
    scheduler.begin(
        1,
        nobody(1),
        EntryRef { offset: 1, name: 0 },
        Terms { timeout: Some(LIMIT), ..terms() },
    );
    scheduler.join(1, 1, 2, None, &mut Effects::default());
    let mut effects = Effects::default();
    scheduler.submit(Run::new(1, 0, 2, arguments(2)), &mut effects);
    scheduler.overdue(1, 1, 0, &mut effects);
    scheduler.overdue(1, 1, 1, &mut effects);
    scheduler.lost(1, &Exit::new(ExitReason::TaskTimedOut(LIMIT), Vec::new()), &mut effects);
    assert_eq!(effects.settled.len(), 2);
}

#[test]
fn long_tasks_are_handed_out_one_for_each_thread() {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    scheduler.begin(1, nobody(1), EntryRef { offset: 1, name: 0 }, terms());
    scheduler.join(1, 1, 2, None, &mut effects);
    scheduler.submit(Run::new(1, 0, 100, arguments(100)), &mut effects);
    let count = |effects: &Effects<_, _>| {
        effects.assignments.iter().map(|(_, a): &(u64, Assignment)| a.count).sum::<u32>()
    };
    assert_eq!(count(&effects), 2, "nothing is known of the function yet");
    let mut effects = Effects::default();
    let slow = Results { busy: 10_000_000, ..results(1, 0, 1, false) };
    scheduler.complete(1, slow, &mut effects);
    assert_eq!(count(&effects), 1, "10 ms are more than is worth holding");
}

#[test]
fn suspects_of_a_death_are_run_alone() {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    scheduler.begin(1, nobody(1), EntryRef { offset: 1, name: 0 }, Terms { chunk: 10, ..terms() });
    scheduler.join(1, 1, 1, None, &mut effects);
    scheduler.submit(Run::new(1, 0, 10, arguments(10)), &mut effects);
    let mut effects = Effects::default();
    scheduler.lost(1, &Exit::new(ExitReason::Signal(9), Vec::new()), &mut effects);
    assert!(effects.settled.is_empty());
    for index in 0..10 {
        let mut effects = Effects::default();
        if index == 0 {
            scheduler.join(2, 2, 1, None, &mut effects);
        } else {
            scheduler.complete(2, results(1, index - 1, 1, false), &mut effects);
        }
        assert_eq!(effects.assignments.len(), 1);
        assert_eq!((effects.assignments[0].1.first, effects.assignments[0].1.count), (index, 1));
    }
}

#[test]
fn calls_share_a_worker_by_the_time_of_their_tasks() {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    for call in [1, 2] {
        scheduler.begin(call, nobody(call), EntryRef { offset: call, name: 0 }, terms());
        scheduler.submit(Run::new(call, 0, 1000, arguments(1000)), &mut effects);
    }
    scheduler.join(1, 1, 1, None, &mut effects);
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
fn a_worker_that_gave_back_all_that_it_held_gets_work_again() {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    scheduler.begin(1, nobody(1), EntryRef { offset: 1, name: 0 }, terms());
    scheduler.submit(Run::new(1, 0, 10, arguments(10)), &mut effects);
    scheduler.join(7, 7, 1, None, &mut effects);
    scheduler.complete(7, Results { busy: 1_500_000, ..results(1, 0, 1, false) }, &mut effects);
    scheduler.complete(7, Results { busy: 5_000_000, ..results(1, 1, 1, false) }, &mut effects);
    let mut effects = Effects::default();
    scheduler.returned(7, 1, 2, 1, &mut effects);
    assert_eq!(scheduler.idle(), 0);
    assert!(!effects.assignments.is_empty());
}

/// A call whose caller takes outcomes in the order of its tasks, with room for four of them; and
/// its only worker, which holds all that it may by time.
fn a_full_buffer() -> (Scheduler<WorkerId, Nobody>, Nobody, Effects<WorkerId, Nobody>) {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    let caller = Nobody {
        order: Order::Tasks,
        buffer: Rc::new(Buffer::new(8 * OUTCOME, Release::Taken)),
        ..nobody(1)
    };
    scheduler.begin(1, caller.clone(), EntryRef { offset: 1, name: 0 }, terms());
    scheduler.submit(Run::new(1, 0, 100, arguments(100)), &mut effects);
    scheduler.join(1, 1, 1, None, &mut effects);
    let mut effects = Effects::default();
    scheduler.complete(1, Results { busy: 1, ..results(1, 0, 1, false) }, &mut effects);
    (scheduler, caller, effects)
}

fn assigned(effects: &Effects<WorkerId, Nobody>) -> Vec<u64> {
    let range = |(_, a): &(WorkerId, Assignment)| a.first..a.first + u64::from(a.count);
    effects.assignments.iter().flat_map(range).collect()
}

#[test]
fn no_task_is_handed_out_without_room_for_its_outcome() {
    let (mut scheduler, caller, effects) = a_full_buffer();
    assert_eq!(assigned(&effects), [1, 2, 3], "one of four outcomes is there");
    let mut effects = Effects::default();
    scheduler.complete(1, results(1, 1, 3, false), &mut effects);
    assert!(assigned(&effects).is_empty());
    assert!(caller.buffer.free_outcomes(2, 2 * OUTCOME, 2), "the scheduler waits for room");
    let mut effects = Effects::default();
    scheduler.resume(1, &mut effects);
    assert_eq!(assigned(&effects), [4, 5]);
}

#[test]
fn a_full_buffer_does_not_keep_back_the_task_that_the_caller_waits_for() {
    let (mut scheduler, caller, _) = a_full_buffer();
    assert!(caller.buffer.free_outcomes(1, OUTCOME, 1));
    let mut effects = Effects::default();
    scheduler.resume(1, &mut effects);
    // What comes after task 1 fills the buffer, and its worker dies.
    let mut effects = Effects::default();
    scheduler.complete(1, results(1, 2, 2, false), &mut effects);
    caller.buffer.store_outcomes(0, 10 * OUTCOME);
    let mut effects = Effects::default();
    scheduler.lost(1, &Exit::new(ExitReason::Shutdown, Vec::new()), &mut effects);
    scheduler.join(2, 2, 1, None, &mut effects);
    assert_eq!(assigned(&effects), [1]);
}

#[test]
fn tasks_come_back_when_outcomes_are_larger_than_they_seemed() {
    let mut scheduler = Scheduler::new();
    let mut effects = Effects::default();
    let caller = Nobody {
        order: Order::Arrival,
        buffer: Rc::new(Buffer::new(1000, Release::Taken)),
        ..nobody(1)
    };
    scheduler.begin(1, caller.clone(), EntryRef { offset: 1, name: 0 }, terms());
    scheduler.submit(Run::new(1, 0, 100, arguments(100)), &mut effects);
    scheduler.join(1, 1, 1, None, &mut effects);
    scheduler.complete(1, Results { busy: 1, ..results(1, 0, 1, false) }, &mut Effects::default());
    let mut outcome = Vec::new();
    push_item(&mut outcome, &[0; 600], false);
    let piece = Piece { first: 1, count: 1, length: outcome.len() as u32 };
    let large = Results { call: 1, busy: 1, pieces: vec![piece], outcomes: outcome.into() };
    let mut effects = Effects::default();
    scheduler.complete(1, large, &mut effects);
    assert_eq!(effects.recalls, [(1, 1)]);
    assert!(assigned(&effects).is_empty());
}
