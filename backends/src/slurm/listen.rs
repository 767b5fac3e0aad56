//! The address at which this process listens for its hosts on other nodes.

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs, UdpSocket};

use fiber_core::{Config, LinkKind};

use crate::interface::bind_address;
use crate::{ListenAddress, Locality};

/// Chooses the configured address, or else the one from which this machine connects to another node.
/// Without another node, processes of this machine alone connect.
///
/// # Errors
/// The reason why other nodes can't reach this process, with a remedy.
pub(super) fn choose(config: &Config, other_node: Option<&str>) -> Result<ListenAddress, String> {
    let bind = match (bind_address(config)?, other_node) {
        (Some(bind), _) => bind,
        (None, None) => Ipv4Addr::LOCALHOST.into(),
        (None, Some(node)) => towards(node).map_err(|error| {
            format!(
                "there is no route to the node at `{node}` ({error}): set `interface` to one \
                 that the nodes share, or `bind_host` to an address of this machine"
            )
        })?,
    };
    if bind.is_unspecified() && config.advertised_host.is_none() {
        return Err(format!(
            "bind_host is {bind}, which nodes can't connect to: set `advertised_host` too"
        ));
    }
    // Binding works for addresses of this machine only.
    UdpSocket::bind((bind, 0)).map_err(|error| {
        format!(
            "nodes would connect to {bind}, which is no address of this machine ({error}): correct \
             `bind_host`, and set `advertised_host` to the address by which nodes reach it"
        )
    })?;
    Ok(ListenAddress {
        link: LinkKind::Nng,
        bind,
        advertised: config.advertised_host.clone(),
        locality: Locality::Remote,
    })
}

/// Returns the address from which this machine would connect to a node. Sends nothing.
fn towards(node: &str) -> std::io::Result<IpAddr> {
    let other = (node, 9).to_socket_addrs()?.next().ok_or(std::io::ErrorKind::NotFound)?;
    let any: IpAddr = match other.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(other)?;
    Ok(socket.local_addr()?.ip())
}
