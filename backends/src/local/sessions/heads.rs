//! The inspectors of programs on this host.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
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
pub(super) async fn all() -> Vec<Result<SessionHead, String>> {
    let found = join_all(inspect::sockets().into_iter().map(|socket| async move {
        // The directories with names that are no text are of no use to a terminal.
        let path = socket.to_str()?.to_string();
        match connect(&path).await {
            Ok((_, Some(pid))) => {
                let name = JobPlace::Process { pid }.to_string();
                Some(Ok(SessionHead { name, inspector: path, pid: Some(pid) }))
            }
            // It runs elsewhere, or it has ended meanwhile.
            Ok((_, None)) => None,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => None,
            Err(error) => {
                let session = socket.file_name()?.to_str()?;
                Some(Err(format!("the head of session {session} does not answer: {error}")))
            }
        }
    }));
    found.await.into_iter().flatten().collect()
}

/// Connects to the inspector at a socket.
///
/// # Errors
/// [`Error::System`] with the [`io::Error`]: the head has ended.
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

/// Connects to a socket, and returns the pid of its owner. One outside of this pid namespace has
/// none here.
async fn connect(socket: &str) -> io::Result<(UnixStream, Option<u32>)> {
    let stream = timeout(CONNECT, UnixStream::connect(socket))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
        .map_err(|error| match error.kind() {
            // A head removes its socket at its end, unless it was killed.
            io::ErrorKind::NotFound => io::ErrorKind::ConnectionRefused.into(),
            _ => error,
        })?;
    let peer = stream.peer_cred()?;
    // Root looks into the directories of all users, who may lead it elsewhere.
    let directory = Path::new(socket).parent().map(std::fs::metadata).transpose()?;
    let pid = peer.pid().filter(|_| directory.is_some_and(|known| known.uid() == peer.uid()));
    let pid = pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    Ok((stream, pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_head_is_found_while_it_listens() {
        let number = 0xbac0_0000_0000_0000 + u64::from(std::process::id());
        let (listener, path) = inspect::listen(number).unwrap();
        let socket = path.to_str().unwrap().to_string();
        let pid = std::process::id();
        let own =
            SessionHead { name: format!("pid {pid}"), inspector: socket.clone(), pid: Some(pid) };
        let is_found = async || all().await.into_iter().flatten().any(|head| head == own);
        assert!(is_found().await);
        assert!(super::inspect(&socket).await.is_ok());
        drop(listener);
        assert!(!is_found().await);
        let Err(Error::System { cause, .. }) = super::inspect(&socket).await else { panic!() };
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        assert_eq!(kind, Some(io::ErrorKind::ConnectionRefused));
    }
}
