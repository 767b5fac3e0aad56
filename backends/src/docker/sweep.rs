//! Removes the containers of dead processes.

use super::current_container::CurrentContainer;
use super::engine::{Engine, is_missing};
use super::labels::{OWNER, SESSION};
use super::sessions::{containers, name};
use crate::BackendError;
use crate::owner::JobOwner;

/// Returns this process as the owner of containers.
///
/// # Errors
/// See [`JobOwner::this_process`].
pub(super) fn this_owner(current: Option<&CurrentContainer>) -> Result<JobOwner, BackendError> {
    current.map_or_else(JobOwner::this_process, |current| Ok(current.owner()))
}

/// Returns whether an owner is certainly dead.
pub(super) async fn is_dead(owner: &JobOwner, engine: &Engine) -> bool {
    let JobOwner::Container { id, started } = owner else { return owner.is_a_dead_process() };
    match engine.api.inspect_container(id, None).await {
        Ok(details) => {
            let state = details.state.unwrap_or_default();
            let started_again = started.is_some() && state.started_at != *started;
            state.running == Some(false) || state.restarting == Some(true) || started_again
        }
        Err(error) => is_missing(&error),
    }
}

/// Removes containers whose owners are dead, and returns their names.
pub(super) async fn sweep(
    engine: &Engine,
    current: Option<&CurrentContainer>,
) -> Result<Vec<String>, BackendError> {
    let this = this_owner(current)?;
    let mut removed = Vec::new();
    let listed = containers(engine, SESSION).await.map_err(|error| engine.explain(&error))?;
    for container in listed {
        let name = name(&container);
        let (Some(id), Some(labels)) = (container.id, container.labels) else { continue };
        let Some(owner) = labels.get(OWNER).and_then(|text| JobOwner::from_text(text)) else {
            continue;
        };
        if owner == this || !is_dead(&owner, engine).await {
            continue;
        }
        engine.remove(&id).await.map_err(|error| engine.explain(&error))?;
        removed.push(name.unwrap_or(id));
    }
    Ok(removed)
}
