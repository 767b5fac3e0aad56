//! What is the same for all jobs of a process.

use std::sync::Arc;

use fiber_core::Config;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::api_server::ApiServer;
use super::names::{self, labels};
use super::own::{self, OwnPod};
use super::secret::Secrets;
use super::template::Template;
use super::watch::Watch;
use super::{image, reach, sweep};
use crate::Reach;
use crate::owner::{Owner, sweep_beside};
use crate::progress::Lines;

/// How this process gets to the cluster, and pods to this process.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) server: ApiServer,
    pub(super) own: Option<OwnPod>,
    pub(super) reach: Reach,
}

impl Access {
    /// # Errors
    /// Why there is none, and what to do.
    pub(super) async fn find(config: &Config) -> Result<Access, String> {
        let (server, own) = own::connect(config).await?;
        let reach = reach::choose(config, server.host())?;
        Ok(Access { server, own, reach })
    }
}

/// What pods are made from, and what sees to them.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) server: ApiServer,
    pub(super) owner: Owner,
    pub(super) template: Template,
    pub(super) watch: Arc<Watch>,
    pub(super) secrets: Arc<Secrets>,
}

impl Site {
    /// Finds it out, and begins to remove what dead sessions left.
    ///
    /// # Errors
    /// Why there can be no pods, and what to do.
    pub(super) async fn find(
        config: &Config,
        access: &Access,
        session: &str,
    ) -> Result<Site, String> {
        let Access { server, own, .. } = access;
        let image = image::find(config, own.as_ref(), &Lines).await?;
        let template = Template::inheriting(config, image, own.as_ref())?;
        let owner = own.as_ref().map_or_else(Owner::this_process, |own| Ok(own.owner()))?;
        let model = ObjectMeta {
            name: Some(format!("fiber-{session}")),
            labels: Some(labels(session, &names::program(), "session")),
            annotations: Some(names::annotations(&owner, "session", 0)),
            owner_references: own.as_ref().map(|own| vec![own.reference()]),
            ..Default::default()
        };
        let secrets = Arc::new(Secrets::new(server.clone(), model));
        let watch = Watch::begin(server, session);
        let (sweeper, sweeping) = (server.clone(), own.clone());
        sweep_beside(async move { sweep::sweep(&sweeper, sweeping.as_ref()).await });
        Ok(Site { server: server.clone(), owner, template, watch, secrets })
    }
}
