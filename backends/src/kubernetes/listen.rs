//! Where this process listens for its pods.

use std::net::{IpAddr, ToSocketAddrs, UdpSocket};

use fiber_core::{Config, LinkKind};

use crate::{ListenAddress, Locality};

/// An address that nobody has (RFC 5737): what would be sent there goes by the default route.
const SOMEWHERE: &str = "192.0.2.1";

/// As the configuration has it; else at the address from which this host talks to the API server:
/// in a pod, that is the pod's own.
///
/// # Errors
/// Why pods would not get to this process, and what to do.
pub(super) fn choose(config: &Config, api_server: &str) -> Result<ListenAddress, String> {
    let found = match config.bind_host {
        Some(bind) => Some(bind),
        // A cluster on this very host: its pods reach the host, but not its loopback.
        None => own_towards(api_server)
            .filter(|own| !own.is_loopback())
            .or_else(|| own_towards(SOMEWHERE)),
    };
    let bind = found.ok_or(
        "no address of this host was found at which pods could reach this process: set `bind_host` (and `advertised_host`, \
         if they reach it by another)",
    )?;
    if bind.is_unspecified() && config.advertised_host.is_none() {
        return Err(format!(
            "bind_host is {bind}, which says nothing about how pods reach this process: set `advertised_host` too"
        ));
    }
    // Only addresses of this host can be bound to.
    UdpSocket::bind((bind, 0)).map_err(|error| {
        format!(
            "pods would look for this process at {bind}, which is no address of this host ({error}): correct `bind_host`, \
             and name what they reach it by in `advertised_host`"
        )
    })?;
    Ok(ListenAddress {
        link: LinkKind::Nng,
        bind,
        advertised: config.advertised_host.clone(),
        locality: Locality::Remote,
    })
}

/// The address from which this host would talk to another. Nothing is sent.
fn own_towards(host: &str) -> Option<IpAddr> {
    let other = (host, 443).to_socket_addrs().ok()?.next()?;
    let any = if other.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(other).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|address| !address.is_unspecified())
}
