//! The context that all pod jobs of a process share.

use std::sync::Arc;

use fiber_core::Config;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::api_server::ApiServer;
use super::current_pod::{self, CurrentPod};
use super::names::{self, labels};
use super::pod_template::PodTemplate;
use super::secret::SecretStore;
use super::watch::PodWatch;
use super::{image, listen, sweep};
use crate::owner::{JobOwner, spawn_sweep};
use crate::progress::StderrProgress;
use crate::{BackendError, ListenAddress};

/// The connection to the cluster, and the address at which pods reach this process.
#[derive(Debug)]
pub(super) struct ClusterAccess {
    pub(super) server: ApiServer,
    pub(super) own: Option<CurrentPod>,
    pub(super) listen: ListenAddress,
}

impl ClusterAccess {
    /// Connects to the cluster, and chooses the address to listen at.
    ///
    /// # Errors
    /// The reason, with a remedy.
    pub(super) async fn find(config: &Config) -> Result<ClusterAccess, BackendError> {
        let (server, own) = current_pod::connect(config).await?;
        let listen = listen::choose(config, server.host())?;
        Ok(ClusterAccess { server, own, listen })
    }
}

/// The template, watch and Secrets of this process's pods.
#[derive(Debug)]
pub(super) struct PodContext {
    pub(super) server: ApiServer,
    pub(super) owner: JobOwner,
    pub(super) template: PodTemplate,
    pub(super) watch: Arc<PodWatch>,
    pub(super) secrets: Arc<SecretStore>,
}

impl PodContext {
    /// Looks everything up, and begins to remove leftovers of dead sessions in the background.
    ///
    /// # Errors
    /// The reason why pods can't run, with a remedy.
    pub(super) async fn find(
        config: &Config,
        access: &ClusterAccess,
        session: &str,
    ) -> Result<PodContext, BackendError> {
        let ClusterAccess { server, own, .. } = access;
        let image = image::find(config, own.as_ref(), &StderrProgress).await?;
        let template = PodTemplate::inheriting(config, image, own.as_ref())
            .map_err(|problem| problem.to_string())?;
        let owner = own.as_ref().map_or_else(JobOwner::this_process, |own| Ok(own.owner()))?;
        let model = ObjectMeta {
            name: Some(format!("fiber-{session}")),
            labels: Some(labels(session, &names::program(), "session")),
            annotations: Some(names::annotations(&owner, "session", 0)),
            owner_references: own.as_ref().map(|own| vec![own.reference()]),
            ..Default::default()
        };
        let secrets = Arc::new(SecretStore::new(server.clone(), model));
        let watch = PodWatch::start(server, session);
        let (sweeper, sweeping) = (server.clone(), own.clone());
        spawn_sweep(async move { sweep::sweep(&sweeper, sweeping.as_ref()).await });
        Ok(PodContext { server: server.clone(), owner, template, watch, secrets })
    }
}
