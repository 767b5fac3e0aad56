//! The controller of a pool: an actor that owns the supervisor of the workers, and has the timers of
//! the pool's [life](super::life).

mod request;
mod worker_start;

use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use actix::dev::channel::channel;
use actix::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Recipient,
    WrapFuture,
};
use fiber_backends::ChildOutput;
use fiber_core::{ExitReason, Meta, PoolEndReason, Result};
use tokio::sync::oneshot;

use self::worker_start::WorkerStart;
use super::scheduling::{Effects, SharedLife};
use super::state::PoolState;
use super::worker::WorkerMain;
use fiber_runtime::runtime::{HostGroup, Runtime};
use fiber_supervisor::supervisor::{Backoff, ChildSpec, Shutdown, Supervisor, SupervisorRef};

pub(super) use self::request::{ControllerRequest, WorkerNumber, worker_name};

/// A worker that had a task or lived this long is replaced at once when it dies. Otherwise there is
/// a growing pause.
const RESET_AFTER: Duration = Duration::from_millis(100);
/// The first and the longest pause between starts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(2));
/// How often a scaling pool adapts to its tasks.
const SCALE_INTERVAL: Duration = Duration::from_millis(100);
/// How long after the first worker was found to be missing the pool logs a warning, if workers are
/// still missing.
const WARN_AFTER: Duration = Duration::from_secs(2);

/// The configuration of a pool's workers.
#[derive(Clone)]
pub(super) struct PoolSpec {
    pub(super) meta: Meta,
    pub(super) output: ChildOutput,
    pub(super) worker_main: WorkerMain,
    pub(super) hosts: Arc<HostGroup>,
}

/// See the module's documentation.
struct Controller {
    runtime: &'static Runtime,
    name: String,
    pool: Weak<PoolState>,
    spec: PoolSpec,
    workers: Workers,
    /// Callers that wait for the end of all workers.
    joining: Vec<oneshot::Sender<()>>,
}

/// The supervisor of the workers.
enum Workers {
    New,
    Starting,
    Running(SupervisorRef),
    /// It stops, or stops when it has started.
    Stopped,
}

/// Starts a controller on the runtime's thread.
pub(super) fn start(
    runtime: &'static Runtime,
    name: String,
    pool: Weak<PoolState>,
    spec: PoolSpec,
) -> Recipient<ControllerRequest> {
    let (workers, joining) = (Workers::New, Vec::new());
    let controller = Controller { runtime, name, pool, spec, workers, joining };
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
    fn tell(&self, event: impl FnOnce(&mut SharedLife, &mut Effects)) {
        if let Some(pool) = self.pool.upgrade() {
            pool.with_life(event);
        }
    }

    fn start_supervisor(&mut self, meta: Meta, context: &mut Context<Controller>) {
        self.workers = Workers::Starting;
        self.spec.meta = self.spec.meta.or(meta);
        // Most workers die of their task, which is abandoned after some deaths, so the intensity
        // has no limit. The pool itself gives up if no worker is left and none can be started.
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
        if self.pool.upgrade().is_some_and(|pool| pool.life.lock().scales()) {
            context.run_interval(SCALE_INTERVAL, |controller, _| {
                controller.tell(SharedLife::scale_with_tasks);
            });
        }
    }

    fn supervisor_started(&mut self, supervisor: SupervisorRef, context: &mut Context<Controller>) {
        if let Workers::Stopped = self.workers {
            return self.stop_supervisor(supervisor, context);
        }
        self.workers = Workers::Running(supervisor.clone());
        let ended = async move { supervisor.join().await.unwrap_or(ExitReason::Shutdown) };
        context.spawn(ended.into_actor(self).map(|reason, controller, context| {
            match reason.is_normal() {
                true => controller.end(context),
                false => controller.fail(format!("it {reason}"), context),
            }
        }));
        self.tell(SharedLife::supervisor_started);
    }

    fn fail(&mut self, problem: String, context: &mut Context<Controller>) {
        self.tell(|life, effects| life.end(PoolEndReason::Failed(problem), effects));
        self.end(context);
    }

    /// Lets those go on who wait for the end of the workers, and the workers' hosts and this actor
    /// end. Its intervals would keep it alive, and with it all that the pool was made of.
    fn end(&mut self, context: &mut Context<Controller>) {
        self.workers = Workers::Stopped;
        self.spec.hosts.close(self.runtime);
        for done in self.joining.drain(..) {
            let _ = done.send(());
        }
        context.stop();
    }

    fn stop_workers(&mut self, context: &mut Context<Controller>) {
        match std::mem::replace(&mut self.workers, Workers::Stopped) {
            Workers::New => self.end(context),
            // It stops when it has started.
            Workers::Starting | Workers::Stopped => {}
            Workers::Running(supervisor) => self.stop_supervisor(supervisor, context),
        }
    }

    fn stop_supervisor(&mut self, supervisor: SupervisorRef, context: &mut Context<Controller>) {
        let ended = async move { supervisor.stop().await };
        context.spawn(ended.into_actor(self).map(|_, controller, context| controller.end(context)));
    }

    fn add_workers(&mut self, numbers: Range<WorkerNumber>, context: &mut Context<Controller>) {
        let Workers::Running(supervisor) = &self.workers else { return };
        let add = |number| {
            let start =
                WorkerStart::new(self.runtime, number, self.pool.clone(), self.spec.clone());
            let spec = ChildSpec::new(worker_name(number), start)
                .shutdown(Shutdown::After(self.runtime.config().shutdown_timeout));
            supervisor.add_child_in_background(spec)
        };
        let added: Vec<_> = numbers.map(add).collect();
        // One future for all: an event polls each future of an actor.
        let all = async move {
            for added in added {
                added.await?;
            }
            Ok(())
        };
        context.spawn(all.into_actor(self).map(|all: Result<()>, controller, context| {
            if let (Err(error), Workers::Running(_)) = (all, &controller.workers) {
                controller.fail(error.to_string(), context);
            }
        }));
    }

    /// Stops a worker, which may take as long as its tasks.
    fn stop_worker(&self, number: WorkerNumber) {
        if let Workers::Running(supervisor) = &self.workers {
            let (supervisor, child) = (supervisor.clone(), worker_name(number));
            // Not a future of this actor: there may be many, and an event polls each of those.
            fiber_core::spawn_local(async move { drop(supervisor.stop_child(&child).await) });
        }
    }
}

impl Handler<ControllerRequest> for Controller {
    type Result = ();

    fn handle(&mut self, request: ControllerRequest, context: &mut Context<Controller>) {
        match request {
            ControllerRequest::Start(meta) => self.start_supervisor(meta, context),
            ControllerRequest::AddWorkers(numbers) => self.add_workers(numbers, context),
            ControllerRequest::StopWorker(number) => self.stop_worker(number),
            ControllerRequest::WarnLater => {
                context.run_later(WARN_AFTER, |controller, _| {
                    controller.tell(SharedLife::warn_of_missing);
                });
            }
            ControllerRequest::Join(done) => self.joining.push(done),
            ControllerRequest::Stop => self.stop_workers(context),
        }
    }
}
