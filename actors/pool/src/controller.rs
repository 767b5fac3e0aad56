//! The controller of a pool: an actor that starts the pool's supervisor and adds, replaces and
//! removes workers.

mod disrupted;
mod missing;
mod request;
mod scaling;
mod starts;
mod worker_start;

use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};
use std::time::Duration;

use actix::dev::channel::channel;
use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Recipient,
    WrapFuture,
};
use fiber_backends::ChildOutput;
use fiber_core::{ExitReason, Meta, PoolEndReason, SortedMap};
use tokio::sync::oneshot;

use self::disrupted::DisruptedWorkers;
use self::missing::MissingWorkers;
use self::scaling::SCALE_INTERVAL;
use super::phase::Workers;
use super::state::PoolState;
use super::worker::WorkerMain;
use fiber_runtime::runtime::{HostGroup, ProcessCommand, Runtime};
use fiber_supervisor::supervisor::{Backoff, Supervisor, SupervisorRef};

pub(super) use self::request::{ControllerRequest, WorkerNumber, worker_name};

/// A worker that had a task or lived this long is replaced at once when it dies. Otherwise there is
/// a growing pause.
const RESET_AFTER: Duration = Duration::from_millis(100);
/// The first and the longest pause between starts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(2));

/// The configuration of a pool's workers.
#[derive(Clone)]
pub(super) struct PoolSpec {
    pub(super) meta: Meta,
    pub(super) output: ChildOutput,
    pub(super) worker_main: WorkerMain,
    /// The number of tasks after which a worker is replaced.
    pub(super) quota: Option<u64>,
    /// The least and the largest number of workers.
    pub(super) bounds: RangeInclusive<usize>,
    pub(super) hosts: Arc<HostGroup>,
}

/// See the module's documentation.
pub(super) struct Controller {
    runtime: &'static Runtime,
    name: String,
    pool: Weak<PoolState>,
    spec: PoolSpec,
    wanted: usize,
    /// The number of the next worker.
    next: u64,
    /// The supervisor's children.
    children: SortedMap<WorkerNumber, ()>,
    /// Callers that wait for the end of all workers.
    joining: Vec<oneshot::Sender<()>>,
    /// Looks in a row at which fewer workers were enough.
    looks_below: u32,
    missing: MissingWorkers,
    disrupted: DisruptedWorkers,
}

/// Starts a controller on the runtime's thread.
pub(super) fn start(
    runtime: &'static Runtime,
    controller: Controller,
) -> Recipient<ControllerRequest> {
    // Requests are few, and none may be refused.
    let (requests, inbox) = channel(0);
    // Not by an arbiter: a thread that ends can't reach what that spawns.
    runtime.spawn(move || Context::with_receiver(inbox).into_future(controller));
    Addr::new(requests).recipient()
}

impl Actor for Controller {
    type Context = Context<Controller>;
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
            wanted,
            next: 1,
            children: SortedMap::new(),
            joining: Vec::new(),
            looks_below: 0,
            missing: MissingWorkers::default(),
            disrupted: DisruptedWorkers::default(),
        }
    }

    fn start_supervisor(&mut self, meta: Meta, context: &mut Context<Controller>) {
        self.spec.meta = self.spec.meta.or(meta);
        self.publish_wanted();
        // Most workers die of their task, which is abandoned after some deaths, so the intensity
        // has no limit. The pool itself gives up if no worker is left and none can be started: see
        // `MissingWorkers`.
        let supervisor = Supervisor::builder(&*self.name)
            .quiet()
            .intensity(u32::MAX, Duration::from_secs(1))
            .backoff(Backoff::new(PAUSES.0, PAUSES.1).reset_after(RESET_AFTER));
        let arbiter = self.runtime.arbiter().clone();
        let started = async move { supervisor.start_on(&arbiter).await };
        context.spawn(started.into_actor(self).map(|started, controller, context| match started {
            Ok(supervisor) => controller.supervisor_started(supervisor, context),
            Err(error) => controller.fail(error.to_string(), context),
        }));
        context.run_interval(super::stats::INTERVAL, |controller, _| {
            if let Some(pool) = controller.pool.upgrade() {
                pool.note_progress();
            }
        });
        if self.spec.bounds.start() < self.spec.bounds.end() {
            context.run_interval(SCALE_INTERVAL, Controller::scale_with_tasks);
        }
    }

    fn supervisor_started(&mut self, supervisor: SupervisorRef, context: &mut Context<Controller>) {
        let Some(pool) = self.pool.upgrade() else {
            return self.stop_supervisor(supervisor, context);
        };
        match pool.phase.lock().workers() {
            Workers::Stopped => return self.stop_supervisor(supervisor, context),
            workers => *workers = Workers::Running(supervisor.clone()),
        }
        let ended = async move { supervisor.join().await.unwrap_or(ExitReason::Shutdown) };
        context.spawn(
            ended
                .into_actor(self)
                .map(|reason, controller, context| controller.supervisor_ended(&reason, context)),
        );
        self.adjust(context);
    }

    fn supervisor_ended(&mut self, reason: &ExitReason, context: &mut Context<Controller>) {
        if !reason.is_normal() {
            return self.fail(format!("it {reason}"), context);
        }
        self.end(context);
    }

    fn fail(&mut self, problem: String, context: &mut Context<Controller>) {
        if let Some(pool) = self.pool.upgrade() {
            pool.end(PoolEndReason::Failed(problem));
        }
        self.end(context);
    }

    /// Lets those go on who wait for the end of the workers, and the workers' hosts and this actor
    /// end. Its intervals would keep it alive, and with it all that the pool was made of.
    fn end(&mut self, context: &mut Context<Controller>) {
        drop(self.take_workers());
        self.spec.hosts.close(self.runtime);
        for done in self.joining.drain(..) {
            let _ = done.send(());
        }
        context.stop();
    }

    fn stop_workers(&mut self, context: &mut Context<Controller>) {
        match self.take_workers() {
            Workers::New => self.end(context),
            // It stops when it has started.
            Workers::Starting | Workers::Stopped => {}
            Workers::Running(supervisor) => self.stop_supervisor(supervisor, context),
        }
    }

    /// Lets the pool have no workers any more. Returns their supervisor.
    fn take_workers(&self) -> Workers {
        let Some(pool) = self.pool.upgrade() else { return Workers::Stopped };
        std::mem::replace(pool.phase.lock().workers(), Workers::Stopped)
    }

    /// Returns the supervisor while it runs.
    fn supervisor(&self) -> Option<SupervisorRef> {
        let pool = self.pool.upgrade()?;
        match pool.phase.lock().workers() {
            Workers::Running(supervisor) => Some(supervisor.clone()),
            Workers::New | Workers::Starting | Workers::Stopped => None,
        }
    }

    fn stop_supervisor(&mut self, supervisor: SupervisorRef, context: &mut Context<Controller>) {
        let ended = async move { supervisor.stop().await };
        context.spawn(ended.into_actor(self).map(|_, controller, context| controller.end(context)));
    }

    /// Ends the pool if it has no calls.
    fn end_if_done(&mut self, context: &mut Context<Controller>) {
        if let Some(pool) = self.pool.upgrade().filter(|pool| pool.is_done()) {
            // Before those who wait for the end can look at the pool.
            pool.end(PoolEndReason::Stopped);
            self.stop_workers(context);
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
            ControllerRequest::Retire(number) => self.stop_worker(number),
            ControllerRequest::WorkerReady(number) => self.worker_ready(number, context),
            ControllerRequest::WorkerEnded(number, verdict) => {
                self.worker_ended(number, &verdict, context)
            }
            ControllerRequest::SchedulingChanged(number, reason) => {
                self.scheduling_changed(number, reason, context)
            }
            ControllerRequest::Close => self.end_if_done(context),
            ControllerRequest::Join(done) => self.joining.push(done),
            ControllerRequest::Kill(pool) => {
                for worker in pool.scheduler.lock().handles() {
                    let _ = worker.commands.send(ProcessCommand::Kill(ExitReason::Shutdown));
                }
                self.stop_workers(context);
            }
        }
    }
}
