//! The pod that this process runs in, if it runs in one.

use fiber_core::{Config, shortage};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::api_server::{ApiServer, is_missing};
use super::base_pod;
use super::names::program_container;
use crate::owner::JobOwner;
use crate::{BackendError, KubernetesSection};

/// The mount path of a service account's token and namespace in a pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The variable with the pod's name, for pods whose host name differs. The downward API can set it.
const NAME: &str = "POD_NAME";

/// The pod that this process runs in.
#[derive(Clone, Debug)]
pub(super) struct CurrentPod {
    name: String,
    uid: String,
    pub(super) spec: PodSpec,
    /// The user's manifest, if the pod was made from one.
    pub(super) manifest: Option<Pod>,
}

/// Whether this process runs in a pod, as far as it can read that.
pub(super) fn is_in_pod() -> bool {
    !matches!(CurrentPod::namespace(), Ok(None))
}

/// Connects to the API server, and finds this process's own pod, if it runs in one. Other pods are
/// created in the same namespace.
///
/// # Errors
/// The reason why one of them is unavailable, with a remedy.
pub(super) async fn connect(
    config: &Config,
) -> Result<(ApiServer, Option<CurrentPod>), BackendError> {
    let server = ApiServer::connect(config).await?;
    let server = match CurrentPod::namespace()? {
        Some(namespace) if config.section::<KubernetesSection>().namespace.is_none() => {
            server.in_namespace(&namespace)
        }
        _ => server,
    };
    let own = CurrentPod::find(&server).await?;
    Ok((server, own))
}

impl CurrentPod {
    /// Returns the namespace of this process's own pod.
    fn namespace() -> Result<Option<String>, BackendError> {
        let path = format!("{ACCOUNT}/namespace");
        match std::fs::read_to_string(&path) {
            Ok(namespace) => {
                Ok(Some(namespace.trim().to_string()).filter(|namespace| !namespace.is_empty()))
            }
            // The wrong answer "outside of the cluster" would be cached.
            Err(error) if shortage::is_shortage(&error) => {
                Err(BackendError::unreadable(path, &error))
            }
            Err(_) => Ok(None),
        }
    }

    async fn find(server: &ApiServer) -> Result<Option<CurrentPod>, BackendError> {
        let Some(namespace) = CurrentPod::namespace()? else { return Ok(None) };
        let name = std::env::var(NAME).unwrap_or_else(|_| fiber_core::host_name());
        if namespace != server.namespace() {
            return Err(refused!(
                "`kubernetes.namespace` is `{}`, but this process's own pod is in `{namespace}`, \
                 and can own other pods only there: leave `kubernetes.namespace` out, or run the pod \
                 there",
                server.namespace()
            ));
        }
        match server.api::<Pod>().get(&name).await {
            Ok(pod) => {
                let annotation = pod.metadata.annotations.as_ref();
                let manifest = annotation.and_then(|all| all.get(base_pod::ANNOTATION));
                let manifest = manifest.map(|text| serde_json::from_str(text)).transpose();
                Ok(Some(CurrentPod {
                    manifest: manifest.map_err(|error| {
                        refused!("the annotation `{}` of `{name}`: {error}", base_pod::ANNOTATION)
                    })?,
                    name,
                    uid: pod.metadata.uid.unwrap_or_default(),
                    spec: pod.spec.unwrap_or_default(),
                }))
            }
            Err(error) if is_missing(&error) => Err(refused!(
                "this process is in a pod, but `{namespace}` has no pod `{name}`: let the downward \
                 API set {NAME} to metadata.name"
            )),
            Err(error) => Err(server.explain(&error)),
        }
    }

    #[cfg(test)]
    pub(super) fn new(name: &str, uid: &str, spec: PodSpec) -> CurrentPod {
        CurrentPod { name: name.into(), uid: uid.into(), spec, manifest: None }
    }

    /// Returns the container that this process runs in.
    pub(super) fn container(&self) -> Option<&Container> {
        program_container(&self.spec)
    }

    pub(super) fn owner(&self) -> JobOwner {
        JobOwner::Pod { name: self.name.clone(), uid: self.uid.clone() }
    }

    /// Returns the owner reference by which Kubernetes deletes an object with this pod.
    pub(super) fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            ..Default::default()
        }
    }
}
