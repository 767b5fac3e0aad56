//! The connection to a Docker engine, and explanations of its errors.

use std::io;
use std::time::Duration;

use bollard::errors::Error;
use bollard::query_parameters::{RemoveContainerOptions, WaitContainerOptions};
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::BackendError;
use crate::error_chain::{causes, chain, shortage_behind};

const UNIX: &str = "unix://";
/// The default socket of the engine, on a host and in containers with access to it.
pub(super) const SOCKET: &str = "/var/run/docker.sock";

/// Time limit for a removal that is in progress.
const REMOVAL: Duration = Duration::from_secs(10);

/// A connection to a Docker engine that answers.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    pub(super) api: bollard::Docker,
    pub(super) host: String,
    /// The memory of its host in bytes.
    pub(super) memory: Option<u64>,
    /// The CPU cores of its host.
    pub(super) cores: Option<u64>,
    /// The architecture of its host, as in `uname -m`.
    pub(super) architecture: Option<String>,
}

impl Engine {
    /// Connects to the engine that `DOCKER_HOST` names, or to this host's, with the newest API
    /// version that both sides support.
    ///
    /// # Errors
    /// The reason, with a remedy.
    pub(super) async fn connect() -> Result<Engine, BackendError> {
        let host = std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty());
        let host = host.unwrap_or_else(|| format!("{UNIX}{SOCKET}"));
        let connect = async {
            let api = bollard::Docker::connect_with_host(&host)?.negotiate_version().await?;
            let info = api.info().await?;
            Ok((api, info))
        };
        let (api, info) = connect.await.map_err(|error: Error| explain(&host, &error))?;
        let natural = |number: Option<i64>| {
            number.and_then(|number| u64::try_from(number).ok()).filter(|n| *n > 0)
        };
        let (memory, cores) = (natural(info.mem_total), natural(info.ncpu));
        Ok(Engine { api, host, memory, cores, architecture: info.architecture })
    }

    /// Kills and removes a container and its anonymous volumes. Returns when it is gone. A
    /// container that does not exist is no error.
    pub(super) async fn remove(&self, id: &str) -> Result<(), Error> {
        let options = RemoveContainerOptions { force: true, v: true, link: false };
        match self.api.remove_container(id, Some(options)).await {
            Err(error) if is_missing(&error) => Ok(()),
            // Somebody else removes it.
            Err(Error::DockerResponseServerError { status_code: 409, .. }) => {
                let options = WaitContainerOptions { condition: "removed".into() };
                let mut removed = self.api.wait_container(id, Some(options));
                // An error is that of a container that is gone already.
                let _ = timeout(REMOVAL, removed.next()).await;
                Ok(())
            }
            result => result,
        }
    }

    /// Returns the path of its socket in this process's file system, if it has one.
    pub(super) fn socket(&self) -> Option<&str> {
        self.host.strip_prefix(UNIX)
    }

    /// Formats an error, with a remedy if the engine itself is the problem.
    pub(super) fn explain(&self, error: &Error) -> BackendError {
        explain(&self.host, error)
    }
}

/// Returns the status code and message of the engine's response, if it sent one.
pub(super) fn refusal(error: &Error) -> Option<(u16, &str)> {
    match error {
        Error::DockerResponseServerError { status_code, message } => Some((*status_code, message)),
        _ => None,
    }
}

/// Returns whether an error says that the engine does not run now. It may come back.
pub(super) fn is_away(error: &Error) -> bool {
    match refusal(error) {
        Some((503, _)) => true,
        Some((_, message)) => message.contains("shutting down"),
        None => {
            shortage_behind(error).is_none()
                && io_kind(error) != Some(io::ErrorKind::PermissionDenied)
        }
    }
}

/// Returns the engine's answer about an object, or `None` if there is no such object.
pub(super) fn found<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Err(error) if is_missing(&error) => Ok(None),
        answer => answer.map(Some),
    }
}

pub(super) fn is_missing(error: &Error) -> bool {
    matches!(refusal(error), Some((404, _)))
}

fn explain(host: &str, error: &Error) -> BackendError {
    if let Some((_, message)) = refusal(error) {
        return BackendError::Refused(message.to_string());
    }
    if let Some(problem) = shortage_behind(error) {
        let message = format!("the Docker engine at {host} can't be used: {problem}");
        return BackendError::Shortage(message);
    }
    match io_kind(error) {
        Some(io::ErrorKind::PermissionDenied) => BackendError::NotAvailable(format!(
            "this user may not use the Docker engine at {host}: add the user to the group `docker` \
             and log in again, or run the program as a user with access"
        )),
        Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            BackendError::OutOfReach(format!(
                "no Docker engine answers at {host}: start it, or set DOCKER_HOST to one that \
                 runs, or unset FIBER_BACKEND to use processes of this host"
            ))
        }
        _ => match error {
            Error::SocketNotFoundError(_) => BackendError::NotAvailable(format!(
                "no Docker engine answers at {host}: there is no such socket. Start Docker, or set \
                 DOCKER_HOST to an engine that runs, or unset FIBER_BACKEND to use processes of \
                 this host"
            )),
            Error::UnsupportedURISchemeError { .. } => BackendError::NotAvailable(format!(
                "DOCKER_HOST is `{host}`: it must begin with unix:// or tcp:// (TLS and ssh are \
                 not supported)"
            )),
            Error::RequestTimeoutError => {
                BackendError::OutOfReach(format!("the Docker engine at {host} does not answer"))
            }
            _ => BackendError::OutOfReach(format!(
                "the Docker engine at {host} can't be used: {}",
                chain(error)
            )),
        },
    }
}

fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    if let Error::IOError { err } = error {
        return Some(err.kind());
    }
    causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind)
}
