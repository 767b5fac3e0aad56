//! Jobs as Kubernetes pods, one process each.
//!
//! The first job looks up what all jobs of this process share: the cluster, this process's own pod,
//! the image. Jobs that wait for the same attempt share its error; later jobs try again.

mod api_server;
mod base_pod;
mod claims;
mod cluster;
mod context;
mod current_pod;
mod events;
mod image;
mod inspect;
mod job;
mod kept;
mod listen;
mod logs;
mod names;
mod object_watch;
mod pod_template;
mod restarted;
mod secret;
mod sessions;
mod start_error;
mod startup;
mod status;
mod sweep;
mod volume;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fiber_core::{Config, Error, Result};
use futures_util::future::LocalBoxFuture;

pub(crate) use self::names::labels;
pub(crate) use self::pod_template::{PodRequest, variable};

use self::context::{ClusterAccess, PodContext};
use crate::error::system_error;
use crate::output::OutputTarget;
use crate::owner::new_session;
use crate::single_flight::SingleFlightCell;
use crate::{Backend, BackendEntry, BackendError, Job, JobSpec, ListenAddress, PROCESS_END};

pub(crate) const ENTRY: BackendEntry =
    BackendEntry::new("kubernetes", |config| Ok(Arc::new(Kubernetes::new(config)?)))
        .sessions(&cluster::SESSIONS);

/// Runs jobs as pods of a Kubernetes cluster.
#[derive(Debug)]
pub struct Kubernetes {
    config: Config,
    /// The id of this process's pods.
    session: String,
    next: AtomicU64,
    access: SingleFlightCell<ClusterAccess>,
    context: SingleFlightCell<PodContext>,
}

impl Kubernetes {
    /// Creates the backend as configured. It connects to the cluster on first use.
    ///
    /// # Errors
    /// [`Error::Config`] for invalid entries.
    pub fn new(config: &Config) -> Result<Kubernetes> {
        pod_template::check(config)?;
        Ok(Kubernetes {
            config: config.clone(),
            session: new_session(),
            next: AtomicU64::new(1),
            access: SingleFlightCell::default(),
            context: SingleFlightCell::default(),
        })
    }

    async fn access(&self) -> Result<&ClusterAccess, BackendError> {
        self.access.get_or_try_init(async || ClusterAccess::find(&self.config).await).await
    }

    async fn context(&self) -> Result<&PodContext, BackendError> {
        let find =
            async || PodContext::find(&self.config, self.access().await?, &self.session).await;
        self.context.get_or_try_init(find).await
    }

    async fn start(&self, spec: JobSpec) -> Result<Arc<dyn Job>, BackendError> {
        let context = self.context().await?;
        // Kubernetes keeps both streams together.
        let [output, _] = OutputTarget::both(&spec)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = names::pod_name(&self.session, number, &spec.name);
        let pod = context.template.pod(PodRequest {
            name: name.clone(),
            labels: labels(&self.session, &names::program(), "process"),
            annotations: names::annotations(&context.owner, &spec.name, spec.restarts),
            arguments: spec.arguments_as_text(),
            environment: spec.variables().map(|(name, value)| variable(name, &value)).collect(),
            meta: spec.meta,
            grace: self.config.grace.saturating_add(PROCESS_END),
        });
        Ok(job::start(context, name, pod, &spec, output, self.config.shutdown_timeout))
    }
}

impl Backend for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn listen_address(&self) -> LocalBoxFuture<'_, Result<ListenAddress>> {
        Box::pin(async move {
            let access = self.access().await.map_err(system_error("Kubernetes can't be used"))?;
            Ok(access.listen.clone())
        })
    }

    fn create(&self, spec: JobSpec) -> LocalBoxFuture<'_, Result<Arc<dyn Job>>> {
        Box::pin(async move {
            let name = spec.name.clone();
            self.start(spec).await.map_err(|problem| Error::not_started(name, problem))
        })
    }

    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async move {
            let sweep = async {
                let access = self.access().await?;
                sweep::sweep(&access.server, access.own.as_ref()).await
            };
            sweep.await.map_err(system_error("leftovers of dead sessions can't be removed"))
        })
    }
}
