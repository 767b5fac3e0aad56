//! The inspectors of programs on this host.

use std::io;
use std::time::Duration;

use fiber_core::{Error, Result, inspect};
use futures_util::future::join_all;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::JobPlace;
use crate::cluster::session::{ByteStream, SessionHead};

/// The limit for connecting. The kernel connects at once, unless the head's queue is full.
const CONNECT: Duration = Duration::from_secs(2);

/// Returns the heads on this host that this user may ask, and the problems with others of theirs.
pub(super) async fn all() -> Result<Vec<Result<SessionHead, String>>> {
    let sockets = inspect::sockets().map_err(|error| {
        let error = io::Error::new(error.kind(), format!("/proc/net/unix: {error}"));
        Error::system("the programs of this host can't be found", error)
    })?;
    let found = join_all(sockets.into_iter().map(|socket| async move {
        match connect(&socket.name).await {
            Ok((_, Some(pid))) => {
                let name = JobPlace::Process { pid }.to_string();
                Some(Ok(SessionHead { name, inspector: socket.name, pid: Some(pid) }))
            }
            // It is another user's, or it has ended meanwhile.
            Ok((_, None)) => None,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => None,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            Err(error) => {
                let session = socket.name.trim_start_matches(inspect::PREFIX);
                Some(Err(format!("the head of session {session} does not answer: {error}")))
            }
        }
    }));
    Ok(found.await.into_iter().flatten().collect())
}

/// Connects to the inspector at a socket.
///
/// # Errors
/// [`Error::System`] with the [`io::Error`]: the head has ended, or is another user's.
pub(super) async fn inspect(socket: &str) -> Result<Box<dyn ByteStream>> {
    let connected = match connect(socket).await {
        Ok((stream, Some(_))) => Ok(stream),
        Ok((_, None)) => Err(io::ErrorKind::ConnectionRefused.into()),
        Err(error) => Err(error),
    };
    match connected {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(Error::system(format!("the inspector {socket}"), error)),
    }
}

/// Connects to a socket, and returns the pid of its owner unless that is another user.
async fn connect(socket: &str) -> io::Result<(UnixStream, Option<u32>)> {
    let stream = timeout(CONNECT, UnixStream::connect(format!("\0{socket}")))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let (own, peer) = (rustix::process::getuid(), stream.peer_cred()?);
    let trusted = own.is_root() || own.as_raw() == peer.uid();
    // A process outside of this pid namespace has no pid here.
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    Ok((stream, pid.filter(|_| trusted)))
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;

    #[tokio::test]
    async fn a_head_is_found_while_it_listens() {
        let socket = format!("{}backends-{}", inspect::PREFIX, std::process::id());
        let address = SocketAddr::from_abstract_name(&socket).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let pid = std::process::id();
        let own =
            SessionHead { name: format!("pid {pid}"), inspector: socket.clone(), pid: Some(pid) };
        let is_found = async || all().await.unwrap().into_iter().flatten().any(|head| head == own);
        assert!(is_found().await);
        assert!(super::inspect(&socket).await.is_ok());
        drop(listener);
        assert!(!is_found().await);
        let Err(Error::System { cause, .. }) = super::inspect(&socket).await else { panic!() };
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        assert_eq!(kind, Some(io::ErrorKind::ConnectionRefused));
    }
}
