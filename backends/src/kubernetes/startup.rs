//! Waits until a pod runs, for the command `fiber`.

use std::mem::discriminant;
use std::time::Duration;

use fiber_core::{CENTURY, Config, Meta};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::watch_object;
use tokio::time::{Instant, sleep, sleep_until};

use super::api_server::ApiServer;
use super::job::{EVENT_POLL_INTERVAL, NODE_PATIENCE};
use super::names::program_container;
use super::start_error::{self, requested};
use super::status::{PodState, pod_state, pull_problem, with_event};
use super::watch::{Refusals, with_backoff};
use super::{claims, events};
use crate::progress::Progress;
use crate::{BackendError, WaitReason};

/// How long a pod waits for room before the command says so.
const PATIENCE: Duration = Duration::from_secs(1);

/// The time limits of a pod's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartTimeouts {
    schedule: Duration,
    pull: Duration,
    pub(super) start: Duration,
}

impl StartTimeouts {
    pub(super) fn of(config: &Config) -> StartTimeouts {
        StartTimeouts {
            schedule: config.schedule_timeout.min(CENTURY),
            pull: config.pull_timeout.min(CENTURY),
            start: config.start_timeout.min(CENTURY),
        }
    }
}

/// The outcome of watching a pod's start.
#[derive(Debug)]
pub(super) enum Start {
    /// It runs, has ended, or waits for room while no command follows it.
    Seen,
    /// It was created, and the right to watch it is missing.
    Unseen(kube::Error),
}

/// Waits until a pod runs or has ended, and says what the pod waits for. Waits for room only if the
/// caller `stays`.
///
/// # Errors
/// Kubernetes' reason why it does not run, with a remedy.
pub(super) async fn wait_until_running(
    server: &ApiServer,
    name: &str,
    meta: &Meta,
    timeouts: StartTimeouts,
    stays: bool,
    progress: &dyn Progress,
) -> Result<Start, BackendError> {
    let mut step = progress.begin(&format!("starting the pod {name}"));
    let events = watch_object(server.streams::<Pod>(), name);
    let mut events = Box::pin(with_backoff(events, |_| true));
    let mut refusals = Refusals::default();
    let mut seen = false;
    let mut pull = None;
    // The reason as the pod's status has it, and with the pod's last event.
    let mut reported: Option<WaitReason> = None;
    let mut waiting: Option<WaitReason> = None;
    let mut since = Instant::now();
    let mut missing_claim = None;
    let mut said = String::new();
    loop {
        let (limit, patience) = match &waiting {
            None => (timeouts.start, None),
            Some(WaitReason::Resources(_)) => (timeouts.schedule, Some(PATIENCE)),
            Some(WaitReason::Node(_)) => (timeouts.schedule, Some(NODE_PATIENCE)),
            Some(WaitReason::Image(_)) => (timeouts.pull, None),
        };
        let patience = patience.filter(|_| missing_claim.is_none());
        let unsaid = waiting.as_ref().map(WaitReason::message);
        let unsaid = unsaid.filter(|message| patience.is_some() && said != *message);
        let is_on_node = matches!(waiting, Some(WaitReason::Node(_) | WaitReason::Image(_)));
        let event = tokio::select! {
            biased;
            problem = claims::stays_missing(server, missing_claim.as_ref()) => {
                return Err(problem.into());
            }
            () = sleep_until(since + patience.unwrap_or(limit).min(limit)), if unsaid.is_some() => {
                said = unsaid.unwrap_or_default().to_string();
                tracing::warn!("the pod {name} waits: {said}");
                if !stays {
                    step.done();
                    return Ok(Start::Seen);
                }
                continue;
            }
            () = sleep_until(since + limit) => {
                return Err(BackendError::TimedOut(timed_out(waiting, limit, meta)));
            }
            event = events.next() => event,
            () = sleep(EVENT_POLL_INTERVAL), if is_on_node => {
                let event = events::last(server, "Pod", name).await;
                if let Some(wait) = reported.as_ref().and_then(|wait| with_event(wait, event)) {
                    step.detail(wait.message());
                    waiting = Some(wait);
                }
                continue;
            }
        };
        let Some(event) = event else { return Err("it can't be watched".into()) };
        let pod = match refusals.check(event) {
            Ok(Some(Some(pod))) => pod,
            Ok(Some(None)) if seen => return Err("its pod was deleted meanwhile".into()),
            // The pod is not visible yet, or for a moment: the watch continues.
            Ok(Some(None) | None) => continue,
            Err(error) => return Ok(Start::Unseen(error)),
        };
        seen = true;
        pull = pull_problem(&pod).or(pull);
        let phase = pod_state(&pod);
        if !matches!(phase, PodState::MissingClaim(_)) {
            missing_claim = None;
        }
        let mut wait = match phase {
            PodState::Running => break,
            PodState::Ended(fiber_core::ExitReason::NotStarted(message))
            | PodState::CannotStart(message) => {
                return Err(explain(&pod, &message, pull.as_deref()).into());
            }
            PodState::Ended(_) => break,
            PodState::Rejected(message) => {
                return Err(refused!(
                    "{message}: try again, another node may have enough resources"
                ));
            }
            PodState::Starting => continue,
            PodState::MissingClaim(message) => {
                missing_claim.get_or_insert_with(|| {
                    (Instant::now() + claims::GRACE, explain(&pod, &message, None))
                });
                WaitReason::Resources(message)
            }
            PodState::Waiting(wait) => wait,
        };
        if let WaitReason::Resources(message) = &mut wait {
            *message =
                claims::explain(server, &claims::mounted_by(&pod), std::mem::take(message)).await;
        }
        step.detail(wait.message());
        if waiting.as_ref().map(discriminant) != Some(discriminant(&wait)) {
            since = Instant::now();
        }
        reported = Some(wait.clone());
        waiting = Some(wait);
    }
    step.done();
    Ok(Start::Seen)
}

fn timed_out(waiting: Option<WaitReason>, limit: Duration, meta: &Meta) -> String {
    match waiting {
        None => format!("it did not start within {limit:?} (`start_timeout` sets the limit)"),
        Some(WaitReason::Resources(message)) => format!(
            "it was not scheduled within {limit:?}: {message}{}: ask for less, or wait longer \
             (`schedule_timeout`)",
            requested(meta, "")
        ),
        Some(WaitReason::Node(message)) => format!(
            "its node did not begin to start it within {limit:?} (`schedule_timeout` sets the \
             limit): {message}"
        ),
        Some(WaitReason::Image(message)) => {
            format!(
                "its container was not created within {limit:?} (`pull_timeout` sets the limit): \
                 {message}"
            )
        }
    }
}

fn explain(pod: &Pod, message: &str, pull: Option<&str>) -> String {
    let container = pod.spec.as_ref().and_then(program_container);
    let image = container.and_then(|container| container.image.as_deref()).unwrap_or_default();
    let secrets = start_error::pull_secrets(pod);
    start_error::of_image(image, &secrets, message, pull).unwrap_or_else(|| message.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_without_a_limit_has_a_time() {
        let mut config = Config::default();
        config.schedule_timeout = Duration::MAX;
        config.pull_timeout = Duration::MAX;
        config.start_timeout = Duration::MAX;
        let StartTimeouts { schedule, pull, start } = StartTimeouts::of(&config);
        let since = Instant::now();
        assert!([schedule, pull, start].iter().all(|limit| since.checked_add(*limit).is_some()));
    }
}
