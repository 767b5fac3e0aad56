//! Kubernetes' events about a pod or a claim, which say more than its status.

use std::time::Duration;

use fiber_core::ExitReason;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use tokio::time::{sleep, timeout};

use super::api_server::ApiServer;

/// Time limit for reading events. An end is reported without them, too.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);
/// Events of a pod that has no node yet.
const SCHEDULING: [&str; 4] =
    ["Scheduled", "FailedScheduling", "TriggeredScaleUp", "NotTriggerScaleUp"];
/// The pause before asking a second time why a pod was removed.
const RETRY: Duration = Duration::from_millis(500);

/// Returns the message of an object's last event: for a pod on a node, about its image, volumes or
/// network.
pub(super) async fn last(server: &ApiServer, kind: &str, name: &str) -> Option<String> {
    let mut events = about(server, kind, name).await;
    events.retain(|event| {
        !event.reason.as_deref().is_some_and(|reason| SCHEDULING.contains(&reason))
    });
    let latest = events.into_iter().max_by_key(|event| {
        let times = [
            event.last_timestamp.as_ref().map(|time| time.0),
            event.event_time.as_ref().map(|time| time.0),
        ];
        times.into_iter().flatten().max()
    });
    latest?.message
}

/// Returns why the cluster has removed a pod, if it has. A scheduler, for example, records this a
/// moment after the removal.
pub(super) async fn removal(server: &ApiServer, pod: &str) -> Option<ExitReason> {
    if let Some(reason) = find_removal(server, pod).await {
        return Some(reason);
    }
    sleep(RETRY).await;
    find_removal(server, pod).await
}

async fn find_removal(server: &ApiServer, pod: &str) -> Option<ExitReason> {
    about(server, "Pod", pod).await.into_iter().find_map(|event| {
        let message = event.message.unwrap_or_default();
        match event.reason.as_deref()? {
            "Preempted" => Some(ExitReason::Preempted(message)),
            "Evicted" | "TaintManagerEviction" | "NodeShutdown" => {
                Some(ExitReason::Evicted(message))
            }
            _ => None,
        }
    })
}

async fn about(server: &ApiServer, kind: &str, name: &str) -> Vec<Event> {
    // Not every event has the object's uid, and its name is unique among objects of its kind.
    let about = ListParams::default()
        .fields(&format!("involvedObject.kind={kind},involvedObject.name={name}"));
    match timeout(TIMEOUT, server.api::<Event>().list(&about)).await {
        Ok(Ok(events)) => events.items,
        Ok(Err(error)) => {
            tracing::debug!("the events of {name} can't be read: {error}");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}
