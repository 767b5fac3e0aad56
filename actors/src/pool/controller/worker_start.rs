//! The start of a worker's process, as a child of the pool's supervisor.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use fiber_core::stats::ProcessRole;
use fiber_core::{ExitReason, Result};
use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::{ControllerRequest, PoolSpec};
use crate::pool::state::PoolState;
use crate::pool::worker_handle::{Worker, displacement};
use crate::process::ProcessControl;
use crate::runtime::{JobKind, Launch, Runtime, SchedulingPolicy, StartRequest, launch, monitor};
use crate::supervisor::{ChildContext, Running, Start};

/// Starts the incarnations of one worker.
pub(super) struct WorkerStart {
    runtime: &'static Runtime,
    child: String,
    pool: Weak<PoolState>,
    spec: PoolSpec,
}

impl WorkerStart {
    pub(super) fn new(
        runtime: &'static Runtime,
        child: String,
        pool: &Arc<PoolState>,
        mut spec: PoolSpec,
    ) -> WorkerStart {
        spec.worker_main.name.clone_from(&child);
        WorkerStart { runtime, child, pool: Arc::downgrade(pool), spec }
    }
}

impl Start for WorkerStart {
    fn start(
        &mut self,
        context: ChildContext,
    ) -> LocalBoxFuture<'static, Result<Running, ExitReason>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (runtime, child, pool, spec) =
            (self.runtime, self.child.clone(), self.pool.clone(), self.spec.clone());
        Box::pin(async move {
            let launched = launch(
                runtime,
                Launch {
                    name: context.path().to_string(),
                    role: ProcessRole::Worker,
                    restarts: context.restarts(),
                    // The controller counts failed starts, and decides how long to try.
                    retry_creation: false,
                    meta: spec.meta,
                    output: spec.output,
                    request: StartRequest::new(&spec.worker_main),
                    scheduling: Some(Box::new(WorkerScheduling {
                        child: child.clone(),
                        pool: pool.clone(),
                    })),
                    kind: JobKind::Process(spec.hosts),
                },
            );
            let launched = launched.await.map_err(|exit| {
                let reason = displacement(exit.reason.clone(), false);
                let (reason, request) = if reason.is_displacement() {
                    (reason.clone(), ControllerRequest::Displaced(reason))
                } else {
                    let reason = exit.start_failure();
                    let problem = reason.start_problem();
                    (reason, ControllerRequest::StartFailed(child.clone(), problem))
                };
                if let Some(pool) = pool.upgrade() {
                    pool.controller.do_send(request);
                }
                reason
            })?;
            let place = launched.place();
            let (commands, inbox) = mpsc::unbounded_channel();
            let id = NEXT.fetch_add(1, Ordering::Relaxed);
            let link = Arc::clone(&launched.connection.link);
            let (process, host) = (launched.info.id, launched.host);
            let worker =
                Worker::new(id, child, process, place.clone(), host, link, commands.clone());
            let worker = Arc::new(worker);
            if let Some(pool) = pool.upgrade() {
                pool.join(Arc::clone(&worker), spec.worker_main.threads, spec.quota);
            }
            let (exited, exit) = oneshot::channel();
            actix::spawn(async move {
                let receive = |message| {
                    if let Some(pool) = pool.upgrade() {
                        pool.receive(&worker, message);
                    }
                };
                let exit = monitor(runtime, launched, inbox, receive).await;
                let exit = worker.explain(exit);
                if let Some(pool) = pool.upgrade() {
                    pool.lost(&worker, &exit);
                }
                let _ = exited.send(exit.reason);
            });
            let exited = async {
                exit.await.unwrap_or(ExitReason::LinkLost("its supervising task ended".into()))
            };
            Ok(Running::new(ProcessControl(commands), exited).place(place))
        })
    }
}

/// Lets a worker wait for room in the cluster as long as other workers are ready.
struct WorkerScheduling {
    child: String,
    pool: Weak<PoolState>,
}

impl SchedulingPolicy for WorkerScheduling {
    fn set_unschedulable(&self, reason: Option<&str>) {
        if let Some(pool) = self.pool.upgrade() {
            let reason = reason.map(str::to_string);
            pool.controller
                .do_send(ControllerRequest::SchedulingChanged(self.child.clone(), reason));
        }
    }

    fn may_wait_longer(&self) -> bool {
        self.pool.upgrade().is_some_and(|pool| pool.readiness.borrow().ready > 0)
    }
}

impl Drop for WorkerScheduling {
    /// Reports that the worker waits no more: it is ready, or its start has failed.
    fn drop(&mut self) {
        self.set_unschedulable(None);
    }
}
