//! Requests to a pool's controller.

use std::sync::Arc;

use actix::Message;
use fiber_core::Meta;
use tokio::sync::oneshot;

use crate::state::PoolState;
use crate::verdict::Verdict;

/// Identifies a worker of a pool, in all of its incarnations.
pub(crate) type WorkerNumber = u64;

/// Returns a worker's name as a child of its pool's supervisor.
pub(crate) fn worker_name(number: WorkerNumber) -> String {
    format!("worker-{number}")
}

/// A request to a pool's controller.
pub(crate) enum ControllerRequest {
    /// Starts the workers, with the resources that the first call's function requests.
    Start(Meta),
    /// Sets the number of workers. The controller answers when it has noted the number.
    Scale(usize, oneshot::Sender<()>),
    /// A worker is ready.
    WorkerReady(WorkerNumber),
    /// A worker has ended, perhaps before it was ready.
    WorkerEnded(WorkerNumber, Verdict),
    /// A worker waits for room, with the cluster's reason, or does not wait any more: its number
    /// and the reason.
    SchedulingChanged(WorkerNumber, Option<String>),
    /// Stops a drained worker.
    Retire(WorkerNumber),
    /// Ends the pool if it has no calls.
    Close,
    /// Answers when all workers have ended.
    Join(oneshot::Sender<()>),
    /// Kills all workers.
    Kill(Arc<PoolState>),
}

impl Message for ControllerRequest {
    type Result = ();
}
