//! The actor that keeps a pool's workers: it starts its supervisor, adds workers to it and takes
//! them away.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Recipient, WrapFuture,
};
use fiber_core::{ExitReason, Meta, OutputMode, PoolEndReason, Result};
use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::absence::{Absence, Hopeless, Logged, Reason};
use super::shared::{Done, Request, Shared, Worker};
use super::worker::WorkerMain;
use crate::process::ProcessControl;
use crate::runtime::{
    Launch, ProcessCommand, Runtime, SchedulingPolicy, StartRequest, launch, monitor,
};
use crate::supervisor::{
    Backoff, ChildContext, ChildSpec, Running, Shutdown, Start, Supervisor, SupervisorRef,
};

/// How often a pool that scales by itself looks at its queue, and for how long it must be short
/// before workers go.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS_BEFORE_SHRINKING: u32 = 20;

/// How long after the first worker was found to be absent that is logged, if it still is by then.
const LOG_ABSENCE: Duration = Duration::from_secs(2);

/// A worker that worked for this long is replaced at once when it dies; before, there is a pause
/// that grows.
const SETTLED: Duration = Duration::from_millis(100);
/// The pauses between starts: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(2));

/// What a pool's workers are to be.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) meta: Meta,
    pub(super) output: OutputMode,
    pub(super) worker_main: WorkerMain,
    /// Tasks after which a worker is replaced.
    pub(super) quota: Option<u64>,
    pub(super) bounds: RangeInclusive<usize>,
}

/// See the module's documentation.
pub(super) struct Controller {
    runtime: &'static Runtime,
    name: String,
    shared: Weak<Shared>,
    plan: Plan,
    phase: Phase,
    wanted: usize,
    next: u64,
    /// Workers that are there or coming, by their place.
    children: BTreeSet<String>,
    waiting: Vec<Done>,
    short_looks: u32,
    absence: Absence,
}

enum Phase {
    New,
    Starting,
    Running(SupervisorRef),
    Ending,
    Ended,
}

/// Starts a manager on the node's thread.
pub(super) fn start(runtime: &'static Runtime, controller: Controller) -> Recipient<Request> {
    Controller::start_in_arbiter(runtime.arbiter(), |_| controller).recipient()
}

impl Actor for Controller {
    type Context = Context<Controller>;

    fn started(&mut self, context: &mut Context<Controller>) {
        // Its messages are few, and none may be refused.
        context.set_mailbox_capacity(0);
    }
}

impl Controller {
    pub(super) fn new(
        runtime: &'static Runtime,
        name: String,
        shared: Weak<Shared>,
        plan: Plan,
    ) -> Controller {
        let wanted = *plan.bounds.start();
        Controller {
            runtime,
            name,
            shared,
            plan,
            phase: Phase::New,
            wanted,
            next: 1,
            children: BTreeSet::new(),
            waiting: Vec::new(),
            short_looks: 0,
            absence: Absence::default(),
        }
    }

    fn start_supervisor(&mut self, meta: Meta, context: &mut Context<Controller>) {
        if !matches!(self.phase, Phase::New) {
            return;
        }
        self.phase = Phase::Starting;
        self.plan.meta = self.plan.meta.or(meta);
        self.note_wanted();
        // What ends a worker is most often its task, which is abandoned in time: the pool goes on.
        // The pool gives up when no worker is left and none can be started: see `Absence`.
        let supervisor = Supervisor::builder(&*self.name)
            .intensity(u32::MAX, Duration::from_secs(1))
            .backoff(Backoff::new(PAUSES.0, PAUSES.1).reset_after(SETTLED));
        let arbiter = self.runtime.arbiter().clone();
        let started = async move { supervisor.start_on(&arbiter).await };
        context.spawn(started.into_actor(self).map(|started, controller, context| match started {
            Ok(supervisor) => controller.started_supervisor(supervisor, context),
            Err(error) => controller.fail(error.to_string()),
        }));
        if self.plan.bounds.start() < self.plan.bounds.end() {
            context.run_interval(LOOK, Controller::look);
        }
    }

    fn started_supervisor(&mut self, supervisor: SupervisorRef, context: &mut Context<Controller>) {
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
        self.answer();
    }

    fn fail(&mut self, problem: String) {
        self.phase = Phase::Ended;
        if let Some(shared) = self.shared.upgrade() {
            shared.end(PoolEndReason::Failed(problem));
        }
        self.answer();
    }

    fn answer(&mut self) {
        for done in self.waiting.drain(..) {
            let _ = done.send(());
        }
    }

    fn note_wanted(&self) {
        if let Some(shared) = self.shared.upgrade() {
            // One at least: a pool without workers is not ready.
            let wanted = self.wanted.saturating_sub(self.absence.excused()).max(1);
            shared.ready.send_modify(|readiness| readiness.wanted = wanted);
        }
    }

    /// Adds workers, or lets some end.
    fn adjust(&mut self, context: &mut Context<Controller>) {
        let (Phase::Running(supervisor), Some(shared)) = (&self.phase, self.shared.upgrade())
        else {
            return;
        };
        while self.children.len() < self.wanted {
            let child = format!("worker-{}", self.next);
            self.next += 1;
            self.children.insert(child.clone());
            let start = WorkerStart {
                runtime: self.runtime,
                child: child.clone(),
                shared: Arc::downgrade(&shared),
                plan: self.plan.clone(),
            };
            let spec = ChildSpec::new(child.clone(), start)
                .shutdown(Shutdown::After(self.runtime.config().shutdown_timeout));
            let supervisor = supervisor.clone();
            let kept = async move { supervisor.add_child_in_background(spec).await };
            context.spawn(kept.into_actor(self).map(|kept, controller, _| controller.kept(kept)));
        }
        while self.children.len() > self.wanted {
            // Those that are absent are missed least.
            if let Some(child) = self.absence.pop() {
                self.children.remove(&child);
                self.terminate(child, context);
                continue;
            }
            let Some(worker) =
                shared.with_scheduler(|scheduler, effects| scheduler.drain_one(effects))
            else {
                break;
            };
            self.children.remove(&worker.child);
            shared
                .ready
                .send_modify(|readiness| readiness.ready = readiness.ready.saturating_sub(1));
        }
    }

    fn kept(&mut self, kept: Result<()>) {
        if let (Err(error), Phase::Running(_)) = (kept, &self.phase) {
            self.fail(error.to_string());
        }
    }

    fn terminate(&self, child: String, context: &mut Context<Controller>) {
        if let Phase::Running(supervisor) = &self.phase {
            let supervisor = supervisor.clone();
            context
                .spawn(async move { drop(supervisor.stop_child(&child).await) }.into_actor(self));
        }
    }

    fn ready(&self) -> usize {
        self.shared.upgrade().map_or(0, |shared| shared.ready.borrow().ready)
    }

    fn joined(&mut self, child: String, context: &mut Context<Controller>) {
        self.absence.joined(&child);
        if !self.children.contains(&child) {
            // It was drained, and died before it had ended: this is its successor.
            return self.terminate(child, context);
        }
        self.note_wanted();
        if self.absence.logged == Logged::Yes
            && self.absence.is_empty()
            && self.ready() >= self.wanted
        {
            self.absence.logged = Logged::No;
            tracing::info!("pool `{}` has all its {} workers again", self.name, self.wanted);
        }
        // There may be fewer to be than when it was started.
        self.adjust(context);
    }

    /// The pool works with the workers that have room, and grows when there is more.
    fn waits(&mut self, child: String, words: Option<String>, context: &mut Context<Controller>) {
        match words {
            Some(words) => {
                self.absence.no_room(child, words);
                self.log_absence_soon(context);
            }
            None => self.absence.found_room(&child),
        }
        self.note_wanted();
    }

    /// The pool works with the others, and the supervisor tries again.
    fn failed_start(&mut self, child: String, problem: String, context: &mut Context<Controller>) {
        if !matches!(self.phase, Phase::Running(_)) {
            return;
        }
        if !self.children.contains(&child) {
            return self.terminate(child, context);
        }
        self.absence.failed_start(child, problem.clone(), self.ready(), Instant::now());
        self.note_wanted();
        self.log_absence_soon(context);
        self.give_up_if_hopeless(&problem, context);
    }

    fn died_unused(&mut self, end: &str, context: &mut Context<Controller>) {
        self.absence.died_unused(Instant::now());
        self.give_up_if_hopeless(end, context);
    }

    /// Once, and when it is known of each worker whether it is absent.
    fn log_absence_soon(&mut self, context: &mut Context<Controller>) {
        if self.absence.logged == Logged::No {
            self.absence.logged = Logged::Soon;
            context.run_later(LOG_ABSENCE, Controller::log_absence);
        }
    }

    fn log_absence(&mut self, context: &mut Context<Controller>) {
        let Some(reason) = self.absence.reason().cloned() else {
            self.absence.logged = Logged::No;
            return;
        };
        let ready = self.ready();
        if ready == 0 || ready + self.absence.len() < self.wanted {
            context.run_later(LOG_ABSENCE, Controller::log_absence);
            return;
        }
        self.absence.logged = Logged::Yes;
        self.note_wanted();
        let (name, wanted) = (&self.name, self.wanted);
        match reason {
            Reason::NoRoom(words) => tracing::warn!(
                "pool `{name}` works with {ready} of {wanted} workers, and grows when there is room for the others: {words}"
            ),
            Reason::NotStarted(problem) => tracing::warn!(
                "pool `{name}` works with {ready} of {wanted} workers, and goes on trying to start the others; a start \
                 failed: {problem}"
            ),
        }
    }

    /// `last` is the last failure, in words.
    fn give_up_if_hopeless(&mut self, last: &str, context: &mut Context<Controller>) {
        let scheduling = self.runtime.config().start_timeout;
        let hopeless = self.absence.is_hopeless(&self.children, scheduling, Instant::now());
        let (Some(hopeless), Phase::Running(_)) = (hopeless, &self.phase) else { return };
        let why = match hopeless {
            Hopeless::NoneStarted => format!("its workers could not be started: {last}"),
            Hopeless::FailedStarts(count) => {
                format!("{count} starts of workers in a row failed; the last: {last}")
            }
            Hopeless::DiedUnused(count) => {
                format!(
                    "{count} workers in a row died young, before they had a task; the last {last}"
                )
            }
        };
        if let Some(shared) = self.shared.upgrade() {
            shared.end(PoolEndReason::Failed(why));
        }
        self.end(context);
    }

    /// Follows the queue.
    fn look(&mut self, context: &mut Context<Controller>) {
        if matches!(self.phase, Phase::Ended) {
            // Looking again and again would keep it alive.
            return context.stop();
        }
        let (Phase::Running(_), Some(shared)) = (&self.phase, self.shared.upgrade()) else {
            return;
        };
        let open = shared.scheduler.lock().open();
        let needed =
            usize::try_from(open.div_ceil(self.plan.worker_main.threads)).unwrap_or(usize::MAX);
        let needed = needed.clamp(*self.plan.bounds.start(), *self.plan.bounds.end());
        self.short_looks = if needed < self.wanted { self.short_looks + 1 } else { 0 };
        if needed > self.wanted || self.short_looks > LOOKS_BEFORE_SHRINKING {
            self.short_looks = 0;
            self.wanted = needed;
            self.note_wanted();
            self.adjust(context);
        }
    }

    fn end(&mut self, context: &mut Context<Controller>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Ending);
        match phase {
            Phase::New | Phase::Starting => {
                self.phase = Phase::Ended;
                self.answer();
            }
            Phase::Running(supervisor) => {
                let ended = async move { supervisor.stop().await };
                context.spawn(ended.into_actor(self).map(|_, controller, _| {
                    controller.phase = Phase::Ended;
                    controller.answer();
                }));
            }
            other => self.phase = other,
        }
        if matches!(self.phase, Phase::Ended) {
            self.answer();
        }
    }

    fn close(&mut self, context: &mut Context<Controller>) {
        let done = self.shared.upgrade().is_none_or(|shared| shared.scheduler.lock().is_empty());
        if done {
            self.end(context);
            if let Some(shared) = self.shared.upgrade() {
                shared.end(PoolEndReason::Stopped);
            }
        }
    }
}

impl Handler<Request> for Controller {
    type Result = ();

    fn handle(&mut self, request: Request, context: &mut Context<Controller>) {
        match request {
            Request::Start(meta) => self.start_supervisor(meta, context),
            Request::Scale(count, noted) => {
                self.wanted = count;
                self.note_wanted();
                self.adjust(context);
                let _ = noted.send(());
            }
            Request::Retire(child) => self.terminate(child, context),
            Request::FailedStart(child, problem) => self.failed_start(child, problem, context),
            Request::Joined(child) => self.joined(child, context),
            Request::Waits(child, words) => self.waits(child, words, context),
            Request::DiedUnused(end) => self.died_unused(&end, context),
            Request::Lived => self.absence.worked(),
            Request::Close => self.close(context),
            Request::Join(done) => {
                self.waiting.push(done);
                self.close(context);
                if matches!(self.phase, Phase::Ended) {
                    self.answer();
                }
            }
            Request::Terminate(shared, done) => {
                self.waiting.extend(done);
                for worker in shared.scheduler.lock().handles() {
                    let _ = worker.commands.send(ProcessCommand::Kill(ExitReason::Shutdown));
                }
                self.end(context);
            }
        }
    }
}

/// Starts a worker's process, once for each incarnation.
struct WorkerStart {
    runtime: &'static Runtime,
    child: String,
    shared: Weak<Shared>,
    plan: Plan,
}

impl Start for WorkerStart {
    fn start(
        &mut self,
        context: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (runtime, child, shared, plan) =
            (self.runtime, self.child.clone(), self.shared.clone(), self.plan.clone());
        Box::pin(async move {
            let launched = launch(
                runtime,
                Launch {
                    name: context.path().to_string(),
                    restarts: context.restarts(),
                    // The controller counts failed starts, and decides how long to try.
                    retry_creation: false,
                    meta: plan.meta,
                    output: plan.output,
                    request: StartRequest::new(&plan.worker_main),
                    scheduling: Some(Box::new(WorkerScheduling {
                        child: child.clone(),
                        shared: shared.clone(),
                    })),
                },
            );
            let launched = launched.await.map_err(|exit| {
                let reason = exit.start_failure();
                if let Some(shared) = shared.upgrade() {
                    shared
                        .controller
                        .do_send(Request::FailedStart(child.clone(), reason.start_problem()));
                }
                reason
            })?;
            let place = launched.place();
            let (commands, inbox) = mpsc::unbounded_channel();
            let worker = Arc::new(Worker {
                id: NEXT.fetch_add(1, Ordering::Relaxed),
                child,
                link: Arc::clone(&launched.connection.link),
                commands: commands.clone(),
                ready_since: Instant::now(),
            });
            if let Some(shared) = shared.upgrade() {
                shared.join(Arc::clone(&worker), plan.worker_main.threads, plan.quota);
            }
            let (exited, exit) = oneshot::channel();
            actix::spawn(async move {
                let receive = |message| {
                    if let Some(shared) = shared.upgrade() {
                        shared.receive(&worker, message);
                    }
                };
                let exit = monitor(runtime, launched, inbox, receive).await;
                if let Some(shared) = shared.upgrade() {
                    shared.lost(&worker, &exit);
                }
                let _ = exited.send(exit.reason);
            });
            let exited =
                async { exit.await.unwrap_or(ExitReason::LinkLost("its attendant ended".into())) };
            Ok(Running::new(ProcessControl(commands), exited).place(place))
        })
    }
}

/// A worker waits for room as long as others are at work.
struct WorkerScheduling {
    child: String,
    shared: Weak<Shared>,
}

impl SchedulingPolicy for WorkerScheduling {
    fn set_unschedulable(&self, reason: Option<&str>) {
        if let Some(shared) = self.shared.upgrade() {
            shared
                .controller
                .do_send(Request::Waits(self.child.clone(), reason.map(str::to_string)));
        }
    }

    fn may_wait_longer(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.ready.borrow().ready > 0)
    }
}

impl Drop for WorkerScheduling {
    /// It is at work, or it could not be started.
    fn drop(&mut self) {
        self.set_unschedulable(None);
    }
}
