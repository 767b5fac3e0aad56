//! What the cluster tells of a pod, or of what it needs, beside its status.

use std::time::Duration;

use fiber_core::ExitReason;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use tokio::time::{sleep, timeout};

use super::api_server::ApiServer;

/// How long to wait for an answer: what happened to a pod is told without it, too.
pub(super) const ANSWER: Duration = Duration::from_secs(1);
/// How long after a pod's end to ask again why it was removed.
const AGAIN: Duration = Duration::from_millis(500);

/// What was said last of an object: of a pod that has a node, say, of its image, its volumes, its
/// network.
pub(super) async fn last(server: &ApiServer, kind: &str, name: &str) -> Option<String> {
    let mut events = about(server, kind, name).await;
    events.retain(|event| event.reason.as_deref() != Some("Scheduled"));
    let latest = events.into_iter().max_by_key(|event| {
        let times = [
            event.last_timestamp.as_ref().map(|time| time.0),
            event.event_time.as_ref().map(|time| time.0),
        ];
        times.into_iter().flatten().max()
    });
    latest?.message
}

/// Why the cluster has removed a pod, if it was the cluster. A scheduler, say, tells it a moment
/// after it was done.
pub(super) async fn removal(server: &ApiServer, pod: &str) -> Option<ExitReason> {
    if let Some(reason) = told_removal(server, pod).await {
        return Some(reason);
    }
    sleep(AGAIN).await;
    told_removal(server, pod).await
}

async fn told_removal(server: &ApiServer, pod: &str) -> Option<ExitReason> {
    about(server, "Pod", pod).await.into_iter().find_map(|event| {
        let words = event.message.unwrap_or_default();
        match event.reason.as_deref()? {
            "Preempted" => Some(ExitReason::Preempted(words)),
            "Evicted" | "TaintManagerEviction" | "NodeShutdown" => Some(ExitReason::Evicted(words)),
            _ => None,
        }
    })
}

async fn about(server: &ApiServer, kind: &str, name: &str) -> Vec<Event> {
    // Not every event has the object's uid, and no other of its kind has its name.
    let about = ListParams::default()
        .fields(&format!("involvedObject.kind={kind},involvedObject.name={name}"));
    match timeout(ANSWER, server.api::<Event>().list(&about)).await {
        Ok(Ok(events)) => events.items,
        Ok(Err(error)) => {
            tracing::debug!("what is told of {name} can't be read: {error}");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}
