//! Jobs as Kubernetes pods, one process each.
//!
//! What is the same for all jobs of this process (the cluster, this process's own pod, the image) is found out when it is
//! first needed. A failure is told to who asked, and the next one tries again.

mod api_server;
mod cluster;
mod events;
mod image;
mod job;
mod logs;
mod names;
mod own;
mod reach;
mod running;
mod secret;
mod sessions;
mod status;
mod sweep;
mod template;
mod volume;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fiber_core::{Config, Error, Result, random};
use futures_util::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::OnceCell;

pub use self::api_server::ApiServer;
pub use self::cluster::KubernetesCluster;
pub use self::image::Image;
pub use self::names::{NAME, OWNER, RESTARTS, SESSION, labels};
pub use self::template::{CONTAINER, GPU, Plan, Template, variable};

use self::job::PodJob;
use self::own::OwnPod;
use self::secret::Secrets;
use self::watch::Watch;
use crate::output::Log;
use crate::owner::Owner;
use crate::progress::Lines;
use crate::{Backend, Job, JobSpec, OutputMode, Reach};

/// Runs jobs as pods of a Kubernetes cluster.
#[derive(Debug)]
pub struct Kubernetes {
    config: Config,
    /// Tells the pods of this process from all others.
    session: String,
    next: AtomicU64,
    access: OnceCell<Access>,
    site: OnceCell<Site>,
}

/// How this process gets to the cluster, and pods to this process.
#[derive(Debug)]
struct Access {
    server: ApiServer,
    own: Option<OwnPod>,
    reach: Reach,
}

/// What is the same for all jobs of this process.
#[derive(Debug)]
struct Site {
    server: ApiServer,
    owner: Owner,
    template: Template,
    watch: Arc<Watch>,
    secrets: Arc<Secrets>,
}

impl Kubernetes {
    /// As the configuration has it. The cluster is not needed yet.
    ///
    /// # Errors
    /// [`Error::Config`], for what can't be understood.
    pub fn new(config: &Config) -> Result<Kubernetes> {
        template::check(config).map_err(Error::Config)?;
        let session = random::<6>().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Kubernetes {
            config: config.clone(),
            session,
            next: AtomicU64::new(1),
            access: OnceCell::new(),
            site: OnceCell::new(),
        })
    }

    async fn access(&self) -> Result<&Access, String> {
        let find_out = || async {
            let server = ApiServer::connect(&self.config).await?;
            let server = match OwnPod::namespace() {
                Some(namespace) if self.config.namespace.is_none() => server.in_namespace(&namespace),
                _ => server,
            };
            let own = OwnPod::find(&server).await?;
            let reach = reach::choose(&self.config, server.host())?;
            Ok(Access { server, own, reach })
        };
        self.access.get_or_try_init(find_out).await
    }

    async fn site(&self) -> Result<&Site, String> {
        let find_out = || async {
            let Access { server, own, .. } = self.access().await?;
            let image = image::find(&self.config, own.as_ref(), &Lines).await?;
            let template = Template::inheriting(&self.config, image, own.as_ref())?;
            let owner = own.as_ref().map_or_else(Owner::this_process, OwnPod::owner);
            let model = ObjectMeta {
                name: Some(format!("fiber-{}", self.session)),
                labels: Some(labels(&self.session, &names::program(), "session")),
                annotations: Some(names::annotations(&owner, "session", 0)),
                owner_references: own.as_ref().map(|own| vec![own.reference()]),
                ..Default::default()
            };
            let secrets = Arc::new(Secrets::new(server.clone(), model));
            let watch = Watch::begin(server, &self.session);
            let (sweeper, own) = (server.clone(), own.clone());
            tokio::task::spawn_local(async move {
                match sweep::sweep(&sweeper, own.as_ref()).await {
                    Ok(removed) if removed.is_empty() => {}
                    Ok(removed) => tracing::info!("removed what dead sessions had left: {}", removed.join(", ")),
                    Err(error) => tracing::warn!("what dead sessions may have left stays for now: {error}"),
                }
            });
            Ok(Site { server: server.clone(), owner, template, watch, secrets })
        };
        self.site.get_or_try_init(find_out).await
    }

    async fn start(&self, spec: JobSpec) -> Result<Arc<dyn Job>, String> {
        let site = self.site().await?;
        let log = match spec.output {
            OutputMode::File => Some(Log::open(&spec).map_err(|error| error.to_string())?),
            _ => None,
        };
        let secrets: BTreeMap<String, String> =
            spec.secrets.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        let lease = match secrets.is_empty() {
            true => None,
            false => Some(site.secrets.lease(secrets).await?),
        };
        let told = spec.environment.iter().map(|(name, value)| variable(*name, value));
        let confided =
            lease.iter().flat_map(|lease| spec.secrets.iter().map(|(name, _)| from_secret(name, &lease.name)));
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = names::pod_name(&self.session, number, &spec.name);
        let pod = site.template.pod(Plan {
            name: name.clone(),
            labels: labels(&self.session, &names::program(), "process"),
            annotations: names::annotations(&site.owner, &spec.name, spec.restarts),
            arguments: spec.arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect(),
            environment: told.chain(confided).collect(),
            meta: spec.meta,
            grace: self.config.shutdown_timeout,
        });
        Ok(PodJob::start(site, name, pod, &spec, log, lease))
    }
}

fn from_secret(name: &str, secret: &str) -> EnvVar {
    let source = SecretKeySelector { name: secret.into(), key: name.into(), optional: None };
    let value_from = EnvVarSource { secret_key_ref: Some(source), ..Default::default() };
    EnvVar { name: name.into(), value: None, value_from: Some(value_from) }
}

impl Backend for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn reach(&self) -> LocalBoxFuture<'_, Result<Reach>> {
        Box::pin(async move {
            let access = self.access().await.map_err(|problem| Error::system("pods can't be used", problem))?;
            Ok(access.reach.clone())
        })
    }

    fn create(&self, spec: JobSpec) -> LocalBoxFuture<'_, Result<Arc<dyn Job>>> {
        Box::pin(async move {
            let name = spec.name.clone();
            self.start(spec).await.map_err(|problem| Error::Start { name, problem })
        })
    }

    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async move {
            let sweep = async {
                let access = self.access().await?;
                sweep::sweep(&access.server, access.own.as_ref()).await
            };
            sweep.await.map_err(|problem| Error::system("what dead sessions left can't be removed", problem))
        })
    }
}
