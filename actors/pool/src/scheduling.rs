//! The driver of a pool's life: events go in under its lock, and effects are performed outside of
//! it.
//!
//! Callers answer two effects with events: they submit tasks that they have prepared, and report
//! the outcomes that they have taken. The answers go in together, under the lock once more.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fiber_core::stats::TaskName;
use fiber_core::{Error, value_memory};
use fiber_values::{HeldBack, hold_back};
use parking_lot::MutexGuard;

use super::controller::ControllerRequest;
use super::exchange::Exchange;
use super::held::together;
use super::life::PoolLife;
use super::run::{CallId, Run};
use super::scheduler::{Completion, Notice, Report, Scheduler};
use super::state::{Cancellation, PoolState};
use super::wire::PoolCommand;
use super::worker_handle::WorkerHandle;
use fiber_runtime::runtime::{DrainHook, ProcessCommand};

pub(super) type SharedLife = PoolLife<Arc<WorkerHandle>, Arc<Exchange>>;
type PoolScheduler = Scheduler<Arc<WorkerHandle>, Arc<Exchange>>;
pub(super) type Effects = super::scheduler::Effects<Arc<WorkerHandle>, Arc<Exchange>>;

/// An event with which a caller answers an effect.
enum Answer {
    Tasks(Run),
    Report(CallId, Report),
}

/// A life under its lock. A task that is dropped may own the last handle of an input, and that its
/// call, which is cancelled behind the lock.
struct Locked<'a> {
    life: MutexGuard<'a, SharedLife>,
    _behind: HeldBack,
}

impl Deref for Locked<'_> {
    type Target = SharedLife;

    fn deref(&self) -> &SharedLife {
        &self.life
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut SharedLife {
        &mut self.life
    }
}

/// Threads that send assignments outside of the lock.
#[derive(Default)]
pub(super) struct Assigning {
    threads: usize,
    /// Cancellations that may arrive before tasks of their calls. They are sent again behind those:
    /// a worker that does not know of one would run all that it holds.
    overtaking: Vec<(Arc<WorkerHandle>, PoolCommand)>,
}

impl PoolState {
    /// Changes the life, and performs the effects.
    pub(super) fn with_life<T>(
        &self,
        change: impl FnOnce(&mut SharedLife, &mut Effects) -> T,
    ) -> T {
        let (mut life, mut effects) = (self.lock_life(), Effects::default());
        let result = change(&mut life, &mut effects);
        self.unlock_life(life, effects);
        result
    }

    /// Changes the scheduler, and performs the effects.
    pub(super) fn with_scheduler<T>(
        &self,
        change: impl FnOnce(&mut PoolScheduler, &mut Effects) -> T,
    ) -> T {
        self.with_life(|life, effects| change(&mut life.scheduler, effects))
    }

    fn lock(&self) -> Locked<'_> {
        let behind = hold_back();
        Locked { life: self.life.lock(), _behind: behind }
    }

    fn lock_life(&self) -> Locked<'_> {
        let (room, limit) = (value_memory::room(), value_memory::limit());
        let mut life = self.lock();
        life.scheduler.set_memory(room, limit);
        life.scheduler.set_travel_nanos(self.runtime.travel_nanos());
        life
    }

    /// Unlocks the life after a change, performs the effects, and gives it the callers' answers.
    fn unlock_life<'a>(&'a self, mut life: Locked<'a>, mut effects: Effects) {
        loop {
            let is_over = life.is_over();
            let answers = self.settle(life, effects);
            if is_over {
                self.end_if_over();
            }
            if answers.is_empty() {
                return;
            }
            (life, effects) = (self.lock_life(), Effects::default());
            for answer in answers {
                match answer {
                    Answer::Tasks(run) => life.scheduler.submit(run, &mut effects),
                    Answer::Report(call, report) => {
                        life.scheduler.report(call, report, &mut effects)
                    }
                }
            }
        }
    }

    /// Ends the pool if it is closed, its calls are done and their outcomes recorded.
    pub(super) fn end_if_over(&self) {
        let (mut life, mut effects) = (self.lock(), Effects::default());
        if !self.is_recording() {
            life.end_if_over(&mut effects);
        }
        self.settle(life, effects);
    }

    /// Unlocks the life and performs effects. Returns the callers' answers.
    fn settle(&self, mut life: Locked<'_>, mut effects: Effects) -> Vec<Answer> {
        self.idle.store(life.scheduler.idle(), Ordering::Release);
        // Under the lock, so that the controller gets them in their order.
        effects.requests.drain(..).for_each(|request| self.control(request));
        let is_changed = life.note_readiness();
        if !effects.assignments.is_empty() {
            self.assigning.lock().threads += 1;
        }
        drop(life);
        if is_changed {
            self.readiness_changed.send_replace(());
        }
        self.perform(effects)
    }

    fn perform(&self, effects: Effects) -> Vec<Answer> {
        #[cfg(feature = "simulation")]
        if let Some(trace) = self.trace {
            effects.note_in(trace, &self.name);
        }
        if !effects.assignments.is_empty() {
            for (worker, assignment) in effects.assignments {
                self.assign(worker, assignment);
            }
            self.have_assigned();
        }
        for (worker, call) in effects.recalls {
            worker.command(PoolCommand::Return(call));
        }
        for (worker, reason) in effects.kills {
            worker.kill(reason);
        }
        for (worker, drained) in effects.retired {
            if drained {
                self.control(ControllerRequest::StopWorker(worker.number));
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
            exchange.hold(&run);
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
        if let Some((reason, callers)) = effects.ended {
            for exchange in callers {
                exchange.end(Error::PoolEnded { name: self.name.clone(), reason: reason.clone() });
            }
        }
        for notice in effects.notices {
            match notice {
                Notice::Warning(text) => tracing::warn!("pool `{}`{text}", self.name),
                Notice::Info(text) => tracing::info!("pool `{}`{text}", self.name),
            }
        }
        let tasks = effects.wanted.into_iter().filter_map(|exchange| exchange.take_open());
        let mut answers: Vec<_> = tasks.map(Answer::Tasks).collect();
        for (exchange, known) in effects.throttled {
            if exchange.buffer.throttle(known) {
                answers.push(Answer::Report(exchange.id, exchange.buffer.report()));
            }
        }
        answers
    }

    /// Notes that a thread has sent its assignments.
    fn have_assigned(&self) {
        let mut assigning = self.assigning.lock();
        assigning.threads -= 1;
        if assigning.threads == 0 {
            let overtaking = std::mem::take(&mut assigning.overtaking);
            drop(assigning);
            overtaking.iter().for_each(|(worker, cancel)| worker.command(cancel.clone()));
        }
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
        let cancel = PoolCommand::Cancel { call, kill: cancellation == Cancellation::KillWorkers };
        let mut assigning = self.assigning.lock();
        if assigning.threads > 0 {
            let cancels = holders.iter().map(|worker| (Arc::clone(worker), cancel.clone()));
            assigning.overtaking.extend(cancels);
        }
        drop(assigning);
        holders.iter().for_each(|worker| worker.command(cancel.clone()));
        if self.is_outer() {
            self.forget_outer(call);
        }
    }
}
