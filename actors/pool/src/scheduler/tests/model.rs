//! The scheduler against a simple model: a table with the place of each task.

mod checks;
mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use fiber_core::ExitReason;
use proptest::collection::vec;
use proptest::prelude::*;

use self::step::{Step, step};
use super::*;
use crate::run::Items;
use fiber_test_support::trace;

type Task = (CallId, u64);

/// The expected state of the pool.
#[derive(Default)]
struct Model {
    calls: BTreeMap<CallId, CallOptions>,
    callers: BTreeMap<CallId, TestCaller>,
    /// Outcomes that have arrived and have not been taken: start and end of their tasks, and bytes.
    untaken: BTreeMap<CallId, Vec<(u64, u64, u64)>>,
    /// How many tasks were prepared, submitted or not.
    prepared: BTreeMap<CallId, u64>,
    /// Where the open block of each call begins that may submit tasks.
    open: BTreeMap<CallId, u64>,
    /// The pending tasks of each worker, in the order in which it received them.
    workers: BTreeMap<WorkerId, Vec<Task>>,
    threads: BTreeMap<WorkerId, u64>,
    completed: BTreeSet<Task>,
    certain_deaths: BTreeMap<Task, u32>,
    /// The suspects, and how many may run together with each.
    parts: BTreeMap<Task, u64>,
    timeouts: BTreeMap<Task, u32>,
    /// Workers without a quota.
    unlimited: BTreeSet<WorkerId>,
    /// Workers that get no more tasks.
    retiring: BTreeSet<WorkerId>,
    next_worker: WorkerId,
    next_call: CallId,
}

/// An effect that a caller answers, and has not performed.
#[derive(Clone, Copy, Debug)]
enum Question {
    Wanted(CallId),
    Throttled(CallId, u64),
}

/// An event on its way from a caller.
#[derive(Debug)]
enum Answer {
    Tasks(Run),
    Report(CallId, Report),
}

/// A scheduler and the model of its state.
struct Simulation {
    scheduler: Scheduler<WorkerId, TestCaller>,
    model: Model,
    questions: Vec<Question>,
    answers: Vec<Answer>,
    /// All effects, in words.
    trace: Vec<String>,
}

impl Simulation {
    fn new() -> Simulation {
        Simulation {
            scheduler: Scheduler::new(),
            model: Model { next_call: 1, ..Model::default() },
            questions: Vec::new(),
            answers: Vec::new(),
            trace: Vec::new(),
        }
    }

    fn select<K: Copy, V>(map: &BTreeMap<K, V>, choice: usize) -> Option<K> {
        map.keys().nth(choice.checked_rem(map.len())?).copied()
    }

    fn take(&mut self, step: Step) {
        let mut effects = Effects::default();
        match step {
            Step::Begin { chunk, deaths, timeouts, retries, order } => {
                let id = self.model.next_call;
                self.model.next_call += 1;
                let options = CallOptions {
                    chunk,
                    timeout: Some(LIMIT),
                    retries,
                    max_deaths: deaths,
                    max_timeouts: timeouts,
                    comes_first: id.is_multiple_of(4),
                };
                // Room for two outcomes that are taken one by one.
                let release =
                    if order == Order::Together { Release::Completed } else { Release::Taken };
                let caller =
                    TestCaller { id, order, buffer: Rc::new(Buffer::new(4 * OUTCOME, release)) };
                self.scheduler.begin(id, new_call(caller.clone(), id, options));
                self.model.calls.insert(id, options);
                self.model.callers.insert(id, caller);
                self.model.prepared.insert(id, 0);
                self.model.open.insert(id, 0);
            }
            Step::Prepare { call, tasks } => {
                let Some(call) = Simulation::select(&self.model.open, call) else { return };
                *self.model.prepared.entry(call).or_default() += tasks;
            }
            Step::Submit { call, tasks } => {
                let Some(call) = Simulation::select(&self.model.open, call) else { return };
                *self.model.prepared.entry(call).or_default() += tasks;
                if let Some(run) = self.take_open(call) {
                    self.scheduler.submit(run, &mut effects);
                }
            }
            Step::FinishFeeding { call } => {
                let Some(call) = Simulation::select(&self.model.open, call) else { return };
                if let Some(run) = self.take_open(call) {
                    self.scheduler.submit(run, &mut effects);
                }
                self.model.open.remove(&call);
                self.scheduler.finish_feeding(call, Some(self.model.prepared[&call]));
            }
            Step::Perform { question } => {
                let Some(place) = question.checked_rem(self.questions.len()) else { return };
                match self.questions.remove(place) {
                    Question::Wanted(call) => {
                        let run = self.take_open(call);
                        self.answers.extend(run.map(Answer::Tasks));
                    }
                    Question::Throttled(call, known) => {
                        let buffer = &self.model.callers[&call].buffer;
                        if buffer.throttle(known) {
                            self.answers.push(Answer::Report(call, buffer.report()));
                        }
                    }
                }
            }
            Step::Answer { answer } => {
                let Some(place) = answer.checked_rem(self.answers.len()) else { return };
                match self.answers.remove(place) {
                    Answer::Tasks(run) => self.scheduler.submit(run, &mut effects),
                    Answer::Report(call, report) => {
                        self.scheduler.report(call, report, &mut effects)
                    }
                }
            }
            Step::Memory { room } => self.scheduler.set_memory(room, 1000),
            Step::Join { threads, quota } => {
                let id = self.model.next_worker;
                self.model.next_worker += 1;
                self.model.workers.insert(id, Vec::new());
                self.model.threads.insert(id, threads);
                if quota.is_none() {
                    self.model.unlimited.insert(id);
                }
                self.scheduler.join(id, id, threads, quota, None, &mut effects);
            }
            Step::Complete { worker, first, tasks, failed } => {
                let Some(worker) = Simulation::select(&self.model.workers, worker) else { return };
                let pending = self.model.workers.get_mut(&worker).expect("it was just selected");
                let Some(first) = first.checked_rem(pending.len()) else { return };
                // Consecutive tasks, as an executor reports them.
                let (call, start) = pending[first];
                let run = pending[first..]
                    .iter()
                    .take(tasks)
                    .zip(start..)
                    .take_while(|(task, index)| **task == (call, *index));
                let count = run.count();
                let done: Vec<_> = pending.drain(first..first + count).collect();
                self.model.parts.retain(|task, _| !done.contains(task));
                self.scheduler.complete(
                    worker,
                    results(call, start, count as u64, failed),
                    &mut effects,
                );
                let known = self.model.calls.contains_key(&call);
                let retried = failed
                    && self.model.calls.get(&call).is_some_and(|options| options.retries > 0);
                if known && !retried {
                    assert_eq!(
                        count_completed(&effects),
                        done.len() as u64,
                        "all pending tasks of the message complete"
                    );
                }
            }
            Step::Stale { worker, call, first } => {
                let pending = self.model.workers.get(&worker);
                if pending.is_some_and(|pending| pending.contains(&(call, first))) {
                    return;
                }
                self.scheduler.complete(worker, results(call, first, 1, false), &mut effects);
                assert_eq!(
                    count_completed(&effects),
                    0,
                    "only the worker that holds a task completes it"
                );
            }
            Step::Return { worker, tasks } => {
                let Some(worker) = Simulation::select(&self.model.workers, worker) else { return };
                let pending = self.model.workers.get_mut(&worker).expect("it was just selected");
                let Some(&(call, last)) = pending.last() else { return };
                let run = pending.iter().rev().take(tasks).zip((0..=last).rev());
                let count = run.take_while(|(task, index)| **task == (call, *index)).count();
                pending.truncate(pending.len() - count);
                self.scheduler.returned(
                    worker,
                    call,
                    last + 1 - count as u64,
                    count as u64,
                    &mut effects,
                );
            }
            Step::Lose { worker, planned } => {
                let Some(worker) = Simulation::select(&self.model.workers, worker) else { return };
                let pending = self.model.workers.remove(&worker).expect("it was just selected");
                self.model.unlimited.remove(&worker);
                if !planned {
                    self.model.note_death(worker, &pending);
                }
                let reason =
                    if planned { ExitReason::TaskCancelled } else { ExitReason::Signal(9) };
                self.scheduler.lost(worker, &ended(reason), &mut effects);
            }
            Step::Terminate { worker } => {
                let Some(worker) = Simulation::select(&self.model.workers, worker) else { return };
                self.scheduler.drain(worker, Retirement::Terminating, &mut effects);
                self.model.unlimited.remove(&worker);
                let idle = self.model.workers[&worker].is_empty();
                let is_new = self.model.retiring.insert(worker);
                assert_eq!(effects.retired.len(), usize::from(is_new && idle));
            }
            Step::TimeOut { worker, task } => {
                let Some(worker) = Simulation::select(&self.model.workers, worker) else { return };
                let pending = &self.model.workers[&worker];
                let Some(&task) =
                    task.checked_rem(pending.len()).and_then(|task| pending.get(task))
                else {
                    return;
                };
                if !self.model.calls.contains_key(&task.0) {
                    return;
                }
                self.scheduler.overdue(worker, task.0, task.1, None, &mut effects);
                let killed = std::mem::take(&mut effects.kills);
                assert_eq!(killed, [(worker, ExitReason::TaskTimedOut(LIMIT))]);
                self.model.workers.remove(&worker);
                self.model.unlimited.remove(&worker);
                *self.model.timeouts.entry(task).or_default() += 1;
                self.model.parts.insert(task, 1);
                self.scheduler.lost(worker, &ended(ExitReason::TaskTimedOut(LIMIT)), &mut effects);
            }
            Step::Take { call, tasks } => {
                let Some(call) = Simulation::select(&self.model.calls, call) else { return };
                for _ in 0..tasks {
                    self.take_outcome(call);
                }
            }
            Step::Cancel { call } => {
                let Some(call) = Simulation::select(&self.model.calls, call) else { return };
                self.model.calls.remove(&call);
                self.model.open.remove(&call);
                let concerned = self.scheduler.cancel(call);
                let holders = self
                    .model
                    .workers
                    .iter()
                    .filter(|(_, pending)| pending.iter().any(|task| task.0 == call));
                let holders: BTreeSet<_> = holders.map(|(worker, _)| *worker).collect();
                assert_eq!(
                    concerned.into_iter().collect::<BTreeSet<_>>(),
                    holders,
                    "the workers with tasks of the call are returned"
                );
            }
            Step::Retirement => {
                if let Some(drained) = self.scheduler.retire_some(1, &mut effects).pop() {
                    self.model.unlimited.remove(&drained);
                    assert!(self.model.retiring.insert(drained), "no worker is drained twice");
                }
            }
        }
        self.apply(effects);
    }

    /// Takes the open block of a call.
    fn take_open(&mut self, call: CallId) -> Option<Run> {
        let (first, end) = (self.model.open.get_mut(&call)?, self.model.prepared[&call]);
        let first = std::mem::replace(first, end);
        (first < end).then(|| Run::new(call, first, end, arguments(end - first)))
    }

    /// Takes one outcome of a call, if the caller can take one. Returns whether it did.
    fn take_outcome(&mut self, call: CallId) -> bool {
        let (caller, untaken) =
            (&self.model.callers[&call], self.model.untaken.entry(call).or_default());
        let in_turn = |(start, ..): &(u64, u64, u64)| {
            caller.order != Order::Tasks || *start == caller.buffer.report().next
        };
        let Some(place) = untaken.iter().position(in_turn) else { return false };
        let (start, end, bytes) = untaken.remove(place);
        if caller.buffer.free_outcomes(end - start, bytes, end) {
            self.answers.push(Answer::Report(call, caller.buffer.report()));
        }
        true
    }

    fn apply(&mut self, effects: Effects<WorkerId, TestCaller>) {
        self.note(&effects);
        let wanted = effects.wanted.iter().map(|caller| Question::Wanted(caller.id));
        self.questions.extend(wanted);
        let throttled = effects.throttled.iter();
        let throttled = throttled.map(|(caller, known)| Question::Throttled(caller.id, *known));
        self.questions.extend(throttled);
        for (TestCaller { id: caller, .. }, completion) in effects.completions {
            let (start, end, bytes) = match &completion {
                Completion::Outcomes(run) | Completion::Away { outcome: run, .. } => {
                    (run.start, run.end, run.size() as u64)
                }
                Completion::Abandoned { index, .. } => (*index, *index + 1, 0),
            };
            self.model.untaken.entry(caller).or_default().push((start, end, bytes));
            let tasks: Vec<_> = match completion {
                Completion::Outcomes(run) | Completion::Away { outcome: run, .. } => {
                    assert!(
                        Items::new(&run.arguments()).count() as u64 >= run.len(),
                        "each task has an outcome"
                    );
                    (run.start..run.end).collect()
                }
                Completion::Abandoned { index, workers, .. } => {
                    let options = self.model.calls[&caller];
                    let of = |counts: &BTreeMap<Task, u32>| {
                        counts.get(&(caller, index)).copied().unwrap_or(0)
                    };
                    let (deaths, timeouts) =
                        (of(&self.model.certain_deaths), of(&self.model.timeouts));
                    assert!(deaths + timeouts >= workers, "only certain deaths and timeouts count");
                    assert!(
                        deaths >= options.max_deaths || timeouts >= options.max_timeouts,
                        "deaths and timeouts have limits of their own"
                    );
                    vec![index]
                }
            };
            for index in tasks {
                assert!(
                    self.model.calls.contains_key(&caller),
                    "no task of a cancelled call completes"
                );
                assert!(
                    self.model.completed.insert((caller, index)),
                    "task {index} of call {caller} completed twice"
                );
            }
        }
        for (worker, assignment) in effects.assignments {
            let pending =
                self.model.workers.get_mut(&worker).expect("only existing workers get tasks");
            assert!(!self.model.retiring.contains(&worker), "a retiring worker gets no tasks");
            let end = assignment.first + u64::from(assignment.count);
            assert!(Items::new(&assignment.arguments).count() >= assignment.count as usize);
            let first = Items::new(&assignment.arguments).next().expect("a run has a task").0;
            assert_eq!(first.len(), 8);
            pending.extend((assignment.first..end).map(|index| (assignment.call, index)));
        }
        for (worker, _) in effects.retired {
            assert!(
                self.model.workers[&worker].is_empty(),
                "a worker stops when it has no pending tasks"
            );
        }
        self.model.check();
    }

    /// Notes effects in the trace.
    fn note(&mut self, effects: &Effects<WorkerId, TestCaller>) {
        let tasks = |tasks: &Assignment| (tasks.call, tasks.first, tasks.count);
        let assigned: Vec<_> = effects.assignments.iter().map(|(to, it)| (to, tasks(it))).collect();
        let ids = |callers: &[TestCaller]| callers.iter().map(|one| one.id).collect::<Vec<_>>();
        let numbers = |some: &[(TestCaller, u64)]| {
            some.iter().map(|(caller, number)| (caller.id, *number)).collect::<Vec<_>>()
        };
        let completed = effects.completions.iter().map(|(caller, it)| (caller.id, it.clone()));
        let completed: Vec<_> = completed.collect();
        let lost: Vec<_> = effects.losses.iter().map(|(worker, ..)| worker).collect();
        let workers = (assigned, &effects.recalls, &effects.kills, &effects.retired, lost);
        let wanted = ids(&effects.wanted);
        let numbers = (numbers(&effects.throttled), numbers(&effects.run_sizes));
        self.trace.push(format!("{workers:?} {completed:?} {wanted:?} {numbers:?}"));
    }

    /// Returns a task that was prepared, not cancelled, and has not completed.
    fn incomplete(&self) -> Option<Task> {
        let all =
            self.model.prepared.iter().filter(|(call, _)| self.model.calls.contains_key(call));
        let mut all = all.flat_map(|(call, count)| (0..*count).map(|index| (*call, index)));
        all.find(|task| !self.model.completed.contains(task))
    }

    /// Performs all effects and delivers all answers.
    fn settle(&mut self) {
        while !self.questions.is_empty() || !self.answers.is_empty() {
            self.take(Step::Perform { question: 0 });
            self.take(Step::Answer { answer: 0 });
        }
    }

    /// Completes all pending tasks and takes all outcomes, until nothing is left.
    fn work(&mut self) {
        loop {
            self.settle();
            if let Some(busy) = self.model.workers.values().position(|pending| !pending.is_empty())
            {
                self.take(Step::Complete { worker: busy, first: 0, tasks: 1000, failed: false });
                continue;
            }
            let calls: Vec<_> = self.model.calls.keys().copied().collect();
            let taken = calls.into_iter().filter(|call| self.take_outcome(*call)).count();
            // The feeders' timers ask while workers are idle.
            let mut effects = Effects::default();
            self.scheduler.want(&mut effects);
            self.apply(effects);
            self.settle();
            let busy = self.model.workers.values().any(|pending| !pending.is_empty());
            if taken == 0 && !busy {
                return;
            }
        }
    }

    /// Completes all tasks: with the existing workers if one has no quota, otherwise with a new
    /// one.
    fn finish(&mut self) {
        self.work();
        if !self.model.unlimited.is_empty() {
            assert_eq!(self.incomplete(), None, "a task is left, although a worker is idle");
        }
        while !self.model.open.is_empty() {
            self.take(Step::FinishFeeding { call: 0 });
        }
        for worker in self.model.workers.keys().copied().collect::<Vec<_>>() {
            let position =
                self.model.workers.keys().position(|id| *id == worker).expect("it is still there");
            self.take(Step::Lose { worker: position, planned: true });
        }
        self.take(Step::Join { threads: 2, quota: None });
        self.work();
        assert_eq!(self.incomplete(), None, "a task was lost");
        assert!(self.scheduler.is_empty());
        assert_eq!(self.scheduler.idle(), 1);
    }
}

fn count_completed(effects: &Effects<WorkerId, TestCaller>) -> u64 {
    let count = |completion: &Completion| {
        if let Completion::Outcomes(run) = completion { run.len() } else { 1 }
    };
    effects.completions.iter().map(|(_, completion)| count(completion)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_task_completes_once_whatever_happens(steps in vec(step(), 1..120)) {
        let mut simulation = Simulation::new();
        for step in steps {
            simulation.take(step);
        }
        simulation.finish();
    }
}

#[test]
fn a_seed_determines_the_effects_of_a_scheduler() {
    trace::assert_repeatable(
        concat!(module_path!(), "::a_seed_determines_the_effects_of_a_scheduler"),
        |seed| {
            let mut simulation = Simulation::new();
            trace::drawn(seed, vec(step(), 100)).into_iter().for_each(|step| simulation.take(step));
            simulation.finish();
            simulation.trace
        },
    );
}
