//! The address at which this process listens for its processes on other nodes.

use std::net::Ipv4Addr;

use fiber_core::Config;

use crate::interface::bind_address;
use crate::listen::Peers;
use crate::{BackendError, ListenAddress, route};

/// Chooses the configured address, or else the one from which this machine connects to another
/// node. Without another node, processes of this machine alone connect.
///
/// # Errors
/// The reason why other nodes can't reach this process, with a remedy.
pub fn choose(config: &Config, other_node: Option<&str>) -> Result<ListenAddress, BackendError> {
    let bind = match (bind_address(config)?, other_node) {
        (Some(bind), _) => bind,
        (None, None) => Ipv4Addr::LOCALHOST.into(),
        (None, Some(node)) => route::towards(node).map_err(|error| {
            let message = format!(
                "there is no route to the node at `{node}` ({error}): set `interface` to one \
                 that the nodes share, or `bind_host` to an address of this machine"
            );
            BackendError::of_system(&error, message)
        })?,
    };
    Peers("nodes").listen(config, bind)
}
