//! The address at which this process listens for its pods.

use fiber_core::Config;

use crate::listen::Peers;
use crate::route::{UNASSIGNED, local_address_towards};
use crate::{BackendError, ListenAddress};

/// Chooses the configured address, or else the one from which this host connects to the API server:
/// in a pod, that is the pod's own.
///
/// # Errors
/// The reason why pods can't reach this process, with a remedy.
pub(super) fn choose(config: &Config, api_server: &str) -> Result<ListenAddress, BackendError> {
    let found = match config.bind_host {
        Some(bind) => Some(bind),
        // If the cluster is on this host, its pods reach the host, but not its loopback address.
        None => match local_address_towards(api_server)?.filter(|own| !own.is_loopback()) {
            Some(own) => Some(own),
            None => local_address_towards(UNASSIGNED)?,
        },
    };
    Peers("pods").listen(config, found.ok_or_else(|| Peers("pods").no_address())?)
}
