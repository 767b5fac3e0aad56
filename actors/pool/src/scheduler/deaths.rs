//! The end of workers: redelivery of their tasks, and tasks that end too many workers.

use std::sync::Arc;
use std::time::Instant;

use fiber_core::stacks::ThreadStack;
use fiber_core::stats::TaskName;
use fiber_core::{Exit, ExitReason};

use super::dispatch::Requeue;
use super::retire::Duty;
use super::statistics::LongRunning;
use super::worker::{Blame, FailureCause, Overdue, Worker};
use super::{Effects, Retirement, Scheduler, WorkerId};
use crate::run::{CallId, Run};
use crate::verdict::{Life, Lived, SIGKILL, Verdict};

/// How many deaths of hosts abandon a task, for each death of a worker that may. A host dies with
/// all its workers, and one of their tasks at most is the cause.
const HOST_DEATHS_PER_DEATH: u32 = 3;

/// The end of a worker.
#[derive(Debug)]
pub(crate) struct Loss {
    /// The tasks against which it counts.
    pub(crate) blamed: Vec<TaskName>,
    /// How many tasks run again.
    pub(crate) redelivered: u64,
    /// The tasks that it had reported to be running, and since when.
    pub(crate) running: Vec<(TaskName, Instant)>,
}

/// How a worker ended, what its overdue tasks were doing, and the place of those that are not to
/// blame.
struct Ended<'a> {
    exit: &'a Exit,
    overdue: &'a [Overdue],
    place: Requeue,
}

impl<W: Clone, C: Clone> Scheduler<W, C> {
    /// Notes that a worker has been running a task `since` a while ago.
    pub(crate) fn note_long_running(
        &mut self,
        id: WorkerId,
        call: CallId,
        index: u64,
        since: Instant,
        effects: &mut Effects<W, C>,
    ) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.long_running.push(LongRunning { call, index, since, straggler: false });
            // Tasks may have waited for this worker to be free.
            self.dispatch(effects);
        }
    }

    /// Kills a worker that runs a task past its timeout. `stack` is what the task is doing.
    pub(crate) fn overdue(
        &mut self,
        id: WorkerId,
        call: CallId,
        index: u64,
        stack: Option<Arc<ThreadStack>>,
        effects: &mut Effects<W, C>,
    ) {
        let limit = self.calls.get(&call).and_then(|call| call.options.timeout);
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let is_pending = worker.pending.find(call, index).is_some();
        if let (Some(limit), true) = (limit, is_pending) {
            worker.overdue.push(Overdue { task: (call, index), stack });
            effects.kills.push((worker.handle.clone(), ExitReason::TaskTimedOut(limit)));
        }
    }

    /// Kills a worker that runs a task of a cancelled call.
    pub(crate) fn runs_cancelled(&mut self, id: WorkerId, effects: &mut Effects<W, C>) {
        if let Some(worker) = self.workers.get(&id)
            // The task that has cancelled the call may be one of them.
            && worker.waiting.is_empty()
        {
            effects.kills.push((worker.handle.clone(), ExitReason::TaskCancelled));
        }
    }

    /// Returns the life of a worker until now.
    pub(crate) fn life(&self, id: WorkerId, is_young: impl Fn(&W) -> bool) -> Life {
        let Some(worker) = self.workers.get(&id) else { return Life::default() };
        let has_lived = |one: &Worker<W>| one.had_task || !is_young(&one.handle);
        let lived = match worker.had_task {
            true => Lived::WithTask,
            false if self.workers.values().any(has_lived) => Lived::Ready,
            false => Lived::Unused,
        };
        let terminating = matches!(worker.duty, Duty::Retiring { terminating: true, .. });
        Life { lived, retiring: worker.retirement(), terminating }
    }

    /// Removes a worker that has ended. Queues its pending tasks again before all others, or
    /// abandons them.
    pub(crate) fn lost(&mut self, id: WorkerId, verdict: &Verdict, effects: &mut Effects<W, C>) {
        let Some(worker) = self.workers.remove(&id) else { return };
        let exit = &verdict.exit;
        self.note_end_of_host(&worker, exit, effects);
        let before = self.counts.redelivered;
        self.threads -= worker.threads;
        self.retiring -= usize::from(worker.retirement().is_some());
        if worker.pending_tasks == 0 && worker.retirement().is_none() {
            self.idle -= 1;
        }
        let blame = worker.blame(verdict.fault);
        let name = |(_, task): &(FailureCause, (CallId, u64))| self.task_name(*task);
        let (blamed, place) = match &blame {
            Blame::NoTask => (Vec::new(), worker.requeue()),
            Blame::Unknown => (Vec::new(), worker.requeue_suspects()),
            Blame::Tasks(tasks) => (tasks.iter().filter_map(name).collect(), worker.requeue()),
        };
        let running = self.running_tasks(&worker);
        let mut calls: Vec<_> = worker.pending.iter().map(|run| run.call).collect();
        calls.dedup();
        for run in worker.pending.into_runs().into_iter().rev() {
            self.redeliver(run, &blame, &Ended { exit, overdue: &worker.overdue, place }, effects);
        }
        calls.into_iter().for_each(|call| self.remove_if_done(call));
        self.dispatch(effects);
        let redelivered = self.counts.redelivered - before;
        let loss = Loss { blamed, redelivered, running };
        effects.losses.push((worker.handle, verdict.clone(), loss));
    }

    /// Gives no more tasks to the other workers of a host that has ended. They are lost next.
    fn note_end_of_host(&mut self, lost: &Worker<W>, exit: &Exit, effects: &mut Effects<W, C>) {
        let is_first = lost.retirement() != Some(Retirement::HostEnded);
        let (ExitReason::HostEnded { .. }, Some(_), true) = (&exit.reason, lost.host, is_first)
        else {
            return;
        };
        let others = self.workers.iter().filter(|(_, worker)| worker.host == lost.host);
        let others: Vec<_> = others.map(|(id, _)| *id).collect();
        others.into_iter().for_each(|id| self.drain(id, Retirement::HostEnded, effects));
    }

    /// Returns the tasks that a worker has reported to be running.
    fn running_tasks(&self, worker: &Worker<W>) -> Vec<(TaskName, Instant)> {
        let is_pending = |task: &&LongRunning| worker.pending.find(task.call, task.index).is_some();
        let running = worker.long_running.iter().filter(is_pending);
        let named =
            |task: &LongRunning| Some((self.task_name((task.call, task.index))?, task.since));
        running.filter_map(named).collect()
    }

    fn task_name(&self, (call, index): (CallId, u64)) -> Option<TaskName> {
        Some(TaskName::new(call, self.calls.get(&call)?.function, index))
    }

    fn redeliver(
        &mut self,
        run: Run,
        blame: &Blame,
        ended: &Ended<'_>,
        effects: &mut Effects<W, C>,
    ) {
        if let Some(call) = self.calls.get_mut(&run.call).filter(|call| call.is_final()) {
            self.counts.abandoned += 1;
            return call.abandon(run.start, 1, ended.exit.clone(), effects);
        }
        let blamed = match blame {
            Blame::NoTask | Blame::Unknown => return self.run_again(run, ended.place, effects),
            Blame::Tasks(tasks) => tasks,
        };
        let mut rest = Some(run);
        let mut parts = Vec::new();
        while let Some(run) = rest.take() {
            let inside = blamed
                .iter()
                .filter(|(_, (call, index))| *call == run.call && run.contains(*index));
            let Some((cause, (_, index))) = inside.min_by_key(|(_, task)| task) else {
                parts.push((run, None));
                break;
            };
            let (task, before, after) = run.cut(*index, *index + 1);
            parts.extend(before.map(|run| (run, None)));
            parts.extend(task.map(|run| (run, Some(*cause))));
            rest = after;
        }
        for (run, blamed) in parts.into_iter().rev() {
            match blamed {
                Some(cause) => self.count_against(run, cause, ended, effects),
                None => self.run_again(run, ended.place, effects),
            }
        }
    }

    /// Queues tasks again whose worker has ended. One that lacks an input has not begun, and is no
    /// suspect.
    fn run_again(&mut self, run: Run, place: Requeue, effects: &mut Effects<W, C>) {
        if self.calls.contains_key(&run.call) {
            self.counts.redelivered += run.len();
        }
        if run.lacks_input() { self.hold(run, effects) } else { self.requeue(run, place) }
    }

    /// Counts the end of a worker against the one task of `run`. Abandons the task if that is one
    /// end too many.
    fn count_against(
        &mut self,
        run: Run,
        cause: FailureCause,
        ended: &Ended<'_>,
        effects: &mut Effects<W, C>,
    ) {
        let Some(call) = self.calls.get_mut(&run.call) else { return };
        let failures = call.failures.entry(run.start).or_default();
        match cause {
            FailureCause::Death => failures.deaths += 1,
            FailureCause::HostDeath => failures.host_deaths += 1,
            FailureCause::Timeout => failures.timeouts += 1,
        }
        let options = call.options;
        let max_host_deaths = options.max_deaths.saturating_mul(HOST_DEATHS_PER_DEATH);
        if failures.deaths < options.max_deaths
            && failures.host_deaths < max_host_deaths
            && failures.timeouts < options.max_timeouts
        {
            return self.run_again(run, Requeue::Suspect(1), effects);
        }
        let workers = failures.deaths + failures.host_deaths + failures.timeouts;
        let overdue = ended.overdue.iter().find(|overdue| overdue.task == (run.call, run.start));
        let stack = overdue.and_then(|overdue| overdue.stack.clone());
        let mut exit = ended.exit.clone().with_stack(stack);
        if let (FailureCause::Death, ExitReason::TaskTimedOut(limit)) = (cause, &exit.reason) {
            let why = format!("a task for which it waited ran past its time limit of {limit:?}");
            exit.tail.push(why);
            exit.reason = ExitReason::Signal(SIGKILL);
        }
        self.counts.abandoned += 1;
        call.abandon(run.start, workers, exit, effects);
    }
}
