//! What is known of the claims that a pod mounts.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use tokio::time::{Instant, sleep_until, timeout};

use super::api_server::ApiServer;
use super::events::{self, ANSWER};

/// How long a claim may be missing that was perhaps made a moment ago, which the cluster's parts
/// hear of one after another.
pub(super) const DOUBT: Duration = Duration::from_secs(5);

/// The names of the claims that this pod mounts.
pub(super) fn of(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone()))
        .collect()
}

/// The scheduler's words, with what it does not tell if they are about claims: which is not bound,
/// and why.
pub(super) async fn explain(server: &ApiServer, claims: &[String], words: String) -> String {
    if !words.to_lowercase().contains("persistentvolumeclaim") {
        return words;
    }
    for name in claims {
        if phase(server, name).await.as_deref() == Some("Pending") {
            let why = events::last(server, "PersistentVolumeClaim", name).await;
            let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
            return format!("{words}; the claim `{name}` is Pending{why}");
        }
    }
    words
}

/// What is wrong, when the time is over in which it might have changed.
pub(super) async fn lapse(server: &ApiServer, doubt: Option<&(Instant, String)>) -> String {
    if let Some((end, problem)) = doubt {
        sleep_until(*end).await;
        // The scheduler may have looked too early, and then looks again only after a while.
        let name = problem.split('"').nth(1).unwrap_or_default();
        if phase(server, name).await.is_none() {
            return problem.clone();
        }
    }
    std::future::pending().await
}

/// `None` if there is no such claim, or nothing can be learnt of it.
async fn phase(server: &ApiServer, name: &str) -> Option<String> {
    let claim = timeout(ANSWER, server.api::<PersistentVolumeClaim>().get_opt(name)).await;
    claim.ok()?.ok()??.status?.phase
}
