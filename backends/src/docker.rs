//! Jobs as Docker containers, one process each.
//!
//! The first job looks up what all jobs of this process share: the engine, this process's own
//! container, the network, the image. Jobs that wait for the same attempt share its error; later
//! jobs try again.

mod access;
mod bundle;
mod cli;
mod cluster;
mod container;
mod context;
mod current_container;
mod engine;
mod events;
mod image;
mod inspect;
mod labels;
mod logs;
mod network;
mod request;
mod sessions;
mod strip;
mod sweep;
mod volume;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fiber_core::{Config, Error, Result};
use futures_util::future::LocalBoxFuture;

#[cfg(feature = "kubernetes")]
use self::cluster::DockerCluster;
use self::context::DockerContext;
#[cfg(feature = "kubernetes")]
use self::engine::Engine;
pub(crate) use self::image::ContainerImage;
use crate::error::system_error;
use crate::gpus::GpuAllocator;
use crate::output::OutputTarget;
use crate::owner::new_session;
use crate::progress::StderrProgress;
use crate::single_flight::SingleFlightCell;
use crate::{Backend, BackendEntry, BackendError, Job, JobSpec, ListenAddress};

/// Builds an image of this program, and pushes it if a registry is configured.
///
/// # Errors
/// The reason, with a remedy.
#[cfg(feature = "kubernetes")]
pub(crate) async fn image_of_this_program(
    config: &Config,
    progress: &dyn crate::Progress,
) -> Result<ContainerImage, BackendError> {
    let engine = Engine::connect().await?;
    let mut made = config.clone();
    made.image = None;
    let image = image::find(&engine, &made, None, progress).await?;
    let registry = config.registry.as_deref();
    let name = image::publish(&engine, &image.name, registry, progress).await?;
    Ok(ContainerImage { name, ..image })
}

/// Builds the image of a session's head with this host's engine, for use elsewhere. Also returns
/// the entry point and command that replace the image's own.
///
/// # Errors
/// The reason, with a remedy.
#[cfg(feature = "kubernetes")]
pub(crate) async fn image_of(
    config: &Config,
    run: &crate::cluster::session::RunRequest,
    progress: &dyn crate::Progress,
) -> Result<(ContainerImage, cluster::Command), BackendError> {
    let docker = DockerCluster::connect(config).await.map_err(|error| error.to_string())?;
    docker.image(run, progress).await
}

pub(crate) const ENTRY: BackendEntry =
    BackendEntry::new("docker", |config| Ok(Arc::new(Docker::new(config)?)))
        .sessions(&cluster::SESSIONS);

/// Runs jobs as containers of a Docker engine.
#[derive(Debug)]
pub struct Docker {
    config: Config,
    gpus: GpuAllocator,
    /// The id of this process's containers.
    session: String,
    next: AtomicU64,
    context: SingleFlightCell<DockerContext>,
    image: SingleFlightCell<ContainerImage>,
}

impl Docker {
    /// Creates the backend as configured. It connects to the engine on first use.
    ///
    /// # Errors
    /// [`Error::Config`] for invalid mounts.
    pub fn new(config: &Config) -> Result<Docker> {
        request::check(config)?;
        Ok(Docker {
            config: config.clone(),
            gpus: GpuAllocator::new(config),
            session: new_session(),
            next: AtomicU64::new(1),
            context: SingleFlightCell::default(),
            image: SingleFlightCell::default(),
        })
    }

    async fn context(&self) -> Result<&DockerContext, BackendError> {
        self.context
            .get_or_try_init(async || DockerContext::find(&self.config, &self.session).await)
            .await
    }

    async fn start(&self, spec: JobSpec) -> Result<Arc<dyn Job>, BackendError> {
        let context = self.context().await?;
        let find_image = async || {
            image::find(&context.engine, &self.config, context.current.as_ref(), &StderrProgress)
                .await
        };
        let image = self.image.get_or_try_init(find_image).await?;
        let resources = request::resources(&spec.meta, &context.engine, &self.gpus)
            .map_err(|error| error.map(|problem| problem + &spec.shared_job_remedy()))?;
        let outputs = OutputTarget::both(&spec)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = request::container_name(&self.session, number, &spec.name);
        let labels = labels::labels(&self.session, &spec, context.current.as_ref())?;
        let body = request::body(&self.config, &spec, image, context, &resources, labels);
        Ok(container::start(
            context,
            image,
            container::ContainerRequest { name, body, spec, resources, outputs },
        ))
    }
}

impl Backend for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn listen_address(&self) -> LocalBoxFuture<'_, Result<ListenAddress>> {
        Box::pin(async move {
            let context = self.context().await.map_err(system_error("Docker can't be used"))?;
            Ok(context.network.listen.clone())
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
                let context = self.context().await?;
                sweep::sweep(&context.engine, context.current.as_ref()).await
            };
            sweep.await.map_err(system_error("leftovers of dead sessions can't be removed"))
        })
    }
}
