//! The addresses of this host on its routes to others.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};

use fiber_core::shortage;

use crate::BackendError;

/// An address that is never assigned (RFC 5737): the route to it is the default route.
pub(crate) const UNASSIGNED: &str = "192.0.2.1";

/// Returns the address from which this host would connect to another, if it has a route to it.
/// Sends nothing.
///
/// # Errors
/// A shortage, which may pass: without the address, a wrong one would be used for the whole
/// session.
pub(crate) fn local_address_towards(host: &str) -> Result<Option<IpAddr>, BackendError> {
    match towards(host) {
        Ok(own) => Ok(Some(own).filter(|own| !own.is_unspecified())),
        Err(error) if shortage::is_shortage(&error) => Err(BackendError::Shortage(format!(
            "this host's address towards {host} is unknown: {}",
            shortage::explain(&error)
        ))),
        Err(_) => Ok(None),
    }
}

/// Returns the address from which this host would connect to another.
///
/// # Errors
/// The name of the other is not known, or there is no route to it.
pub(crate) fn towards(host: &str) -> io::Result<IpAddr> {
    // Any port gives the host's addresses.
    let other = (host, 9).to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    fiber_core::local_ip_towards(other.ip())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    /// The variable of the process whose limit is lowered.
    const SHORT: &str = "LISTEN_TEST_IS_SHORT";
    const TEST: &str = "route::tests::a_shortage_is_not_taken_for_a_host_without_an_address";

    /// The test runs itself in a process of its own, because other tests need descriptors.
    #[test]
    fn a_shortage_is_not_taken_for_a_host_without_an_address() {
        if std::env::var_os(SHORT).is_none() {
            let mut own = Command::new(std::env::current_exe().unwrap());
            let ended = own.args(["--exact", TEST]).env(SHORT, "1").output().unwrap();
            let out = String::from_utf8_lossy(&ended.stdout);
            return assert!(ended.status.success() && out.contains("1 passed"), "{out}");
        }
        let enough = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..enough }).unwrap();
        let problem = local_address_towards("127.0.0.1").unwrap_err().to_string();
        setrlimit(Resource::Nofile, enough).unwrap();
        assert!(problem.contains("ulimit -n"), "{problem}");
        let found = local_address_towards("127.0.0.1").unwrap();
        assert!(found.is_some_and(|own| own.is_loopback()), "{found:?}");
    }
}
