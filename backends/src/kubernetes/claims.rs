//! The persistent volume claims that a pod mounts, in messages.

use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use tokio::time::{Instant, sleep_until, timeout};

use super::api_server::ApiServer;
use super::events::{self, TIMEOUT};

/// The time for a new claim to become known: the cluster's components learn of it one after
/// another.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// Returns the names of the claims that this pod mounts.
pub(super) fn mounted_by(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone()))
        .collect()
}

/// Adds to the scheduler's message about claims which claim is not bound, and why.
pub(super) async fn explain(server: &ApiServer, claims: &[String], message: String) -> String {
    if !message.to_lowercase().contains("persistentvolumeclaim") {
        return message;
    }
    for name in claims {
        if phase(server, name).await.as_deref() == Some("Pending") {
            let why = events::last(server, "PersistentVolumeClaim", name).await;
            let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
            return format!("{message}; the claim `{name}` is Pending{why}");
        }
    }
    message
}

/// Waits until the grace period of a missing claim is over, and returns the problem if the claim is
/// still missing. Waits forever if none is missing.
pub(super) async fn stays_missing(
    server: &ApiServer,
    missing: Option<&(Instant, String)>,
) -> String {
    if let Some((end, problem)) = missing {
        sleep_until(*end).await;
        // The scheduler may have looked too early, and looks again only after a while.
        let name = problem.split('"').nth(1).unwrap_or_default();
        if phase(server, name).await.is_none() {
            return problem.clone();
        }
    }
    std::future::pending().await
}

/// Returns the phase of a claim; `None` if it does not exist or can't be read.
async fn phase(server: &ApiServer, name: &str) -> Option<String> {
    let claim = timeout(TIMEOUT, server.api::<PersistentVolumeClaim>().get_opt(name)).await;
    claim.ok()?.ok()??.status?.phase
}
