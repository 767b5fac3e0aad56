//! Listening at two addresses: a Unix socket for peers that it reaches, and nng for all others.
//!
//! The address is an [`Address::NearAndFar`]. A peer uses the Unix socket if its own [`reach`] is
//! the same, and the link is then as any Unix link: it lends blobs in shared memory.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::task::{Context, Poll};

use fiber_core::{Address, HostPort, SessionKey, read_lossy};

use crate::{Connection, ListenAt, Listener, Pass, nng, unix};

/// Listens on a Unix socket, and over nng at `at`, under the same conditions as [`nng::listen`].
///
/// # Errors
/// The system's error; [`io::ErrorKind::InvalidInput`] if `at` has no address for peers.
pub fn listen_near_and_far(key: &SessionKey, at: &ListenAt) -> io::Result<Box<dyn Listener>> {
    let far = nng::listen(key, at)?;
    let near = Box::new(unix::listen()?);
    Ok(Box::new(NearAndFarListener { reach: reach()?, near, far }))
}

/// Returns whether [`connect`](crate::connect) uses a Unix socket for this address. Processes for
/// which it does can share memory.
pub fn is_near(address: &str) -> bool {
    match address.parse() {
        Ok(Address::Unix(_)) => true,
        Ok(Address::NearAndFar { reach, .. }) => is_own(&reach),
        _ => false,
    }
}

fn is_own(other: &str) -> bool {
    reach().is_ok_and(|own| own == other)
}

/// Connects to a listener at two addresses.
pub(crate) async fn connect(
    reach: &str,
    name: &str,
    far: &HostPort,
    pass: &Pass,
) -> io::Result<Connection> {
    if is_own(reach) {
        match unix::connect(name).await {
            // Another user, whose socket refuses this process, may still hold the key.
            Err(error) if is_refusal(&error) => {}
            connected => return connected,
        }
    }
    nng::connect(far, pass).await
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::PermissionDenied)
}

/// Returns a text that is the same in all processes which reach each other's Unix sockets.
///
/// Names of abstract sockets belong to a network namespace. A lender of shared memory waits for
/// the end of a borrower by its pid, so both have to be in the same pid namespace too. The numbers
/// of namespaces are unique until the machine starts again.
fn reach() -> io::Result<String> {
    let read = || {
        let boot = read_lossy("/proc/sys/kernel/random/boot_id")?;
        let network = fs::metadata("/proc/thread-self/ns/net")?.ino();
        let pids = fs::metadata("/proc/thread-self/ns/pid")?.ino();
        Ok(format!("{}-{network}-{pids}", boot.trim()))
    };
    read().map_err(|error: io::Error| {
        let problem = format!("the namespaces of this process are unknown: {error}");
        io::Error::new(error.kind(), problem)
    })
}

struct NearAndFarListener {
    reach: String,
    near: Box<dyn Listener>,
    far: Box<dyn Listener>,
}

impl Listener for NearAndFarListener {
    fn address(&self) -> String {
        let both = (self.near.address().parse(), self.far.address().parse());
        let (Ok(Address::Unix(name)), Ok(Address::Nng(far))) = both else {
            unreachable!("the listeners are a Unix socket and nng");
        };
        Address::NearAndFar { reach: self.reach.clone(), name, far }.to_string()
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        match self.near.poll_accept(context) {
            Poll::Pending => self.far.poll_accept(context),
            accepted => accepted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_near_where_its_unix_socket_is_reached() {
        let own = reach().unwrap();
        assert!(is_near(&format!("near:{own}|fiber-a|nng:tcp://[::1]:5")));
        assert!(!is_near(&format!("near:{own}1|fiber-a|nng:tcp://[::1]:5")));
        assert!(is_near("unix:fiber-a"));
        assert!(!is_near("nng:tcp://[::1]:5"));
        assert!(!is_near(&format!("near:{own}|fiber-a")));
    }
}
