//! The start of a worker's process, as a child of the pool's supervisor.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use fiber_core::stats::ProcessRole;
use fiber_core::{Exit, ExitReason};
use fiber_transport::Received;
use futures_util::future::LocalBoxFuture;
use tokio::sync::mpsc;

use super::{PoolSpec, WorkerNumber, worker_name};
use crate::state::PoolState;
use crate::verdict::Lesson;
use crate::worker_handle::WorkerHandle;
use fiber_runtime::runtime::{
    ChildProcess, Launch, Owner, Placement, ProcessCommand, ReadyChild, Runtime, SchedulingPolicy,
    StartRequest,
};
use fiber_supervisor::process::{ProcessControl, running};
use fiber_supervisor::supervisor::{ChildContext, Running, Start};

/// Starts the incarnations of one worker.
pub(super) struct WorkerStart {
    runtime: &'static Runtime,
    number: WorkerNumber,
    pool: Weak<PoolState>,
    spec: PoolSpec,
}

impl WorkerStart {
    pub(super) fn new(
        runtime: &'static Runtime,
        number: WorkerNumber,
        pool: Weak<PoolState>,
        mut spec: PoolSpec,
    ) -> WorkerStart {
        spec.worker_main.name = worker_name(number);
        WorkerStart { runtime, number, pool, spec }
    }
}

impl Start for WorkerStart {
    fn start(
        &mut self,
        context: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        let (number, pool, spec) = (self.number, self.pool.clone(), self.spec.clone());
        let scheduling = WorkerScheduling { number, pool: pool.clone() };
        let launch = Launch {
            name: context.path().to_string(),
            role: ProcessRole::Worker,
            restarts: context.restarts(),
            // The controller counts failed starts, and decides how long to try.
            retry_creation: false,
            meta: spec.meta,
            output: spec.output.clone(),
            request: StartRequest::new(&spec.worker_main),
            scheduling: Some(Box::new(scheduling)),
            placement: Placement::in_group(Arc::clone(&spec.hosts)),
        };
        let (commands, inbox) = mpsc::unbounded_channel();
        let control = ProcessControl::new(commands.clone());
        let owner = WorkerOwner { context, number, pool, commands, worker: None };
        let process = ChildProcess { runtime: self.runtime, launch, commands: inbox, owner };
        Box::pin(async { running(process.start(), control).await })
    }
}

/// Makes a process that is ready a worker of its pool.
struct WorkerOwner {
    context: ChildContext,
    number: WorkerNumber,
    pool: Weak<PoolState>,
    commands: mpsc::UnboundedSender<ProcessCommand>,
    /// Once it is ready.
    worker: Option<Arc<WorkerHandle>>,
}

impl Owner for WorkerOwner {
    fn ready(&mut self, ready: ReadyChild<'_>) {
        let Some(pool) = self.pool.upgrade() else { return };
        let worker = Arc::new(WorkerHandle::new(
            pool.last_worker.fetch_add(1, Ordering::Relaxed) + 1,
            self.number,
            ready.info.id,
            ready.place,
            ready.host,
            Arc::clone(ready.link),
            self.commands.clone(),
        ));
        pool.join(Arc::clone(&worker));
        self.worker = Some(worker);
    }

    fn message(&mut self, message: Received) {
        if let (Some(worker), Some(pool)) = (&self.worker, self.pool.upgrade()) {
            pool.receive(worker, message);
        }
    }

    async fn ended(self, exit: Exit) -> ExitReason {
        let Some(pool) = self.pool.upgrade() else { return exit.reason };
        let verdict = pool.lost(self.number, self.worker.as_deref(), exit);
        // Its task may have killed it, and such tasks are abandoned after some deaths.
        if verdict.lesson == Lesson::HadTask {
            self.context.note_work();
        }
        verdict.exit.reason
    }
}

/// Lets a worker wait for room in the cluster as long as other workers are ready.
struct WorkerScheduling {
    number: WorkerNumber,
    pool: Weak<PoolState>,
}

impl SchedulingPolicy for WorkerScheduling {
    fn set_unschedulable(&self, reason: Option<&str>) {
        if let Some(pool) = self.pool.upgrade() {
            let reason = reason.map(str::to_string);
            pool.with_life(|life, effects| life.scheduling_changed(self.number, reason, effects));
        }
    }

    fn may_wait_longer(&self) -> bool {
        self.pool.upgrade().is_some_and(|pool| pool.life.lock().readiness().ready > 0)
    }
}

impl Drop for WorkerScheduling {
    /// Reports that the worker waits no more: it is ready, or its start has failed.
    fn drop(&mut self) {
        self.set_unschedulable(None);
    }
}
