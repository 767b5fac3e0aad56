//! The route from this host to another.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Returns the address of this host on the route to `peer`, at which `peer` most likely reaches
/// this host. Sends nothing.
///
/// # Errors
/// The system's error, if there is no route to `peer`.
pub fn local_ip_towards(peer: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // The port does not matter: connecting a UDP socket only looks up the route.
    socket.connect((peer, 9))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_to_this_host_starts_at_this_host() {
        assert_eq!(local_ip_towards([127, 0, 0, 1].into()).unwrap(), IpAddr::from([127, 0, 0, 1]));
    }
}
