//! The address at which a process listens, and the one that its peers use.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use fiber_core::shortage;

/// The address at which nng listens, and the name under which peers reach it. Unix sockets do not
/// use it.
///
/// The default is 127.0.0.1 and a port that the system chooses, which only this host can reach.
/// Only the listening side has to be reachable.
///
/// ```
/// use fiber_transport::ListenAt;
///
/// // In a container: all of its networks, under the name by which others reach it.
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

    /// Sets the host name or IP that peers use. The default is the address at which it listens,
    /// which must not be unspecified then.
    #[must_use]
    pub fn advertise(mut self, host: impl Into<String>) -> ListenAt {
        self.advertised = Some(host.into());
        self
    }

    /// Sets the ports to choose from, of which it uses the first free one. Port 0 is any free one.
    #[must_use]
    pub fn ports(mut self, ports: RangeInclusive<u16>) -> ListenAt {
        self.ports = ports;
        self
    }

    /// Calls `open` for each port until one is free.
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
            let problem = shortage::explain(&error);
            io::Error::new(error.kind(), format!("it can't listen at {}: {problem}", self.bind))
        })
    }

    /// Returns the host that peers use.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the address is unspecified and no name is set.
    pub(crate) fn advertised(&self) -> io::Result<String> {
        match (&self.advertised, self.bind) {
            (Some(host), _) => Ok(host.clone()),
            (None, bind) if bind.is_unspecified() => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a process that listens at {bind} needs a name under which its peers reach it"
                ),
            )),
            (None, bind) => Ok(bind.to_string()),
        }
    }
}

fn is_in_use(error: Option<&io::Error>) -> bool {
    error.is_some_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_busy_port_is_skipped_and_a_busy_range_is_an_error_that_names_it() {
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
    fn a_shortage_has_its_remedy_in_the_message() {
        let short = |_| Err::<(), _>(rustix::io::Errno::MFILE.into());
        let error = ListenAt::default().open(short).unwrap_err().to_string();
        assert!(error.contains("127.0.0.1") && error.contains("ulimit -n"), "{error}");
    }

    #[test]
    fn the_advertised_host_is_one_that_peers_can_use() {
        let advertised = |at: ListenAt| at.advertised().map_err(|error| error.kind());
        assert_eq!(advertised(ListenAt::default()).unwrap(), "127.0.0.1");
        assert_eq!(advertised(ListenAt::new([0; 4]).advertise("parent")).unwrap(), "parent");
        assert_eq!(advertised(ListenAt::new([0; 16]).advertise("fd00::1")).unwrap(), "fd00::1");
        assert_eq!(advertised(ListenAt::new([0; 4])), Err(io::ErrorKind::InvalidInput));
    }
}
