//! The labels of containers, which name their session, owner and role.

use std::collections::HashMap;

use super::current_container::CurrentContainer;
use super::sweep::this_owner;
use crate::cluster::session::RunRequest;
use crate::{BackendError, JobSpec};

/// The label with the session's id.
pub(super) const SESSION: &str = "fiber.session";
/// The label with the process that created a container, as [`JobOwner`](crate::owner::JobOwner)
/// formats it.
pub(super) const OWNER: &str = "fiber.owner";
/// The label with the job's name.
pub(super) const NAME: &str = "fiber.name";
/// The label with the number of the job's earlier restarts.
pub(super) const RESTARTS: &str = "fiber.restarts";

/// Returns the labels of a job's container.
///
/// # Errors
/// The owner of the container can't be determined.
pub(super) fn labels(
    session: &str,
    spec: &JobSpec,
    current: Option<&CurrentContainer>,
) -> Result<HashMap<String, String>, BackendError> {
    let (owner, restarts) = (this_owner(current)?.to_text(), spec.restarts.to_string());
    let labels = [(SESSION, session), (OWNER, &owner), (NAME, &spec.name), (RESTARTS, &restarts)];
    Ok(HashMap::from(labels.map(|(key, value)| (key.into(), value.into()))))
}

/// Returns the labels of a session's head. It has no owner.
pub(super) fn head_labels(run: &RunRequest) -> HashMap<String, String> {
    let role = run.role();
    HashMap::from(
        [(SESSION, run.session.as_str()), (NAME, role.as_str())]
            .map(|(key, value)| (key.into(), value.into())),
    )
}
