//! Sessions as they are seen from outside: what a command needs of a place where they run.
//!
//! A session is a program with the processes that it started. Its head is the program itself, which
//! runs in a container or pod of its own when a [`Cluster`] started it, and on a host when somebody
//! else did.

pub mod archive;
pub(crate) mod session;
pub(crate) mod volume;

use fiber_core::{Config, Error, Result};

pub use self::session::{
    Cluster, ExitStatus, Location, OutputChunk, ProcessState, ProgramSource, RunRequest,
    SessionProcess,
};
pub use self::volume::{Volume, VolumeKind, VolumeMount, serve};

/// The cluster that `backend` names in the configuration.
///
/// # Errors
/// [`Error::Config`] if it has none; [`Error::System`] if that can't be reached.
pub async fn connect(config: &Config) -> Result<Box<dyn Cluster>> {
    match config.backend.as_str() {
        "docker" => Ok(Box::new(crate::docker::DockerCluster::connect(config).await?)),
        #[cfg(feature = "kubernetes")]
        "kubernetes" => Ok(Box::new(crate::kubernetes::KubernetesCluster::connect(config).await?)),
        other => Err(Error::Config(format!(
            "the backend `{other}` has no sessions that can be seen from outside: choose one by `--backend docker`, \
             FIBER_BACKEND, or `backend` in fiber.toml"
        ))),
    }
}
