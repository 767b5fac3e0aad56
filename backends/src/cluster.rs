//! Sessions seen from outside: the part of each backend for the command `fiber`.
//!
//! A session is a program with the processes that it started. The head is the program itself. It
//! runs in a container or pod of its own, or as a job, when a [`Cluster`] started it, and else on a
//! host.

pub mod archive;
mod backend;
pub mod bridge;
mod options;
pub(crate) mod session;
pub(crate) mod volume;

pub use bytes::Bytes;
use fiber_core::{Config, Result};
pub use futures_util::stream::LocalBoxStream;

pub(crate) use self::backend::no_sessions;
pub use self::backend::{Connect, SessionBackend, configured};
pub use self::options::{BackendOption, OptionKind, OptionValue, OptionValues};
pub use self::session::{
    ByteStream, Cluster, ExitStatus, Location, OutputChunk, ProcessState, ProgramSource,
    RunRequest, SessionHead, SessionProcess, Started, Usage,
};
pub use self::volume::{Volume, VolumeKind, VolumeMount, serve};
pub use crate::catalogue::{missing, session_backends as backends};
pub use crate::progress::{Progress, Step};

/// Connects to the cluster that `backend` names in the configuration.
///
/// # Errors
/// [`Error::Config`](fiber_core::Error::Config) if there is no such backend;
/// [`Error::System`](fiber_core::Error::System) if the cluster does not answer.
pub async fn connect(config: &Config) -> Result<Box<dyn Cluster>> {
    configured(config)?.connect(config).await
}

/// Returns the programs of this host, whichever backend they use for their children.
pub fn host() -> Box<dyn Cluster> {
    crate::local::host_sessions("local")
}
