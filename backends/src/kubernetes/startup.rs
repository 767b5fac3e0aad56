//! Waits for a pod to run.

use std::mem::discriminant;
use std::time::Duration;

use fiber_core::{Config, Meta};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::watch_object;
use tokio::time::{Instant, sleep, sleep_until};

use super::api_server::ApiServer;
use super::job::{EVENT_POLL_INTERVAL, requested};
use super::status::{PodState, pod_state, pull_problem};
use super::{claims, events};
use crate::WaitReason;
use crate::progress::Progress;

/// How long what a pod waits for may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartTimeouts {
    room: Duration,
    image: Duration,
    start: Duration,
}

impl StartTimeouts {
    pub(super) fn of(config: &Config) -> StartTimeouts {
        StartTimeouts {
            room: config.schedule_timeout,
            image: config.pull_timeout,
            start: config.start_timeout,
        }
    }
}

/// Waits until a pod runs, or has run.
///
/// # Errors
/// Why it does not, in Kubernetes' words, and what to do.
pub(super) async fn wait_until_running(
    server: &ApiServer,
    name: &str,
    meta: &Meta,
    timeouts: StartTimeouts,
    progress: &dyn Progress,
) -> Result<(), String> {
    let mut step = progress.begin(&format!("starting the pod {name}"));
    let mut events = Box::pin(watch_object(server.streams::<Pod>(), name));
    let mut seen = false;
    let mut pull = None;
    let mut waiting: Option<WaitReason> = None;
    let mut since = Instant::now();
    let mut doubt = None;
    loop {
        let limit = match &waiting {
            None => timeouts.start,
            Some(WaitReason::Resources(_)) => timeouts.room,
            Some(WaitReason::Image(_)) => timeouts.image,
        };
        let event = tokio::select! {
            biased;
            problem = claims::lapse(server, doubt.as_ref()) => return Err(problem),
            () = sleep_until(since + limit) => return Err(late(waiting, limit, meta)),
            event = events.next() => event,
            () = sleep(EVENT_POLL_INTERVAL), if matches!(waiting, Some(WaitReason::Image(_))) => {
                if let Some(words) = events::last(server, "Pod", name).await {
                    step.detail(&words);
                    waiting = Some(WaitReason::Image(words));
                }
                continue;
            }
        };
        let pod = match event {
            Some(Ok(Some(pod))) => pod,
            Some(Ok(None)) if seen => return Err("its pod was removed meanwhile".into()),
            // Not seen yet, or not for now: the watch goes on.
            Some(Ok(None) | Err(_)) => continue,
            None => return Err("it can't be watched".into()),
        };
        seen = true;
        pull = pull_problem(&pod).or(pull);
        let phase = pod_state(&pod);
        if !matches!(phase, PodState::MissingClaim(_)) {
            doubt = None;
        }
        let mut wait = match phase {
            PodState::Running => break,
            PodState::Ended(fiber_core::ExitReason::NotStarted(words))
            | PodState::CannotStart(words) => {
                return Err(stuck(&pod, &words, pull.as_deref()));
            }
            PodState::Ended(_) => break,
            PodState::Rejected(words) => {
                return Err(format!("{words}: there may be room for it when it is started again"));
            }
            PodState::Starting => continue,
            PodState::MissingClaim(words) => {
                doubt.get_or_insert_with(|| {
                    (Instant::now() + claims::DOUBT, stuck(&pod, &words, None))
                });
                WaitReason::Resources(words)
            }
            PodState::Waiting(wait) => wait,
        };
        if let WaitReason::Resources(words) = &mut wait {
            *words = claims::explain(server, &claims::of(&pod), std::mem::take(words)).await;
        }
        let (WaitReason::Resources(words) | WaitReason::Image(words)) = &wait;
        step.detail(words);
        if waiting.as_ref().map(discriminant) != Some(discriminant(&wait)) {
            since = Instant::now();
        }
        waiting = Some(wait);
    }
    step.done();
    Ok(())
}

fn late(waiting: Option<WaitReason>, limit: Duration, meta: &Meta) -> String {
    match waiting {
        None => format!("it did not start within {limit:?} (`start_timeout` sets the limit)"),
        Some(WaitReason::Resources(words)) => format!(
            "there was no room for it within {limit:?}: {words}{}: ask for less, or wait longer (`schedule_timeout`)",
            requested(meta)
        ),
        Some(WaitReason::Image(words)) => {
            format!(
                "its container was not made within {limit:?} (`pull_timeout` sets the limit): {words}"
            )
        }
    }
}

fn stuck(pod: &Pod, words: &str, pull: Option<&str>) -> String {
    let image = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .find_map(|container| container.image.as_deref());
    let image = image.unwrap_or_default();
    match words.split(':').next() {
        Some("ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull") => format!(
            "its node can't get the image `{image}`: {}. Push it to a registry that the nodes can pull from (`registry`, or \
             FIBER_REGISTRY, has fiber do it), or name the Secret with the credentials in `pull_secrets`",
            pull.unwrap_or(words)
        ),
        _ => words.to_string(),
    }
}
