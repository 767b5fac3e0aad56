//! The rendezvous of another framework's processes, one a rank.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;

use fiber_core::shortage::Explained;
use fiber_core::{Address, Error, Result};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

use super::wire::RankAddress;

/// A host and port where the processes of another framework, one a rank, connect to each other: the
/// values of `MASTER_ADDR` and `MASTER_PORT`.
///
/// Rank 0's process reserves the port until it ends: the system assigns it to no other program. The
/// process holds a bound socket that does not listen and has `SO_REUSEADDR`. A program that sets
/// `SO_REUSEADDR` too, as servers do, can listen there.
///
/// # Examples
/// ```
/// # fiber::init();
/// use std::io::{Read, Write};
/// use std::net::{TcpListener, TcpStream};
///
/// use fiber::{Ring, RingNode};
///
/// fn greet_rank_0(mut node: RingNode) -> Result<String, Box<dyn std::error::Error>> {
///     let addresses = node.rendezvous().addresses()?;
///     let mut greeting = String::new();
///     if node.rank() == 0 {
///         let listener = TcpListener::bind(&*addresses)?;
///         node.barrier()?;
///         listener.accept()?.0.read_to_string(&mut greeting)?;
///     } else {
///         node.barrier()?; // rank 0 listens now
///         TcpStream::connect(&*addresses)?.write_all(b"hello")?;
///     }
///     Ok(greeting)
/// }
///
/// assert_eq!(Ring::builder().size(2).try_run(greet_rank_0, ()).wait()?, ["hello", ""]);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rendezvous {
    /// The name or IP address of rank 0's host.
    pub host: String,
    /// The reserved port.
    pub port: u16,
}

/// A port that the system assigns to no other program until this is dropped.
#[derive(Debug)]
pub(super) struct ReservedPort {
    pub(super) port: u16,
    _socket: OwnedFd,
}

impl ReservedPort {
    pub(super) fn new() -> Result<ReservedPort> {
        let reserve = || {
            let socket =
                socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
            let address: SocketAddr = getsockname(&socket)?.try_into()?;
            Ok(ReservedPort { port: address.port(), _socket: socket })
        };
        reserve().map_err(|error: rustix::io::Errno| {
            Error::system("reserving a port failed", Explained(std::io::Error::from(error)))
        })
    }
}

/// Returns the rendezvous at rank 0: at the host in its address, or at the loopback address if
/// other machines don't reach it.
pub(super) fn rendezvous(first: &RankAddress) -> Rendezvous {
    let address = first.process.address.parse::<Address>().ok();
    let host = address.as_ref().and_then(|address| Some(address.far()?.host.clone()));
    let host = host.unwrap_or_else(|| IpAddr::from(Ipv4Addr::LOCALHOST).to_string());
    Rendezvous { host, port: first.port.unwrap_or_default() }
}

impl Rendezvous {
    /// Resolves the host, and returns its socket addresses. It blocks on the name service.
    /// [`Rendezvous`] has an example.
    ///
    /// # Errors
    /// [`Error::System`] if the host's name cannot be resolved.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        Ok(found
            .map_err(|error| {
                Error::system(format!("resolving host `{}` failed", self.host), error)
            })?
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use fiber_core::ProcessId;

    use super::*;
    use fiber_runtime::mesh::ProcessRef;

    #[test]
    fn the_rendezvous_is_where_other_machines_reach_rank_0() {
        let host = |address: &str| {
            let process = ProcessRef { id: ProcessId::random(), address: address.into() };
            rendezvous(&RankAddress { process, streams: None, port: Some(7) }).host
        };
        assert_eq!(host("unix:fiber-a"), "127.0.0.1");
        assert_eq!(host("nng:tcp://node-1:5"), "node-1");
        assert_eq!(host("near:a-1-2|fiber-a|nng:tcp://[fd00::1]:5"), "fd00::1");
    }

    #[test]
    fn a_reserved_port_is_assigned_to_no_other_socket_and_accepts_a_listener() {
        let reserved = ReservedPort::new().unwrap();
        let others: Vec<_> = (0..500).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        assert!(others.iter().all(|other| other.local_addr().unwrap().port() != reserved.port));
        // The standard library sets SO_REUSEADDR.
        TcpListener::bind(("127.0.0.1", reserved.port)).unwrap();
    }
}
