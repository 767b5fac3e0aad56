//! Requests to a pool's controller.

use std::ops::Range;

use actix::Message;
use fiber_core::Meta;
use tokio::sync::oneshot;

/// Identifies a worker of a pool, in all of its incarnations.
pub(crate) type WorkerNumber = u64;

/// Returns a worker's name as a child of its pool's supervisor.
pub(crate) fn worker_name(number: WorkerNumber) -> String {
    format!("worker-{number}")
}

/// A request to a pool's controller.
#[derive(Debug)]
pub(crate) enum ControllerRequest {
    /// Starts the supervisor of the workers, which request these resources.
    Start(Meta),
    AddWorkers(Range<WorkerNumber>),
    /// Stops a worker that the pool does not want any more.
    StopWorker(WorkerNumber),
    /// Reports after a while that workers are missing, if they still are.
    WarnLater,
    /// Answers when all workers have ended.
    Join(oneshot::Sender<()>),
    /// Stops all workers, and then the controller.
    Stop,
}

impl Message for ControllerRequest {
    type Result = ();
}
