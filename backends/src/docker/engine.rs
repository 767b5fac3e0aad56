//! The Docker engine, and what its refusals mean.

use std::io;

use bollard::errors::Error;

use crate::error_chain::{causes, chain};

const UNIX: &str = "unix://";
/// Where the engine of a host, or of a container that was given it, is looked for.
pub(super) const SOCKET: &str = "/var/run/docker.sock";

/// A Docker engine that answers.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) api: bollard::Docker,
    pub(super) host: String,
    /// Bytes of memory that its host has.
    pub(super) memory: Option<u64>,
    /// Processor cores that its host has.
    pub(super) cores: Option<u64>,
    /// What its host is, as `uname -m` has it.
    pub(super) architecture: Option<String>,
}

impl Engine {
    /// The engine that `DOCKER_HOST` names, or the one of this host, in the version of its language
    /// that both speak.
    ///
    /// # Errors
    /// Why there is none, and what to do.
    pub(super) async fn connect() -> Result<Engine, String> {
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

    /// The path of its socket, as this process sees it.
    pub(super) fn socket(&self) -> Option<&str> {
        self.host.strip_prefix(UNIX)
    }

    /// What went wrong, in words that say what to do where the engine itself is the problem.
    pub(super) fn explain(&self, error: &Error) -> String {
        explain(&self.host, error)
    }
}

/// The engine's own words, if it answered.
pub(super) fn refusal(error: &Error) -> Option<(u16, &str)> {
    match error {
        Error::DockerResponseServerError { status_code, message } => Some((*status_code, message)),
        _ => None,
    }
}

pub(super) fn is_missing(error: &Error) -> bool {
    matches!(refusal(error), Some((404, _)))
}

fn explain(host: &str, error: &Error) -> String {
    if let Some((_, message)) = refusal(error) {
        return message.to_string();
    }
    match io_kind(error) {
        Some(io::ErrorKind::PermissionDenied) => format!(
            "this user may not use the Docker engine at {host}: add them to the group `docker` and log in again, or run \
             the program as a user who may"
        ),
        Some(io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => format!(
            "no Docker engine answers at {host}: start it, or set DOCKER_HOST to where there is one, or leave \
             FIBER_BACKEND out to use processes of this host"
        ),
        _ => match error {
            Error::SocketNotFoundError(_) => format!(
                "no Docker engine answers at {host}: there is no such socket. Start Docker, or set DOCKER_HOST to where \
                 there is an engine, or leave FIBER_BACKEND out to use processes of this host"
            ),
            Error::UnsupportedURISchemeError { .. } => {
                format!(
                    "DOCKER_HOST is `{host}`: it must begin with unix:// or tcp:// (TLS and ssh are not supported)"
                )
            }
            Error::RequestTimeoutError => format!("the Docker engine at {host} does not answer"),
            _ => format!("the Docker engine at {host} can't be talked to: {}", chain(error)),
        },
    }
}

fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    if let Error::IOError { err } = error {
        return Some(err.kind());
    }
    causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind)
}
