//! Random events against the life of a pool, with a simple model of its supervisor and processes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::run::{CallId, Run};
use crate::scheduler::Completion;
use crate::scheduler::tests::{TestCaller, arguments, caller, new_call, options, results};

type Life = PoolLife<Worker, TestCaller>;
type LifeEffects = Effects<Worker, TestCaller>;

/// A worker that is ready. Every second one dies young if it dies without a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Worker {
    id: WorkerId,
    number: WorkerNumber,
}

impl Incarnation for Worker {
    fn number(&self) -> WorkerNumber {
        self.number
    }

    fn is_young(&self, _: Instant) -> bool {
        self.id.is_multiple_of(2)
    }
}

/// An event. A `usize` selects one of the calls, processes or workers that exist.
#[derive(Clone, Debug)]
enum Step {
    /// A call of so many tasks.
    Call(u64),
    Cancel(usize),
    /// The supervisor runs.
    Supervise,
    Ready(usize),
    /// A process that is not ready ends.
    FailStart(usize, End),
    Die(usize, End),
    /// A process that is not ready finds room, or waits for it.
    FindRoom(usize, bool),
    /// A task returns or fails.
    Complete(usize, bool),
    /// SIGTERM asks a worker to end.
    Terminate(usize),
    Scale(usize),
    ScaleWithTasks,
    /// The timer for the warning.
    Warn,
    Close,
    Kill,
    /// The program is about to end.
    Drain,
    /// No time is left for tasks.
    TimeIsUp,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Crash,
    Eviction,
}

fn step() -> impl Strategy<Value = Step> {
    let which = any::<usize>;
    let end = || prop_oneof![3 => Just(End::Crash), 1 => Just(End::Eviction)];
    prop_oneof![
        12 => (1u64..20).prop_map(Step::Call),
        2 => which().prop_map(Step::Cancel),
        8 => Just(Step::Supervise),
        20 => which().prop_map(Step::Ready),
        3 => (which(), end()).prop_map(|(process, end)| Step::FailStart(process, end)),
        12 => (which(), end()).prop_map(|(process, end)| Step::Die(process, end)),
        6 => (which(), any::<bool>()).prop_map(|(process, found)| Step::FindRoom(process, found)),
        20 => (which(), any::<bool>()).prop_map(|(worker, failed)| Step::Complete(worker, failed)),
        4 => which().prop_map(Step::Terminate),
        6 => (1usize..6).prop_map(Step::Scale),
        6 => Just(Step::ScaleWithTasks),
        4 => Just(Step::Warn),
        1 => prop_oneof![
            Just(Step::Close),
            Just(Step::Kill),
            Just(Step::Drain),
            Just(Step::TimeIsUp),
        ],
    ]
}

/// The processes of a pool, and what its callers know.
struct World {
    life: Life,
    now: Instant,
    is_supervised: bool,
    /// The supervisor's children, with the incarnations of the ready ones.
    processes: BTreeMap<WorkerNumber, Option<WorkerId>>,
    /// The children that the supervisor does not replace.
    stopping: BTreeSet<WorkerNumber>,
    /// The processes that end next.
    ending: VecDeque<(WorkerNumber, Option<WorkerId>, ExitReason)>,
    /// The tasks that workers have, one by one.
    pending: BTreeMap<WorkerId, VecDeque<(CallId, u64)>>,
    /// Workers that SIGTERM has asked to end.
    terminating: BTreeSet<WorkerId>,
    /// How many tasks without an outcome the calls have.
    calls: BTreeMap<CallId, u64>,
    told: BTreeSet<(CallId, u64)>,
    warns_later: bool,
    /// Whether tasks are handed out no more.
    is_halted: bool,
    is_stopped: bool,
    last_call: CallId,
    last_worker: WorkerId,
}

impl World {
    fn new(quota: Option<u64>) -> World {
        World {
            life: Life::new(1..=4, 2, quota),
            now: Instant::now(),
            is_supervised: false,
            processes: BTreeMap::new(),
            stopping: BTreeSet::new(),
            ending: VecDeque::new(),
            pending: BTreeMap::new(),
            terminating: BTreeSet::new(),
            calls: BTreeMap::new(),
            told: BTreeSet::new(),
            warns_later: false,
            is_halted: false,
            is_stopped: false,
            last_call: 0,
            last_worker: 0,
        }
    }

    fn take(&mut self, step: Step) {
        self.now += Duration::from_millis(100);
        match step {
            Step::Call(tasks) => self.call(tasks),
            Step::Cancel(call) => {
                let Some(call) = select(&self.calls, call) else { return };
                self.calls.remove(&call);
                self.event(|life, _| drop(life.scheduler.cancel(call)));
            }
            Step::Supervise => {
                if self.life.is_started() && !self.is_supervised && !self.is_stopped {
                    self.is_supervised = true;
                    self.event(Life::supervisor_started);
                }
            }
            Step::Ready(process) => {
                let Some(number) = select(&self.processes, process) else { return };
                self.ready(number);
            }
            Step::FailStart(process, end) => self.die(process, false, end),
            Step::Die(process, end) => self.die(process, true, end),
            Step::FindRoom(process, found) => {
                let Some(number) = select(&self.processes, process) else { return };
                if self.processes[&number].is_none() {
                    let reason = (!found).then(|| "no room".to_string());
                    self.event(|life, effects| life.scheduling_changed(number, reason, effects));
                }
            }
            Step::Complete(worker, failed) => {
                let Some(id) = select(&self.pending, worker) else { return };
                self.complete(id, failed);
            }
            Step::Terminate(worker) => {
                let Some(id) = select(&self.pending, worker) else { return };
                self.terminating.insert(id);
                self.event(|life, effects| {
                    life.scheduler.drain(id, Retirement::Terminating, effects);
                });
            }
            Step::Scale(wanted) => self.event(|life, effects| life.scale(wanted, effects)),
            Step::ScaleWithTasks => self.event(Life::scale_with_tasks),
            Step::Warn => {
                if std::mem::take(&mut self.warns_later) {
                    self.event(Life::warn_of_missing);
                }
            }
            Step::Close => self.event(|life, _| life.close()),
            Step::Kill => self.event(|life, effects| life.kill(PoolEndReason::Killed, effects)),
            Step::Drain => {
                self.is_halted = true;
                self.event(|life, _| drop(life.scheduler.halt()));
            }
            Step::TimeIsUp => {
                self.is_halted = true;
                self.event(|life, _| life.scheduler.set_time_left(Duration::ZERO));
                self.expire();
            }
        }
    }

    fn die(&mut self, process: usize, is_ready: bool, end: End) {
        let Some(number) = select(&self.processes, process) else { return };
        let id = self.processes[&number];
        let reason = match end {
            End::Crash => ExitReason::Signal(11),
            End::Eviction => ExitReason::Evicted("drained".into()),
        };
        if id.is_some() == is_ready {
            self.end(number, id, reason);
        }
    }

    fn call(&mut self, tasks: u64) {
        if self.life.refusal().is_some() {
            return;
        }
        self.last_call += 1;
        let id = self.last_call;
        self.calls.insert(id, tasks);
        self.event(|life, effects| {
            life.scheduler.begin(id, new_call(caller(id), 1, options()));
            life.start(Meta::new(), effects);
            life.scheduler.submit(Run::new(id, 0, tasks, arguments(tasks)), effects);
            life.scheduler.finish_feeding(id, Some(tasks));
        });
    }

    /// A process that starts becomes ready.
    fn ready(&mut self, number: WorkerNumber) {
        if self.processes[&number].is_some() {
            return;
        }
        self.last_worker += 1;
        let id = self.last_worker;
        self.processes.insert(number, Some(id));
        self.pending.insert(id, VecDeque::new());
        self.event(|life, effects| {
            life.worker_ready(id, Worker { id, number }, None, effects);
        });
    }

    fn complete(&mut self, id: WorkerId, failed: bool) {
        let next = self.pending.get_mut(&id).and_then(VecDeque::pop_front);
        let Some((call, index)) = next else { return };
        let results = results(call, index, 1, failed);
        self.event(|life, effects| life.scheduler.complete(id, results, effects));
    }

    /// Ends each call whose tasks can't begin in time.
    fn expire(&mut self) {
        for (caller, _) in self.life.scheduler.expire() {
            self.calls.remove(&caller.id).expect("it has no other end");
        }
        self.event(|_, _| {});
    }

    /// Changes the life, and does what follows.
    fn event(&mut self, change: impl FnOnce(&mut Life, &mut LifeEffects)) {
        let wanted: BTreeSet<_> = self.life.children.iter().map(|(number, _)| *number).collect();
        let mut effects = Effects::default();
        change(&mut self.life, &mut effects);
        self.perform(effects, &wanted);
        let mut effects = Effects::default();
        self.life.end_if_over(&mut effects);
        self.perform(effects, &wanted);
        while let Some((number, incarnation, reason)) = self.ending.pop_front() {
            self.end(number, incarnation, reason);
        }
        self.check();
    }

    fn end(&mut self, number: WorkerNumber, id: Option<WorkerId>, reason: ExitReason) {
        if self.processes.get(&number) != Some(&id) {
            return;
        }
        // The supervisor replaces it.
        self.processes.insert(number, None);
        if self.stopping.remove(&number) || self.is_stopped {
            self.processes.remove(&number);
        }
        if let Some(id) = id {
            self.pending.remove(&id);
        }
        let (exit, now) = (Exit::new(reason, Vec::new()), self.now);
        let start_timeout = Duration::from_secs(1);
        let around = Surroundings { now, start_timeout, starts_are_over: false };
        self.event(|life, effects| {
            life.worker_ended(number, id, exit, &around, effects);
        });
    }

    fn stop(&mut self, number: WorkerNumber) {
        let Some(id) = self.processes.get(&number).copied() else { return };
        self.stopping.insert(number);
        let reason = if id.is_some() { ExitReason::Normal } else { ExitReason::Shutdown };
        self.ending.push_back((number, id, reason));
    }

    /// `wanted` are the workers that the pool wanted before the change.
    fn perform(&mut self, effects: LifeEffects, wanted: &BTreeSet<WorkerNumber>) {
        for request in effects.requests {
            match request {
                ControllerRequest::Start(_) => assert!(!self.is_supervised && !self.is_stopped),
                ControllerRequest::AddWorkers(numbers) => {
                    assert!(self.is_supervised && !self.is_stopped);
                    for number in numbers {
                        let former = self.processes.insert(number, None);
                        assert_eq!(former, None, "each worker has a number of its own");
                    }
                }
                ControllerRequest::StopWorker(number) => self.stop(number),
                ControllerRequest::WarnLater => {
                    assert!(!std::mem::replace(&mut self.warns_later, true), "one warning");
                }
                ControllerRequest::Join(_) => unreachable!("callers join"),
                ControllerRequest::Stop => {
                    assert!(!std::mem::replace(&mut self.is_stopped, true), "it stops once");
                    let numbers: Vec<_> = self.processes.keys().copied().collect();
                    numbers.into_iter().for_each(|number| self.stop(number));
                }
            }
        }
        for (worker, tasks) in effects.assignments {
            assert!(wanted.contains(&worker.number), "a superfluous worker gets tasks");
            assert!(!self.terminating.contains(&worker.id), "a worker that ends gets tasks");
            assert!(!self.is_halted, "tasks begin, although the program ends");
            let pending = self.pending.get_mut(&worker.id).expect("it is alive");
            let indices = tasks.first..tasks.first + u64::from(tasks.count);
            pending.extend(indices.map(|index| (tasks.call, index)));
        }
        for (worker, reason) in effects.kills {
            self.ending.push_back((worker.number, Some(worker.id), reason));
        }
        for (worker, is_superfluous) in effects.retired {
            assert!(self.pending[&worker.id].is_empty(), "a worker stops before its tasks end");
            if is_superfluous {
                self.stop(worker.number);
            } else {
                self.ending.push_back((worker.number, Some(worker.id), ExitReason::Normal));
            }
        }
        for (caller, completion) in effects.completions {
            let indices = match completion {
                Completion::Outcomes(run) | Completion::Away { outcome: run, .. } => {
                    run.start..run.end
                }
                Completion::Abandoned { index, .. } => index..index + 1,
            };
            for index in indices {
                assert!(self.told.insert((caller.id, index)), "an outcome is told twice");
                let left = self.calls.get_mut(&caller.id).expect("the call has ended before");
                *left -= 1;
            }
            if self.calls[&caller.id] == 0 {
                self.calls.remove(&caller.id);
            }
        }
        if let Some((_, callers)) = effects.ended {
            assert!(self.is_stopped, "the workers of a pool that has ended stop");
            for caller in callers {
                self.calls.remove(&caller.id).expect("a call ends once");
            }
            assert!(self.calls.is_empty(), "a call is not told that its pool has ended");
        }
    }

    fn check(&self) {
        let readiness = self.life.readiness();
        assert_eq!(readiness.has_ended, self.is_stopped);
        if self.is_stopped {
            return assert_eq!(readiness.ready, 0);
        }
        let is_wanted = |number: &WorkerNumber| self.life.children.contains_key(number);
        let ready = self.processes.iter().filter(|(number, _)| is_wanted(number));
        let ready = ready.filter_map(|(_, id)| *id).filter(|id| !self.terminating.contains(id));
        assert_eq!(readiness.ready, ready.count(), "a worker that gets no tasks is no ready one");
        if self.life.is_started() {
            let present = self.life.wanted.saturating_sub(self.life.missing.excused());
            assert_eq!(readiness.wanted, present.max(1), "callers wait for missing workers");
        }
        assert!(!self.is_supervised || self.life.children.len() >= self.life.wanted);
    }

    /// Lets all processes start that do, and all tasks end that run.
    fn work(&mut self) {
        loop {
            let starting = self.processes.iter().find(|(_, id)| id.is_none());
            let starting = starting.map(|(number, _)| *number);
            let busy = self.pending.iter().find(|(_, tasks)| !tasks.is_empty());
            let busy = busy.map(|(id, _)| *id);
            match (starting, busy) {
                (Some(number), _) => self.ready(number),
                (None, Some(id)) => self.complete(id, false),
                (None, None) => return,
            }
        }
    }

    fn finish(&mut self) {
        self.take(Step::Supervise);
        self.work();
        if self.life.is_started() && !self.is_stopped {
            let numbers: BTreeSet<_> = self.processes.keys().copied().collect();
            assert_eq!(numbers.len(), self.life.wanted, "the pool is not whole again");
            assert_eq!(self.life.readiness().ready, self.life.wanted);
            assert_eq!(self.life.readiness().wanted, self.life.wanted);
            assert!(self.is_halted || self.calls.is_empty(), "tasks wait while workers are idle");
        }
        self.expire();
        self.take(Step::Close);
        if !self.is_stopped {
            assert!(self.is_halted, "a closed pool without calls has not ended");
            self.take(Step::Kill);
        }
        assert!(self.is_stopped && self.calls.is_empty() && self.processes.is_empty());
        self.call(1);
        assert!(self.calls.is_empty(), "a pool that has ended takes a call");
    }
}

/// Selects one of the keys.
fn select<K: Copy, V>(map: &BTreeMap<K, V>, choice: usize) -> Option<K> {
    map.keys().nth(choice.checked_rem(map.len())?).copied()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_pool_tells_each_outcome_once_and_is_whole_again_when_it_can(
        quota in proptest::option::of(1u64..9),
        steps in vec(step(), 1..120),
    ) {
        let mut world = World::new(quota);
        steps.into_iter().for_each(|step| world.take(step));
        world.finish();
    }
}

#[test]
fn workers_start_once_and_not_after_the_end() {
    let requests = |life: &mut Life| {
        let mut effects = LifeEffects::default();
        life.start(Meta::new(), &mut effects);
        effects.requests.len()
    };
    let mut life = Life::new(1..=1, 1, None);
    // The first task of a durable call that has to run may be found after `close`.
    life.close();
    assert_eq!((requests(&mut life), requests(&mut life)), (1, 0));
    let mut life = Life::new(1..=1, 1, None);
    life.kill(PoolEndReason::Killed, &mut LifeEffects::default());
    life.end(PoolEndReason::Stopped, &mut LifeEffects::default());
    life.close();
    assert_eq!((requests(&mut life), life.refusal()), (0, Some(PoolEndReason::Killed)));
}
