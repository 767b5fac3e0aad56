//! Listening at two addresses: a Unix socket for peers that it reaches, and nng for all others.
//!
//! The address has the form `near:REACH|UNIX NAME|nng:URL`. A peer uses the Unix socket if its own
//! [`reach`] is the same, and the link is then as any Unix link: it lends blobs in shared memory.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::task::{Context, Poll};

use fiber_core::SessionKey;

use crate::{Connection, ListenAt, Listener, nng, unix};

/// The beginning of such an address.
const PREFIX: &str = "near:";

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
    match NearAndFar::parse(address) {
        Some(both) => both.is_near(),
        None => address.starts_with("unix:"),
    }
}

/// Returns the address at which processes of other machines reach the listener; `None` if only
/// those of its own machine do.
pub fn far_address(address: &str) -> Option<&str> {
    let far = NearAndFar::parse(address).map_or(address, |both| both.far);
    far.starts_with("nng:").then_some(far)
}

/// An address of a listener at two addresses.
pub(crate) struct NearAndFar<'a> {
    reach: &'a str,
    name: &'a str,
    far: &'a str,
}

impl<'a> NearAndFar<'a> {
    pub(crate) fn parse(address: &'a str) -> Option<NearAndFar<'a>> {
        let mut parts = address.strip_prefix(PREFIX)?.splitn(3, '|');
        Some(NearAndFar { reach: parts.next()?, name: parts.next()?, far: parts.next()? })
    }

    fn is_near(&self) -> bool {
        reach().is_ok_and(|own| own == self.reach)
    }

    pub(crate) async fn connect(&self, key: &SessionKey) -> io::Result<Connection> {
        if self.is_near() {
            match unix::connect(self.name).await {
                // Another user, whose socket refuses this process, may still hold the key.
                Err(error) if is_refusal(&error) => {}
                connected => return connected,
            }
        }
        let url = self.far.strip_prefix("nng:").ok_or(io::ErrorKind::InvalidInput)?;
        nng::connect(url, key).await
    }
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
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
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
        let (near, far) = (self.near.address(), self.far.address());
        let name = near.strip_prefix("unix:").expect("it is the address of a Unix socket");
        format!("{PREFIX}{}|{name}|{far}", self.reach)
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

    #[test]
    fn the_far_address_is_the_one_over_nng() {
        let url = "nng:tcp://[::1]:5";
        assert_eq!(far_address(&format!("near:a-1-2|fiber-a|{url}")), Some(url));
        assert_eq!(far_address(url), Some(url));
        assert_eq!(far_address("unix:fiber-a"), None);
    }
}
