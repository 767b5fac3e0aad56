//! Errors that ranks report, turned into the error that ends the run.

use std::sync::Arc;
use std::time::Duration;

use fiber_core::RingProblem;

use super::super::wire::{CoordinatorMessage, StreamError};
use super::Coordinator;

/// How long the coordinator waits for a more precise cause of a rank's error: a death or a failure
/// of another rank.
const CAUSE_DELAY: Duration = Duration::from_secs(2);
/// How long the coordinator waits for all ranks to report what they are doing.
const ACTIVITY_DELAY: Duration = Duration::from_secs(1);

impl Coordinator {
    /// Ends the run because of an error that a rank reports, now or when there is no more precise
    /// cause.
    pub(super) fn diagnose(self: &Arc<Self>, rank: usize, attempt: u64, error: StreamError) {
        let problem = match error {
            StreamError::TimedOut { limit } => return self.query_activities(rank, attempt, limit),
            StreamError::Mismatch { other, own, theirs } => {
                let problem = RingProblem::Mismatch { rank, call: own, other, other_call: theirs };
                return self.fail(problem);
            }
            StreamError::Disconnected { other, problem } => {
                RingProblem::Disconnected { rank, other, cause: problem }
            }
            StreamError::NotAccepted { problem } => {
                RingProblem::NotAccepted { rank, cause: problem }
            }
            StreamError::FunctionReturned { other, own } => {
                RingProblem::FunctionReturned { rank, call: own, other }
            }
        };
        self.after(CAUSE_DELAY, attempt, move |coordinator| coordinator.fail(problem));
    }

    /// Asks all ranks what they are doing, after the first one reported a timeout.
    fn query_activities(self: &Arc<Self>, rank: usize, attempt: u64, limit: Duration) {
        let mut run = self.run.lock();
        if run.timed_out.is_some() {
            return;
        }
        run.timed_out = Some((rank, limit));
        for rank in &mut run.ranks {
            rank.activity = None;
        }
        run.send_to_all(|| CoordinatorMessage::QueryActivity.encode());
        drop(run);
        self.after(ACTIVITY_DELAY, attempt, Coordinator::report_timeout);
    }

    /// Ends the run after a timeout, with the activity of each rank.
    pub(super) fn report_timeout(self: &Arc<Self>) {
        let mut run = self.run.lock();
        let Some((rank, limit)) = run.timed_out else { return };
        let activities = run.ranks.iter_mut().map(|rank| rank.activity.take()).collect();
        drop(run);
        self.fail(RingProblem::TimedOut { rank, limit, activities });
    }

    /// Runs an action after a while, unless another attempt has begun by then.
    fn after(
        self: &Arc<Self>,
        delay: Duration,
        attempt: u64,
        action: impl FnOnce(&Arc<Coordinator>) + Send + 'static,
    ) {
        let coordinator = Arc::clone(self);
        self.runtime.spawn(move || async move {
            tokio::time::sleep(delay).await;
            if coordinator.run.lock().attempt == attempt {
                action(&coordinator);
            }
        });
    }
}
