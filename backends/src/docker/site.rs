//! What is the same for all jobs of a process.

use std::sync::Arc;

use fiber_core::Config;

use super::access::EngineAccess;
use super::engine::Engine;
use super::events::Events;
use super::network::Place;
use super::owner::{self, OwnContainer};
use crate::owner::sweep_beside;

/// The engine, and how this process and its containers get to each other.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) engine: Arc<Engine>,
    pub(super) own: Option<OwnContainer>,
    pub(super) place: Place,
    pub(super) access: EngineAccess,
    pub(super) events: Arc<Events>,
}

impl Site {
    /// Finds it out, and begins to remove what dead sessions left.
    ///
    /// # Errors
    /// Why there can be no containers, and what to do.
    pub(super) async fn find(config: &Config, session: &str) -> Result<Site, String> {
        let engine = Arc::new(Engine::connect().await?);
        let own = OwnContainer::find(&engine).await?;
        let place = Place::choose(&engine, config, own.as_ref()).await?;
        let events = Events::subscribe(Arc::clone(&engine), session);
        let (sweeper, sweeping) = (Arc::clone(&engine), own.clone());
        sweep_beside(async move { owner::sweep(&sweeper, sweeping.as_ref()).await });
        let access = match config.nested {
            true => EngineAccess::new(&engine, own.as_ref()),
            false => EngineAccess::default(),
        };
        Ok(Site { engine, own, place, access, events })
    }
}
