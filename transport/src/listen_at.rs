//! Where a node listens, and what it tells its peers.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;

/// Where a link over nng listens, and under which name peers reach it. Unix sockets need none of
/// it.
///
/// By default that is 127.0.0.1, at a port of the system's choice: nobody outside of the host gets
/// there. Only the listening side has to be reachable; who connects needs no port.
///
/// ```
/// use fiber_transport::ListenAt;
///
/// // In a container: all of its networks, under the name that the others know it by.
/// let at = ListenAt::new([0, 0, 0, 0]).advertise("fiber-parent").ports(7000..=7099);
/// # drop(at);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAt {
    bind: IpAddr,
    advertised: Option<String>,
    ports: RangeInclusive<u16>,
}

impl Default for ListenAt {
    fn default() -> ListenAt {
        ListenAt::new(Ipv4Addr::LOCALHOST)
    }
}

impl ListenAt {
    /// Listens at one address of this host, or at all of them with `0.0.0.0` or `::`.
    pub fn new(bind: impl Into<IpAddr>) -> ListenAt {
        ListenAt { bind: bind.into(), advertised: None, ports: 0..=0 }
    }

    /// The host name or IP that peers are told. Without it they are told the one that it listens
    /// at, which has to be a particular one then.
    #[must_use]
    pub fn advertise(mut self, host: impl Into<String>) -> ListenAt {
        self.advertised = Some(host.into());
        self
    }

    /// Ports to choose from: the first that is free is taken. Port 0 stands for any free one.
    #[must_use]
    pub fn ports(mut self, ports: RangeInclusive<u16>) -> ListenAt {
        self.ports = ports;
        self
    }

    /// Opens something at the first port that is free.
    pub(crate) fn open<T>(&self, open: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
        let in_use = || {
            let problem = format!(
                "all ports from {} to {} of {} are in use",
                self.ports.start(),
                self.ports.end(),
                self.bind
            );
            io::Error::new(io::ErrorKind::AddrInUse, problem)
        };
        let tries = self.ports.clone().map(|port| open(SocketAddr::new(self.bind, port)));
        let mut tries = tries.skip_while(|result| is_in_use(result.as_ref().err()));
        tries.next().unwrap_or_else(|| Err(in_use())).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("it is not possible to listen at {}: {error}", self.bind),
            )
        })
    }

    /// What peers are told.
    ///
    /// # Errors
    /// That no particular address is known.
    pub(crate) fn advertised(&self) -> io::Result<String> {
        match (&self.advertised, self.bind) {
            // As URLs have it.
            (Some(host), _) if host.contains(':') && !host.starts_with('[') => {
                Ok(format!("[{host}]"))
            }
            (Some(host), _) => Ok(host.clone()),
            (None, bind) if bind.is_unspecified() => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a node that listens at {bind} has to be told by which name its peers reach it"
                ),
            )),
            (None, IpAddr::V6(bind)) => Ok(format!("[{bind}]")),
            (None, IpAddr::V4(bind)) => Ok(bind.to_string()),
        }
    }
}

fn is_in_use(error: Option<&io::Error>) -> bool {
    error.is_some_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// The address of this host from which `peer` is reached, and at which `peer` most likely reaches
/// this host. Nothing is sent.
///
/// # Errors
/// That there is no way to `peer`.
pub fn local_ip_towards(peer: IpAddr) -> io::Result<IpAddr> {
    let any = if peer.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let socket = UdpSocket::bind((any, 0))?;
    // The port does not matter: for UDP, to connect is to look up the way.
    socket.connect((peer, 9))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_busy_port_is_passed_over_and_a_busy_range_is_an_error_that_names_it() {
        let busy = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = busy.local_addr().unwrap().port();
        let at = |last| ListenAt::default().ports(port..=last).open(TcpListener::bind);
        let error = at(port).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&port.to_string()), "{error}");
        let free = at(port.saturating_add(100)).unwrap();
        assert!(free.local_addr().unwrap().port() > port);
    }

    #[test]
    fn peers_are_told_what_they_can_use() {
        let told = |at: ListenAt| at.advertised().map_err(|error| error.kind());
        assert_eq!(told(ListenAt::default()).unwrap(), "127.0.0.1");
        assert_eq!(told(ListenAt::new([0; 4]).advertise("parent")).unwrap(), "parent");
        assert_eq!(told(ListenAt::new([0; 16]).advertise("fd00::1")).unwrap(), "[fd00::1]");
        assert_eq!(told(ListenAt::new([0; 4])), Err(io::ErrorKind::InvalidInput));
    }

    #[test]
    fn the_way_to_this_host_begins_at_this_host() {
        assert_eq!(local_ip_towards([127, 0, 0, 1].into()).unwrap(), IpAddr::from([127, 0, 0, 1]));
    }
}
