//! The way to the scheduler: events go in under its lock, and effects are performed outside of it.
//!
//! Callers answer two effects with events: they submit tasks that they have prepared, and report
//! the outcomes that they have taken. The answers go in together, under the lock once more.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fiber_core::stats::TaskName;
use fiber_core::value_memory;
use fiber_values::{HeldBack, hold_back};
use parking_lot::MutexGuard;

use super::controller::ControllerRequest;
use super::exchange::Exchange;
use super::held::together;
use super::run::{CallId, Run};
use super::scheduler::{Completion, Report, Scheduler};
use super::state::{Cancellation, PoolState};
use super::wire::PoolCommand;
use super::worker_handle::WorkerHandle;
use fiber_runtime::runtime::ProcessCommand;

pub(super) type PoolScheduler = Scheduler<Arc<WorkerHandle>, Arc<Exchange>>;
pub(super) type Effects = super::scheduler::Effects<Arc<WorkerHandle>, Arc<Exchange>>;

/// An event with which a caller answers an effect.
enum Answer {
    Tasks(Run),
    Report(CallId, Report),
}

/// The scheduler under its lock. A task that is dropped may own the last handle of an input, and
/// that its call, which is cancelled behind the lock.
struct Locked<'a> {
    scheduler: MutexGuard<'a, PoolScheduler>,
    _behind: HeldBack,
}

impl Deref for Locked<'_> {
    type Target = PoolScheduler;

    fn deref(&self) -> &PoolScheduler {
        &self.scheduler
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut PoolScheduler {
        &mut self.scheduler
    }
}

impl PoolState {
    /// Changes the scheduler, and performs the effects.
    pub(super) fn with_scheduler<T>(
        &self,
        change: impl FnOnce(&mut PoolScheduler, &mut Effects) -> T,
    ) -> T {
        let (mut scheduler, mut effects) = (self.lock_scheduler(), Effects::default());
        let result = change(&mut scheduler, &mut effects);
        self.unlock_scheduler(scheduler, effects);
        result
    }

    fn lock_scheduler(&self) -> Locked<'_> {
        let (room, limit) = (value_memory::room(), value_memory::limit());
        let behind = hold_back();
        let mut scheduler = self.scheduler.lock();
        scheduler.set_memory(room, limit);
        scheduler.set_travel_nanos(self.runtime.travel_nanos());
        Locked { scheduler, _behind: behind }
    }

    /// Unlocks the scheduler after a change, performs the effects, and gives it the callers'
    /// answers.
    fn unlock_scheduler<'a>(&'a self, mut scheduler: Locked<'a>, mut effects: Effects) {
        loop {
            self.idle.store(scheduler.idle(), Ordering::Release);
            let all_done = scheduler.is_empty();
            drop(scheduler);
            let answers = self.perform(effects);
            if all_done {
                self.end_if_closed();
            }
            if answers.is_empty() {
                return;
            }
            (scheduler, effects) = (self.lock_scheduler(), Effects::default());
            for answer in answers {
                match answer {
                    Answer::Tasks(run) => scheduler.submit(run, &mut effects),
                    Answer::Report(call, report) => scheduler.report(call, report, &mut effects),
                }
            }
        }
    }

    fn perform(&self, effects: Effects) -> Vec<Answer> {
        #[cfg(feature = "simulation")]
        if let Some(trace) = self.trace {
            effects.note_in(trace, &self.name);
        }
        for (worker, assignment) in effects.assignments {
            self.assign(worker, assignment);
        }
        for (worker, call) in effects.recalls {
            worker.command(PoolCommand::Return(call));
        }
        for (worker, reason) in effects.kills {
            let _ = worker.commands.send(ProcessCommand::Kill(reason));
        }
        for (worker, drained) in effects.retired {
            if drained {
                self.control(ControllerRequest::Retire(worker.number));
            } else {
                let _ = worker.commands.send(ProcessCommand::Shutdown);
            }
        }
        // An abandoned task is the consequence of its worker's end.
        for (worker, verdict, loss) in effects.losses {
            self.worker_ended(&worker, verdict, loss);
        }
        for (exchange, tasks) in effects.run_sizes {
            exchange.set_run_size(tasks);
        }
        for (exchange, run) in effects.held {
            self.hold(&exchange, &run);
        }
        together(|| {
            for (exchange, completion) in effects.completions {
                if let Completion::Abandoned { index, workers, exit } = &completion {
                    let task = TaskName::new(exchange.id, exchange.function, *index);
                    self.task_abandoned(task, *workers, exit);
                }
                exchange.complete(completion);
            }
        });
        let tasks = effects.wanted.into_iter().filter_map(|exchange| exchange.take_open());
        let mut answers: Vec<_> = tasks.map(Answer::Tasks).collect();
        for (exchange, known) in effects.throttled {
            if exchange.buffer.throttle(known) {
                answers.push(Answer::Report(exchange.id, exchange.buffer.report()));
            }
        }
        answers
    }

    /// Submits tasks of a call, with a report of its outcomes.
    pub(super) fn submit(&self, exchange: &Exchange, run: Run) {
        let report = exchange.buffer.report();
        self.with_scheduler(|scheduler, effects| {
            scheduler.report(run.call, report, effects);
            scheduler.submit(run, effects);
        });
    }

    /// Reports what the caller of a call has done with outcomes.
    pub(super) fn report(&self, exchange: &Exchange) {
        let report = exchange.buffer.report();
        self.with_scheduler(|scheduler, effects| scheduler.report(exchange.id, report, effects));
    }

    /// Notes that a call submits `total` tasks in all; `None` if it has stopped.
    pub(super) fn finish_feeding(&self, call: CallId, total: Option<u64>) {
        self.with_scheduler(|scheduler, _| scheduler.finish_feeding(call, total));
    }

    /// Notes that a task of a call fails without having been submitted.
    pub(super) fn skip(&self, call: CallId) {
        self.with_scheduler(|scheduler, _| scheduler.skip(call));
    }

    pub(super) fn cancel(&self, call: CallId, cancellation: Cancellation) {
        let holders = self.with_scheduler(|scheduler, _| scheduler.cancel(call));
        let kill = cancellation == Cancellation::KillWorkers;
        for worker in holders {
            worker.command(PoolCommand::Cancel { call, kill });
        }
        if self.is_outer() {
            self.forget_outer(call);
        }
    }
}
