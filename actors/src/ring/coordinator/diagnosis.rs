//! Errors that ranks report, turned into the error that ends the run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::wire::{Activity, CoordinatorMessage, StreamError};
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
                return self.fail(format!(
                    "its ranks make different calls: rank {rank} is in {own}, rank {other} in \
                     {theirs}. All ranks have to call the same collectives in the same order, with \
                     slices of the same length"
                ));
            }
            StreamError::Disconnected { other, problem } => {
                format!("rank {rank} cannot reach rank {other}: {problem}")
            }
            StreamError::FunctionReturned { other, own } => {
                format!(
                    "rank {rank} waits for rank {other} in {own}, but the function of rank {other} \
                     has returned"
                )
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

    /// Ends the run after a timeout, with what each rank was doing.
    pub(super) fn report_timeout(self: &Arc<Self>) {
        let run = self.run.lock();
        let Some((first, limit)) = run.timed_out else { return };
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (rank, process) in run.ranks.iter().enumerate() {
            let activity = match &process.activity {
                Some(Activity::OwnCode) => "in its own code".to_string(),
                Some(Activity::Returned) => "done with its function".to_string(),
                Some(Activity::Operation(operation)) => format!("in {operation}"),
                None => "silent".to_string(),
            };
            groups.entry(activity).or_default().push(rank);
        }
        let operation = match &run.ranks[first].activity {
            Some(Activity::Operation(operation)) => operation.clone(),
            _ => "an operation".to_string(),
        };
        drop(run);
        let groups: Vec<String> = groups
            .into_iter()
            .map(|(activity, ranks)| format!("{} {activity}", subject(&ranks)))
            .collect();
        self.fail(format!(
            "rank {first} timed out after {limit:?} in {operation}: {}. All ranks have to join the \
             operation within the ring's `timeout`",
            groups.join("; ")
        ));
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

/// Returns ranks as the subject of a sentence: `rank 1 is`, `ranks 0 and 2 are`.
fn subject(ranks: &[usize]) -> String {
    let words: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    match words.as_slice() {
        [one] => format!("rank {one} is"),
        [first @ .., last] => format!("ranks {} and {last} are", first.join(", ")),
        [] => "none is".into(),
    }
}
