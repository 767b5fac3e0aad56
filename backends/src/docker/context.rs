//! The context that all container jobs of a process share.

use std::sync::Arc;

use fiber_core::Config;

use super::access::EngineAccess;
use super::current_container::CurrentContainer;
use super::engine::Engine;
use super::events::ContainerEvents;
use super::network::ContainerNetwork;
use super::sweep;
use crate::BackendError;
use crate::owner::spawn_sweep;

/// The engine, and the ways by which this process and its containers reach each other.
#[derive(Debug)]
pub(super) struct DockerContext {
    pub(super) engine: Arc<Engine>,
    pub(super) current: Option<CurrentContainer>,
    pub(super) network: ContainerNetwork,
    pub(super) access: EngineAccess,
    pub(super) events: Arc<ContainerEvents>,
}

impl DockerContext {
    /// Looks everything up, and begins to remove leftovers of dead sessions in the background.
    ///
    /// # Errors
    /// The reason why containers can't run, with a remedy.
    pub(super) async fn find(
        config: &Config,
        session: &str,
    ) -> Result<DockerContext, BackendError> {
        let engine = Arc::new(Engine::connect().await?);
        let current = CurrentContainer::find(&engine).await?;
        let network = ContainerNetwork::choose(&engine, config, current.as_ref()).await?;
        let events = ContainerEvents::follow(Arc::clone(&engine), session);
        let (sweeper, sweeping) = (Arc::clone(&engine), current.clone());
        spawn_sweep(async move { sweep::sweep(&sweeper, sweeping.as_ref()).await });
        let access = match config.nested {
            true => EngineAccess::new(&engine, current.as_ref()),
            false => EngineAccess::default(),
        };
        Ok(DockerContext { engine, current, network, access, events })
    }
}
