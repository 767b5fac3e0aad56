//! Access of containers to the engine, for jobs that start containers themselves.

use std::os::unix::fs::MetadataExt;

use bollard::models::{Mount, MountType};

use super::current_container::CurrentContainer;
use super::engine::{Engine, SOCKET};
use super::request::mount;

/// The mount, variable and group by which a container reaches the engine.
#[derive(Debug, Default)]
pub(super) struct EngineAccess {
    pub(super) mount: Option<Mount>,
    pub(super) environment: Option<(String, String)>,
    /// The group that owns the socket.
    pub(super) group: Option<String>,
}

impl EngineAccess {
    pub(super) fn new(engine: &Engine, current: Option<&CurrentContainer>) -> EngineAccess {
        let Some(socket) = engine.socket() else {
            let environment = Some(("DOCKER_HOST".into(), engine.host.clone()));
            return EngineAccess { environment, ..Default::default() };
        };
        let source = match current {
            Some(current) => current.source_of(socket),
            None => Some(socket.to_string()),
        };
        let mount = source.map(|source| mount(MountType::BIND, source, SOCKET, false));
        let group = std::fs::metadata(socket).ok().map(|data| data.gid().to_string());
        EngineAccess { mount, environment: None, group }
    }
}
