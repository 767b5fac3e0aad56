//! The end of a worker by SIGTERM: its machine is drained, a spot instance ends, a user stops it.
//!
//! The worker starts no more tasks and returns those that it has not started. The pool stops it
//! when the tasks that it runs have ended. After the grace period it ends without waiting for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fiber_core::Signals;
use tokio::time::sleep;

use super::WorkQueue;
use crate::wire::WorkerEvent;
use fiber_runtime::runtime::Runtime;

/// Handles SIGTERM from now on.
pub(super) fn listen(runtime: &'static Runtime, queue: &Arc<WorkQueue>) {
    let mut signals = match Signals::listen_for_sigterm() {
        Ok(signals) => signals,
        Err(error) => {
            return tracing::warn!("SIGTERM can't be handled, and ends this worker: {error}");
        }
    };
    let queue = Arc::clone(queue);
    fiber_core::spawn_local(async move {
        let sigterm = signals.next().await;
        if queue.terminate() {
            // Further signals change nothing: kubelets, shells and init systems repeat them.
            sleep(runtime.config().grace).await;
        }
        queue.ending.store(true, Ordering::Release);
        runtime.end_as_by_signal(sigterm).await;
    });
}

impl WorkQueue {
    /// Ends the work of a worker, if it is ready. Otherwise it has nothing to finish.
    fn terminate(&self) -> bool {
        let work = self.work.lock();
        if !work.ready {
            return false;
        }
        // First of all: a pool that knows why the worker ends blames no task.
        self.report(WorkerEvent::Terminating);
        drop(work);
        self.drain();
        true
    }

    /// Starts no more tasks, and returns those that have not started.
    pub(super) fn drain(&self) {
        let mut work = self.work.lock();
        self.draining.store(true, Ordering::Release);
        let mut returned = std::mem::take(&mut work.runs);
        self.count_queued(&work);
        for executor in &*self.executors.read() {
            let mut executor = executor.lock();
            returned.extend(executor.take_rest());
            returned.extend(executor.follower.take().map(|follower| follower.run));
        }
        drop(work);
        returned.iter().for_each(|run| self.return_run(run));
    }
}
