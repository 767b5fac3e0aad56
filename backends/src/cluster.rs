//! Sessions seen from outside: what the command `fiber` needs of Docker, Kubernetes and Slurm.
//!
//! A session is a program with the processes that it started. The head is the program itself. It
//! runs in a container or pod of its own, or as a job, when a [`Cluster`] started it, and else on a host.

pub mod archive;
pub(crate) mod bridge;
pub(crate) mod session;
pub(crate) mod volume;

use fiber_core::{Config, ConfigProblem, Error, Result};

pub use self::session::{
    Allocation, ByteStream, Cluster, ExitStatus, Location, OutputChunk, ProcessState,
    ProgramSource, RunRequest, SessionProcess, Usage,
};
pub use self::volume::{Volume, VolumeKind, VolumeMount, serve};

/// Connects to the cluster that `backend` names in the configuration.
///
/// # Errors
/// [`Error::Config`] if the backend has no such sessions; [`Error::System`] if the cluster does not
/// answer.
pub async fn connect(config: &Config) -> Result<Box<dyn Cluster>> {
    match config.backend.as_str() {
        #[cfg(feature = "docker")]
        "docker" => Ok(Box::new(crate::docker::DockerCluster::connect(config).await?)),
        #[cfg(feature = "kubernetes")]
        "kubernetes" => Ok(Box::new(crate::kubernetes::KubernetesCluster::connect(config).await?)),
        #[cfg(feature = "slurm")]
        "slurm" => Ok(Box::new(crate::slurm::SlurmCluster::connect(config).await?)),
        other => Err(Error::from(ConfigProblem::value(
            "backend",
            other,
            "it has no sessions that this command can see: choose another one by \
             `--backend docker`, FIBER_BACKEND, or `backend` in fiber.toml",
        ))),
    }
}
