//! Time limits of a start.

use std::cell::Cell;
use std::time::Duration;

use fiber_backends::{JobState, WaitReason};
use fiber_core::{Config, deadline_after};
use tokio::sync::watch;
use tokio::time::timeout_at;

use super::failure::{self, IS_INIT_FIRST};
use crate::runtime::Runtime;

/// What a process does when the cluster has no resources for it.
pub(crate) trait SchedulingPolicy {
    /// Is called with the cluster's message while the process can't be scheduled, and with `None`
    /// when that is over.
    fn set_unschedulable(&self, reason: Option<&str>);

    /// Returns whether the process may wait for longer than `schedule_timeout`.
    fn may_wait_longer(&self) -> bool;
}

/// Returns when a process has exceeded the time limit of its current step, with a message that says
/// so. Each step has the full time.
pub(super) async fn exceeded(
    config: &Config,
    mut states: watch::Receiver<JobState>,
    scheduling: Option<&dyn SchedulingPolicy>,
    connected: &Cell<bool>,
) -> String {
    loop {
        let state = states.borrow_and_update().clone();
        let unschedulable = match &state {
            JobState::Waiting(WaitReason::Resources(message)) => Some(message.as_str()),
            _ => None,
        };
        if let Some(scheduling) = scheduling {
            scheduling.set_unschedulable(unschedulable);
        }
        let limit = match &state {
            JobState::Starting | JobState::Running => config.start_timeout,
            JobState::Waiting(WaitReason::Resources(_)) => config.schedule_timeout,
            JobState::Waiting(WaitReason::Image(_)) => config.pull_timeout,
            JobState::AwaitsHost => Duration::MAX,
            // The wait for readiness reports the end.
            JobState::Ended(_) => return std::future::pending().await,
        };
        match timeout_at(
            deadline_after(limit).into(),
            states.wait_for(|now| step(now) != step(&state)),
        )
        .await
        {
            Ok(_) => continue,
            Err(_)
                if unschedulable.is_some()
                    && scheduling.is_some_and(SchedulingPolicy::may_wait_longer) =>
            {
                continue;
            }
            Err(_) => {}
        }
        // The message may have changed meanwhile.
        return match &*states.borrow() {
            JobState::Waiting(WaitReason::Resources(message)) => format!(
                "it was not scheduled within {limit:?} (`schedule_timeout` sets the limit): \
                 {message}"
            ),
            JobState::Waiting(WaitReason::Image(message)) => format!(
                "its container was not created within {limit:?} (`pull_timeout` sets the limit): \
                 {message}"
            ),
            _ if connected.get() => format!(
                "it connected, but did not get ready within {limit:?}: does its initializer take \
                 that long? (`start_timeout` sets the limit)"
            ),
            _ => format!(
                "it did not connect and get ready within {limit:?}: {IS_INIT_FIRST} \
                 (`start_timeout` sets the limit)"
            ),
        };
    }
}

/// Returns when a process runs, but this process can't accept its connection, with a message that
/// says so.
pub(super) async fn not_accepted(
    runtime: &Runtime,
    mut states: watch::Receiver<JobState>,
    connected: &Cell<bool>,
) -> String {
    loop {
        // The wait for readiness reports the end.
        if states.wait_for(|state| *state == JobState::Running).await.is_err() {
            return std::future::pending().await;
        }
        let problem = runtime.accept_failure_lasts().await;
        if !connected.get() && *states.borrow() == JobState::Running {
            return failure::not_accepted(&problem);
        }
    }
}

/// Returns the number of the step with one time limit to which a state belongs.
fn step(state: &JobState) -> u8 {
    match state {
        JobState::Starting | JobState::Running => 0,
        JobState::Waiting(WaitReason::Resources(_)) => 1,
        JobState::Waiting(WaitReason::Image(_)) => 2,
        JobState::AwaitsHost => 3,
        JobState::Ended(_) => 4,
    }
}
