//! The controller of a pool: an actor that starts the pool's supervisor and adds, replaces and
//! removes workers.

mod request;
mod worker_start;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Weak;
use std::time::{Duration, Instant};

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Recipient, WrapFuture,
};
use fiber_core::{ExitReason, Meta, OutputMode, PoolEndReason, Result};
use tokio::sync::oneshot;

use self::worker_start::WorkerStart;
use super::missing::{Cause, GiveUp, MissingWorkers, Warning};
use super::state::PoolState;
use super::worker::WorkerMain;
use crate::runtime::{ProcessCommand, Runtime};
use crate::supervisor::{Backoff, ChildSpec, Shutdown, Supervisor, SupervisorRef};

pub(super) use self::request::ControllerRequest;

/// How often a scaling pool looks at its tasks, and after how many looks in a row at which fewer
/// workers were enough it removes workers.
const SCALE_INTERVAL: Duration = Duration::from_millis(100);
const LOOKS_BEFORE_SHRINKING: u32 = 20;

/// How long after the first worker was found to be missing the controller logs a warning, if workers
/// are still missing.
const WARN_AFTER: Duration = Duration::from_secs(2);

/// A worker that lived this long is replaced at once when it dies. Otherwise there is a growing
/// pause.
const RESET_AFTER: Duration = Duration::from_millis(100);
/// The first and the longest pause between starts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(2));

/// The configuration of a pool's workers.
#[derive(Clone)]
pub(super) struct PoolSpec {
    pub(super) meta: Meta,
    pub(super) output: OutputMode,
    pub(super) worker_main: WorkerMain,
    /// The number of tasks after which a worker is replaced.
    pub(super) quota: Option<u64>,
    /// The least and the largest number of workers.
    pub(super) bounds: RangeInclusive<usize>,
}

/// See the module's documentation.
pub(super) struct Controller {
    runtime: &'static Runtime,
    name: String,
    pool: Weak<PoolState>,
    spec: PoolSpec,
    phase: Phase,
    wanted: usize,
    /// The number of the next worker.
    next: u64,
    /// The names of the supervisor's children.
    children: BTreeSet<String>,
    /// Callers that wait for the end of all workers.
    joining: Vec<oneshot::Sender<()>>,
    /// Looks in a row at which fewer workers were enough.
    looks_below: u32,
    missing: MissingWorkers,
}

enum Phase {
    New,
    Starting,
    Running(SupervisorRef),
    Stopping,
    Ended,
}

/// Starts a controller on the runtime's thread.
pub(super) fn start(
    runtime: &'static Runtime,
    controller: Controller,
) -> Recipient<ControllerRequest> {
    Controller::start_in_arbiter(runtime.arbiter(), |_| controller).recipient()
}

impl Actor for Controller {
    type Context = Context<Controller>;

    fn started(&mut self, context: &mut Context<Controller>) {
        // Requests are few, and none may be refused.
        context.set_mailbox_capacity(0);
    }
}

impl Controller {
    pub(super) fn new(
        runtime: &'static Runtime,
        name: String,
        pool: Weak<PoolState>,
        spec: PoolSpec,
    ) -> Controller {
        let wanted = *spec.bounds.start();
        Controller {
            runtime,
            name,
            pool,
            spec,
            phase: Phase::New,
            wanted,
            next: 1,
            children: BTreeSet::new(),
            joining: Vec::new(),
            looks_below: 0,
            missing: MissingWorkers::default(),
        }
    }

    fn start_supervisor(&mut self, meta: Meta, context: &mut Context<Controller>) {
        if !matches!(self.phase, Phase::New) {
            return;
        }
        self.phase = Phase::Starting;
        self.spec.meta = self.spec.meta.or(meta);
        self.publish_wanted();
        // Most workers die of their task, which is abandoned after some deaths, so the intensity has
        // no limit. The pool itself gives up if no worker is left and none can be started: see
        // `MissingWorkers`.
        let supervisor = Supervisor::builder(&*self.name)
            .intensity(u32::MAX, Duration::from_secs(1))
            .backoff(Backoff::new(PAUSES.0, PAUSES.1).reset_after(RESET_AFTER));
        let arbiter = self.runtime.arbiter().clone();
        let started = async move { supervisor.start_on(&arbiter).await };
        context.spawn(started.into_actor(self).map(|started, controller, context| match started {
            Ok(supervisor) => controller.supervisor_started(supervisor, context),
            Err(error) => controller.fail(error.to_string()),
        }));
        if self.spec.bounds.start() < self.spec.bounds.end() {
            context.run_interval(SCALE_INTERVAL, Controller::scale_with_tasks);
        }
    }

    fn supervisor_started(&mut self, supervisor: SupervisorRef, context: &mut Context<Controller>) {
        if !matches!(self.phase, Phase::Starting) {
            context.spawn(async move { drop(supervisor.stop().await) }.into_actor(self));
            return;
        }
        let watched = supervisor.clone();
        self.phase = Phase::Running(supervisor);
        let ended = async move { watched.join().await.unwrap_or(ExitReason::Shutdown) };
        context.spawn(
            ended
                .into_actor(self)
                .map(|reason, controller, _| controller.supervisor_ended(&reason)),
        );
        self.adjust(context);
    }

    fn supervisor_ended(&mut self, reason: &ExitReason) {
        if !reason.is_normal() {
            return self.fail(format!("it {reason}"));
        }
        self.phase = Phase::Ended;
        self.answer_joining();
    }

    fn fail(&mut self, problem: String) {
        self.phase = Phase::Ended;
        if let Some(pool) = self.pool.upgrade() {
            pool.end(PoolEndReason::Failed(problem));
        }
        self.answer_joining();
    }

    fn answer_joining(&mut self) {
        for done in self.joining.drain(..) {
            let _ = done.send(());
        }
    }

    /// Publishes the number of workers that callers wait for.
    fn publish_wanted(&self) {
        if let Some(pool) = self.pool.upgrade() {
            // At least one: a pool without workers is not ready.
            let wanted = self.wanted.saturating_sub(self.missing.excused()).max(1);
            pool.readiness.send_modify(|readiness| readiness.wanted = wanted);
        }
    }

    /// Adds or removes workers until there are as many as wanted.
    fn adjust(&mut self, context: &mut Context<Controller>) {
        let (Phase::Running(supervisor), Some(pool)) = (&self.phase, self.pool.upgrade()) else {
            return;
        };
        while self.children.len() < self.wanted {
            let child = format!("worker-{}", self.next);
            self.next += 1;
            self.children.insert(child.clone());
            let start = WorkerStart::new(self.runtime, child.clone(), &pool, self.spec.clone());
            let spec = ChildSpec::new(child, start)
                .shutdown(Shutdown::After(self.runtime.config().shutdown_timeout));
            let supervisor = supervisor.clone();
            let added = async move { supervisor.add_child_in_background(spec).await };
            context.spawn(
                added.into_actor(self).map(|added, controller, _| controller.child_added(added)),
            );
        }
        while self.children.len() > self.wanted {
            // Missing workers go first.
            if let Some(child) = self.missing.pop() {
                self.children.remove(&child);
                self.stop_worker(child, context);
                continue;
            }
            let Some(worker) =
                pool.with_scheduler(|scheduler, effects| scheduler.drain_one(effects))
            else {
                break;
            };
            self.children.remove(&worker.child);
            pool.readiness
                .send_modify(|readiness| readiness.ready = readiness.ready.saturating_sub(1));
        }
    }

    fn child_added(&mut self, added: Result<()>) {
        if let (Err(error), Phase::Running(_)) = (added, &self.phase) {
            self.fail(error.to_string());
        }
    }

    fn stop_worker(&self, child: String, context: &mut Context<Controller>) {
        if let Phase::Running(supervisor) = &self.phase {
            let supervisor = supervisor.clone();
            context
                .spawn(async move { drop(supervisor.stop_child(&child).await) }.into_actor(self));
        }
    }

    fn ready(&self) -> usize {
        self.pool.upgrade().map_or(0, |pool| pool.readiness.borrow().ready)
    }

    fn worker_ready(&mut self, child: String, context: &mut Context<Controller>) {
        self.missing.ready(&child);
        if !self.children.contains(&child) {
            // A drained worker died before it stopped, and the supervisor replaced it.
            return self.stop_worker(child, context);
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

    /// Notes that a worker waits for room, for `reason`, or has found it. Meanwhile the pool works
    /// with the others.
    fn scheduling_changed(
        &mut self,
        child: String,
        reason: Option<String>,
        context: &mut Context<Controller>,
    ) {
        match reason {
            Some(reason) => {
                self.missing.no_room(child, reason);
                self.schedule_warning(context);
            }
            None => self.missing.found_room(&child),
        }
        self.publish_wanted();
    }

    /// Notes that a worker could not be started. The pool works with the others, and the supervisor
    /// tries again.
    fn start_failed(&mut self, child: String, problem: String, context: &mut Context<Controller>) {
        if !matches!(self.phase, Phase::Running(_)) {
            return;
        }
        if !self.children.contains(&child) {
            return self.stop_worker(child, context);
        }
        self.missing.start_failed(child, problem.clone(), self.ready(), Instant::now());
        self.publish_wanted();
        self.schedule_warning(context);
        self.give_up_if_hopeless(&problem, context);
    }

    fn died_unused(&mut self, exit: &str, context: &mut Context<Controller>) {
        self.missing.died_unused(Instant::now());
        self.give_up_if_hopeless(exit, context);
    }

    fn schedule_warning(&mut self, context: &mut Context<Controller>) {
        if self.missing.warning == Warning::None {
            self.missing.warning = Warning::Scheduled;
            context.run_later(WARN_AFTER, Controller::warn_of_missing);
        }
    }

    /// Logs one warning once each worker is either ready or missing.
    fn warn_of_missing(&mut self, context: &mut Context<Controller>) {
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
            Cause::NoRoom(message) => tracing::warn!(
                "pool `{name}` works with {ready} of {wanted} workers, and grows when there is room for the others: {message}"
            ),
            Cause::StartFailed(problem) => tracing::warn!(
                "pool `{name}` works with {ready} of {wanted} workers, and goes on trying to start the others; a start \
                 failed: {problem}"
            ),
        }
    }

    /// Ends the pool if no worker can be expected any more. `last` describes the last failure.
    fn give_up_if_hopeless(&mut self, last: &str, context: &mut Context<Controller>) {
        let grace = self.runtime.config().start_timeout;
        let give_up = self.missing.give_up(&self.children, grace, Instant::now());
        let (Some(give_up), Phase::Running(_)) = (give_up, &self.phase) else { return };
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

    /// Sets the number of workers that the open tasks need.
    fn scale_with_tasks(&mut self, context: &mut Context<Controller>) {
        if matches!(self.phase, Phase::Ended) {
            // The interval would keep the actor alive.
            return context.stop();
        }
        let (Phase::Running(_), Some(pool)) = (&self.phase, self.pool.upgrade()) else {
            return;
        };
        let open = pool.scheduler.lock().open();
        let needed =
            usize::try_from(open.div_ceil(self.spec.worker_main.threads)).unwrap_or(usize::MAX);
        let needed = needed.clamp(*self.spec.bounds.start(), *self.spec.bounds.end());
        self.looks_below = if needed < self.wanted { self.looks_below + 1 } else { 0 };
        if needed > self.wanted || self.looks_below > LOOKS_BEFORE_SHRINKING {
            self.looks_below = 0;
            self.scale(needed, context);
        }
    }

    fn scale(&mut self, wanted: usize, context: &mut Context<Controller>) {
        self.wanted = wanted;
        self.publish_wanted();
        self.adjust(context);
    }

    fn stop_workers(&mut self, context: &mut Context<Controller>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Stopping);
        match phase {
            Phase::New | Phase::Starting => self.phase = Phase::Ended,
            Phase::Running(supervisor) => {
                let ended = async move { supervisor.stop().await };
                context.spawn(ended.into_actor(self).map(|_, controller, _| {
                    controller.phase = Phase::Ended;
                    controller.answer_joining();
                }));
            }
            other => self.phase = other,
        }
        if matches!(self.phase, Phase::Ended) {
            self.answer_joining();
        }
    }

    /// Ends the pool if it has no calls.
    fn end_if_done(&mut self, context: &mut Context<Controller>) {
        let done = self.pool.upgrade().is_none_or(|pool| pool.scheduler.lock().is_empty());
        if done {
            self.stop_workers(context);
            if let Some(pool) = self.pool.upgrade() {
                pool.end(PoolEndReason::Stopped);
            }
        }
    }
}

impl Handler<ControllerRequest> for Controller {
    type Result = ();

    fn handle(&mut self, request: ControllerRequest, context: &mut Context<Controller>) {
        match request {
            ControllerRequest::Start(meta) => self.start_supervisor(meta, context),
            ControllerRequest::Scale(wanted, noted) => {
                self.scale(wanted, context);
                let _ = noted.send(());
            }
            ControllerRequest::Retire(child) => self.stop_worker(child, context),
            ControllerRequest::StartFailed(child, problem) => {
                self.start_failed(child, problem, context)
            }
            ControllerRequest::WorkerReady(child) => self.worker_ready(child, context),
            ControllerRequest::SchedulingChanged(child, reason) => {
                self.scheduling_changed(child, reason, context)
            }
            ControllerRequest::DiedUnused(exit) => self.died_unused(&exit, context),
            ControllerRequest::Worked => self.missing.worked(),
            ControllerRequest::Close => self.end_if_done(context),
            ControllerRequest::Join(done) => {
                self.joining.push(done);
                if matches!(self.phase, Phase::Ended) {
                    self.answer_joining();
                }
            }
            ControllerRequest::Kill(pool) => {
                for worker in pool.scheduler.lock().handles() {
                    let _ = worker.commands.send(ProcessCommand::Kill(ExitReason::Shutdown));
                }
                self.stop_workers(context);
            }
        }
    }
}
