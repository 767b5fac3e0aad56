//! Starts of workers that succeed, fail or wait for room, and ends of workers.

use std::time::{Duration, Instant};

use actix::{AsyncContext, Context};
use fiber_core::PoolEndReason;

use super::missing::{GiveUp, MissingCause, Warning};
use super::{Controller, WorkerNumber};
use crate::verdict::{Lesson, Verdict};

/// How long after the first worker was found to be missing the controller logs a warning, if
/// workers are still missing.
const WARN_AFTER: Duration = Duration::from_secs(2);

impl Controller {
    pub(super) fn ready(&self) -> usize {
        self.pool.upgrade().map_or(0, |pool| pool.readiness.borrow().ready)
    }

    pub(super) fn worker_ready(&mut self, number: WorkerNumber, context: &mut Context<Controller>) {
        self.missing.ready(number);
        if !self.children.contains_key(&number) {
            // A drained worker died before it stopped, and the supervisor replaced it.
            return self.stop_worker(number);
        }
        self.publish_wanted();
        if self.missing.warning == Warning::Logged
            && self.missing.is_empty()
            && self.ready() >= self.wanted
        {
            self.missing.warning = Warning::None;
            tracing::info!("pool `{}` has all its {} workers again", self.name, self.wanted);
        }
        // The pool may have been scaled down during the start.
        self.adjust(context);
    }

    /// Notes what the end of a worker shows.
    pub(super) fn worker_ended(
        &mut self,
        number: WorkerNumber,
        verdict: &Verdict,
        context: &mut Context<Controller>,
    ) {
        let reason = &verdict.exit.reason;
        if reason.is_disruption() {
            self.worker_displaced(reason);
        }
        match verdict.lesson {
            Lesson::Nothing => {}
            Lesson::HadTask | Lesson::Lives => self.missing.worked(),
            Lesson::StartFailed => self.start_failed(number, reason.start_problem(), context),
            Lesson::DiedUnused => {
                self.missing.died_unused(Instant::now());
                self.give_up_if_hopeless(&verdict.exit.to_string(), context);
            }
        }
    }

    /// Notes that a worker waits for room, for `reason`, or has found it. Meanwhile the pool works
    /// with the others.
    pub(super) fn scheduling_changed(
        &mut self,
        number: WorkerNumber,
        reason: Option<String>,
        context: &mut Context<Controller>,
    ) {
        match reason {
            Some(reason) => {
                self.missing.no_room(number, reason);
                self.schedule_warning(context);
            }
            None => self.missing.found_room(number),
        }
        self.publish_wanted();
    }

    /// Notes that a worker could not be started. The pool works with the others, and the supervisor
    /// tries again.
    fn start_failed(
        &mut self,
        number: WorkerNumber,
        problem: String,
        context: &mut Context<Controller>,
    ) {
        if self.supervisor().is_none() {
            return;
        }
        if !self.children.contains_key(&number) {
            return self.stop_worker(number);
        }
        self.missing.start_failed(number, problem.clone(), self.ready(), Instant::now());
        if self.runtime.starts_are_over().is_some() {
            self.missing.starts_are_over();
        }
        self.publish_wanted();
        self.schedule_warning(context);
        self.give_up_if_hopeless(&problem, context);
    }

    pub(super) fn schedule_warning(&mut self, context: &mut Context<Controller>) {
        if self.missing.warning == Warning::None {
            self.missing.warning = Warning::Scheduled;
            context.run_later(WARN_AFTER, Controller::warn_of_missing);
        }
    }

    /// Logs one warning once each worker is either ready or missing.
    pub(super) fn warn_of_missing(&mut self, context: &mut Context<Controller>) {
        let Some(cause) = self.missing.cause().cloned() else {
            self.missing.warning = Warning::None;
            return;
        };
        let ready = self.ready();
        if ready == 0 || ready + self.missing.len() < self.wanted {
            context.run_later(WARN_AFTER, Controller::warn_of_missing);
            return;
        }
        self.missing.warning = Warning::Logged;
        self.publish_wanted();
        let (name, wanted) = (&self.name, self.wanted);
        match cause {
            MissingCause::NoRoom(message) => tracing::warn!(
                "pool `{name}` works with {ready} of {wanted} workers, and grows when there is \
                 room for the others: {message}"
            ),
            MissingCause::StartFailed(problem) => tracing::warn!(
                "pool `{name}` works with {ready} of {wanted} workers, and goes on trying to start \
                 the others; a start failed: {problem}"
            ),
        }
    }

    /// Ends the pool if no worker can be expected any more. `last` describes the last failure.
    pub(super) fn give_up_if_hopeless(&mut self, last: &str, context: &mut Context<Controller>) {
        let grace = self.runtime.config().start_timeout;
        let give_up = self.missing.give_up(&self.children, grace, Instant::now());
        let (Some(give_up), Some(_)) = (give_up, self.supervisor()) else { return };
        let problem = match give_up {
            GiveUp::NoneStarted => format!("its workers could not be started: {last}"),
            GiveUp::StartsFailed(count) => {
                format!("{count} starts of workers in a row failed; the last: {last}")
            }
            GiveUp::DiedUnused(count) => {
                format!(
                    "{count} workers in a row died young, before they had a task; the last {last}"
                )
            }
        };
        if let Some(pool) = self.pool.upgrade() {
            pool.end(PoolEndReason::Failed(problem));
        }
        self.stop_workers(context);
    }
}
