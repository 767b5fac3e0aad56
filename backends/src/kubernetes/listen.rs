//! The address at which this process listens for its pods.

use std::net::UdpSocket;

use fiber_core::{Config, LinkKind, shortage};

use crate::route::{UNASSIGNED, local_address_towards};
use crate::{ListenAddress, Locality};

/// Chooses the configured address, or else the one from which this host connects to the API server:
/// in a pod, that is the pod's own.
///
/// # Errors
/// The reason why pods can't reach this process, with a remedy.
pub(super) fn choose(config: &Config, api_server: &str) -> Result<ListenAddress, String> {
    let found = match config.bind_host {
        Some(bind) => Some(bind),
        // If the cluster is on this host, its pods reach the host, but not its loopback address.
        None => match local_address_towards(api_server)?.filter(|own| !own.is_loopback()) {
            Some(own) => Some(own),
            None => local_address_towards(UNASSIGNED)?,
        },
    };
    let bind = found.ok_or(
        "found no address of this host at which pods can reach this process: set `bind_host` (and \
         `advertised_host`, if pods connect to another address)",
    )?;
    if bind.is_unspecified() && config.advertised_host.is_none() {
        return Err(format!(
            "bind_host is {bind}, which pods can't connect to: set `advertised_host` too"
        ));
    }
    // Binding works for addresses of this host only.
    UdpSocket::bind((bind, 0)).map_err(|error| {
        format!(
            "pods would connect to {bind}, which is no address of this host ({}): correct \
             `bind_host`, and set `advertised_host` to the address by which pods reach it",
            shortage::explain(&error)
        )
    })?;
    Ok(ListenAddress {
        link: LinkKind::Nng,
        bind,
        advertised: config.advertised_host.clone(),
        locality: Locality::Remote,
    })
}
