//! Where the processes of another framework meet.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;

use fiber_core::{Error, Result};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

use super::wire::Member;

/// Where rank 0 lets the processes of another framework meet: what `MASTER_ADDR` and `MASTER_PORT`
/// say.
///
/// The port is reserved: no program gets it by chance. It is held by a bound socket that does not
/// listen and has `SO_REUSEADDR`, so that a program which sets that too, as servers do, can listen
/// there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rendezvous {
    /// The host's name or IP address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// A port that nobody else gets.
#[derive(Debug)]
pub(super) struct Reserved {
    pub(super) port: u16,
    _socket: OwnedFd,
}

impl Reserved {
    pub(super) fn new() -> Result<Reserved> {
        let reserve = || {
            let socket =
                socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
            let address: SocketAddr = getsockname(&socket)?.try_into()?;
            Ok(Reserved { port: address.port(), _socket: socket })
        };
        reserve()
            .map_err(|error: rustix::io::Errno| Error::system("no port could be reserved", error))
    }
}

/// Where rank 0 is, as far as its address tells.
pub(super) fn rendezvous(first: &Member) -> Rendezvous {
    let host =
        first.process.address.strip_prefix("nng:").and_then(|url| url.split_once("://")).map(
            |(_, place)| {
                let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
                host.trim_start_matches('[').trim_end_matches(']').to_string()
            },
        );
    let host = host.unwrap_or_else(|| IpAddr::from(Ipv4Addr::LOCALHOST).to_string());
    Rendezvous { host, port: first.port.unwrap_or_default() }
}

impl Rendezvous {
    /// As addresses.
    ///
    /// # Errors
    /// [`Error::System`] if the host's name is not known.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        Ok(found
            .map_err(|error| Error::system(format!("`{}` is not known here", self.host), error))?
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_reserved_port_is_given_to_nobody_else_and_can_be_listened_at() {
        let reserved = Reserved::new().unwrap();
        let others: Vec<_> = (0..500).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        assert!(others.iter().all(|other| other.local_addr().unwrap().port() != reserved.port));
        // The standard library sets SO_REUSEADDR.
        TcpListener::bind(("127.0.0.1", reserved.port)).unwrap();
    }
}
