//! How far the calls of a session are, in one line.

use std::time::Duration;

use fiber_core::stats::SessionStats;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::args::ClusterArgs;
use crate::inspect::sessions::{Observed, Sessions};
use crate::model::format::{self, percent, span, whole};

/// The interval of asking the head.
const INTERVAL: Duration = Duration::from_secs(1);

/// The progress of one session, again and again.
pub(crate) struct Progress(mpsc::Receiver<String>);

impl Progress {
    /// Begins to ask a head, beside whatever else this command does.
    pub(crate) async fn of_head(args: &ClusterArgs, head: &str) -> anyhow::Result<Progress> {
        let mut sessions = Sessions::connect(args).await?;
        sessions.limit_to(head);
        let (sender, receiver) = mpsc::channel(1);
        tokio::task::spawn_local(async move {
            let mut ticks = interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let text = match sessions.look().await {
                    Ok(observed) => text(&observed),
                    Err(error) => format!("{error:#}"),
                };
                if sender.send(text).await.is_err() {
                    return;
                }
            }
        });
        Ok(Progress(receiver))
    }

    /// Waits for the next line.
    pub(crate) async fn next(&mut self) -> String {
        match self.0.recv().await {
            Some(line) => line,
            None => std::future::pending().await,
        }
    }
}

fn text(observed: &[Observed]) -> String {
    match observed.first().map(|session| &session.stats) {
        Some(Ok(stats)) => of_calls(stats),
        Some(Err(problem)) => problem.to_string(),
        // Between two starts of the head, or at its end.
        None => "does not run".into(),
    }
}

/// Returns the progress of all calls that are under way.
fn of_calls(stats: &SessionStats) -> String {
    let pools = &stats.report.pools;
    let calls: Vec<_> = pools.iter().flat_map(|pool| &pool.calls).collect();
    let failed: u64 = pools.iter().map(|pool| pool.tasks.failed).sum();
    let rate: f64 = pools.iter().map(|pool| pool.rate).sum();
    let done: u64 = calls.iter().map(|call| call.done).sum();
    let total: Option<u64> = calls.iter().map(|call| call.total).sum();
    let mut parts = match calls.as_slice() {
        [] => {
            let done: u64 = pools.iter().map(|pool| pool.tasks.done).sum();
            vec![format!("no calls, {} tasks done", whole(done))]
        }
        [call] => vec![format!("{}: {}", call.function, share(done, total))],
        calls => vec![format!("{} calls: {}", calls.len(), share(done, total))],
    };
    if failed > 0 {
        parts.push(format!("{} failed", whole(failed)));
    }
    if rate > 0.0 && !calls.is_empty() {
        parts.push(format!("{}/s", format::rate(rate)));
        let left = total.map(|total| (total.saturating_sub(done) as f64 / rate).round());
        // Some calls have more tasks than there is time.
        let left = left.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            parts.push(format!("{} left", span(left)));
        }
    }
    parts.join(", ")
}

/// Returns how many tasks are done, and of how many if that is known.
fn share(done: u64, total: Option<u64>) -> String {
    match total {
        Some(total) if total > 0 => {
            format!("{} of {} ({})", whole(done), whole(total), percent(done as f64 / total as f64))
        }
        _ => format!("{} done", whole(done)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::stats;

    #[test]
    fn one_line_says_how_far_all_calls_are() {
        let mut stats = stats("simulate", 2);
        let line = "simulate::step: 7.0M of 10.0M (70%), 2 failed, 12.3k/s, 4m03s left";
        assert_eq!(of_calls(&stats), line);
        let mut endless = stats.clone();
        endless.report.pools[0].calls[0].total = Some(u64::MAX);
        endless.report.pools[0].rate = 0.1;
        let line = of_calls(&endless);
        assert!(line.contains("2 failed") && !line.contains("left"), "{line}");
        let mut other = stats.report.pools[0].calls[0].clone();
        other.total = None;
        stats.report.pools[0].calls.push(other);
        assert_eq!(of_calls(&stats), "2 calls: 14.0M done, 2 failed, 12.3k/s");
        stats.report.pools[0].calls.clear();
        assert_eq!(of_calls(&stats), "no calls, 7.0M tasks done, 2 failed");
    }

    #[test]
    fn a_head_between_two_starts_does_not_run() {
        assert_eq!(text(&[]), "does not run");
    }
}
