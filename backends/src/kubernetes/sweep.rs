//! Removes the pods and Secrets of dead processes.

use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;

use super::api_server::{ApiServer, is_forbidden, is_missing};
use super::current_pod::CurrentPod;
use super::names::{OWNER, SESSION};
use super::status::exit_reason;
use crate::BackendError;
use crate::owner::JobOwner;

/// Removes pods and Secrets whose owners are dead, and returns their names.
///
/// # Errors
/// The API server's error, with a remedy.
pub(super) async fn sweep(
    server: &ApiServer,
    own: Option<&CurrentPod>,
) -> Result<Vec<String>, BackendError> {
    let this = own.map_or_else(JobOwner::this_process, |own| Ok(own.owner()))?;
    let sessions = ListParams::default().labels(SESSION);
    let mut removed = Vec::new();
    let pods = server
        .api::<Pod>()
        .list_metadata(&sessions)
        .await
        .map_err(|error| server.explain(&error))?;
    for pod in pods {
        if let Some(name) = orphan(server, &pod.metadata, &this).await {
            server.remove::<Pod>(&name).await.map_err(|error| server.explain(&error))?;
            removed.push(name);
        }
    }
    // Kubernetes deletes the Secrets of pods with the pods. Not every user has the right to list
    // Secrets.
    if own.is_none() {
        let secrets = match server.api::<Secret>().list_metadata(&sessions).await {
            Ok(secrets) => secrets.items,
            Err(error) if is_forbidden(&error) => Vec::new(),
            Err(error) => return Err(server.explain(&error)),
        };
        for secret in secrets {
            if let Some(name) = orphan(server, &secret.metadata, &this).await {
                server.remove::<Secret>(&name).await.map_err(|error| server.explain(&error))?;
                removed.push(name);
            }
        }
    }
    Ok(removed)
}

/// Returns the object's name if its owner is certainly dead.
async fn orphan(server: &ApiServer, metadata: &ObjectMeta, this: &JobOwner) -> Option<String> {
    let owner = metadata.annotations.as_ref()?.get(OWNER)?;
    let owner = JobOwner::from_text(owner).filter(|owner| owner != this)?;
    is_dead(server, &owner).await.then(|| metadata.name.clone()).flatten()
}

async fn is_dead(server: &ApiServer, owner: &JobOwner) -> bool {
    let JobOwner::Pod { name, uid } = owner else { return owner.is_a_dead_process() };
    match server.api::<Pod>().get(name).await {
        Ok(pod) => {
            let of_pod = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let ended =
                matches!(of_pod, Some("Succeeded" | "Failed")) || exit_reason(&pod).is_some();
            pod.metadata.uid.as_ref() != Some(uid) || ended
        }
        Err(error) => is_missing(&error),
    }
}
