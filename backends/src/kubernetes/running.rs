//! Waits for a pod to run.

use std::mem::discriminant;
use std::time::Duration;

use fiber_core::{Config, Meta};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::watch_object;
use tokio::time::{Instant, sleep, sleep_until};

use super::api_server::ApiServer;
use super::job::{LOOK, asked};
use super::status::{Phase, phase, pull_problem};
use super::{claims, events};
use crate::Wait;
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
pub(super) async fn wait(
    server: &ApiServer,
    name: &str,
    meta: &Meta,
    timeouts: StartTimeouts,
    progress: &dyn Progress,
) -> Result<(), String> {
    let mut step = progress.begin(&format!("starting the pod {name}"));
    let mut sights = Box::pin(watch_object(server.streams::<Pod>(), name));
    let mut seen = false;
    let mut pull = None;
    let mut waiting: Option<Wait> = None;
    let mut since = Instant::now();
    let mut doubt = None;
    loop {
        let limit = match &waiting {
            None => timeouts.start,
            Some(Wait::Room(_)) => timeouts.room,
            Some(Wait::Image(_)) => timeouts.image,
        };
        let sight = tokio::select! {
            biased;
            problem = claims::lapse(server, doubt.as_ref()) => return Err(problem),
            () = sleep_until(since + limit) => return Err(late(waiting, limit, meta)),
            sight = sights.next() => sight,
            () = sleep(LOOK), if matches!(waiting, Some(Wait::Image(_))) => {
                if let Some(words) = events::last(server, "Pod", name).await {
                    step.detail(&words);
                    waiting = Some(Wait::Image(words));
                }
                continue;
            }
        };
        let pod = match sight {
            Some(Ok(Some(pod))) => pod,
            Some(Ok(None)) if seen => return Err("its pod was removed meanwhile".into()),
            // Not seen yet, or not for now: the watch goes on.
            Some(Ok(None) | Err(_)) => continue,
            None => return Err("it can't be watched".into()),
        };
        seen = true;
        pull = pull_problem(&pod).or(pull);
        let phase = phase(&pod);
        if !matches!(phase, Phase::Doubtful(_)) {
            doubt = None;
        }
        let mut wait = match phase {
            Phase::Running => break,
            Phase::Ended(fiber_core::ExitReason::NotStarted(words)) | Phase::Stuck(words) => {
                return Err(stuck(&pod, &words, pull.as_deref()));
            }
            Phase::Ended(_) => break,
            Phase::Refused(words) => {
                return Err(format!("{words}: there may be room for it when it is started again"));
            }
            Phase::Starting => continue,
            Phase::Doubtful(words) => {
                doubt.get_or_insert_with(|| {
                    (Instant::now() + claims::DOUBT, stuck(&pod, &words, None))
                });
                Wait::Room(words)
            }
            Phase::Waiting(wait) => wait,
        };
        if let Wait::Room(words) = &mut wait {
            *words = claims::explain(server, &claims::of(&pod), std::mem::take(words)).await;
        }
        let (Wait::Room(words) | Wait::Image(words)) = &wait;
        step.detail(words);
        if waiting.as_ref().map(discriminant) != Some(discriminant(&wait)) {
            since = Instant::now();
        }
        waiting = Some(wait);
    }
    step.done();
    Ok(())
}

fn late(waiting: Option<Wait>, limit: Duration, meta: &Meta) -> String {
    match waiting {
        None => format!("it did not start within {limit:?} (`start_timeout` sets the limit)"),
        Some(Wait::Room(words)) => format!(
            "there was no room for it within {limit:?}: {words}{}: ask for less, or wait longer (`schedule_timeout`)",
            asked(meta)
        ),
        Some(Wait::Image(words)) => {
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
