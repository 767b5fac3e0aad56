//! The inspectors of programs on this host.

use std::io;
use std::time::Duration;

use fiber_core::inspect;
use futures_util::future::join_all;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{InspectError, Inspector};

/// The limit for connecting. The kernel connects at once, unless the head's queue is full.
const CONNECT: Duration = Duration::from_secs(2);

/// A head on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalHead {
    pub(crate) pid: u32,
    socket: String,
}

impl LocalHead {
    #[cfg(test)]
    pub(crate) fn of(pid: u32) -> LocalHead {
        LocalHead { pid, socket: String::new() }
    }

    /// Returns a head in this process.
    #[cfg(test)]
    pub(crate) fn own(socket: String) -> LocalHead {
        LocalHead { pid: std::process::id(), socket }
    }

    /// Returns its name: `pid 4711`.
    pub(crate) fn name(&self) -> String {
        format!("pid {}", self.pid)
    }

    /// Connects to its inspector.
    pub(crate) async fn connect(&self) -> Result<Inspector, InspectError> {
        let failed = |error| InspectError::ended(&self.name(), &error);
        let (stream, owner) = connect(&self.socket).await.map_err(failed)?;
        if owner.is_none_or(|owner| owner != self.pid) {
            return Err(failed(io::ErrorKind::ConnectionRefused.into()));
        }
        Ok(Inspector::new(self.name(), Box::new(stream)))
    }
}

/// Returns the heads on this host that this user may ask, and the problems with others of theirs.
pub(crate) async fn heads() -> anyhow::Result<Vec<Result<LocalHead, String>>> {
    let sockets = inspect::sockets().map_err(|error| {
        anyhow::anyhow!("the programs of this host can't be found: /proc/net/unix: {error}")
    })?;
    let found = join_all(sockets.into_iter().map(|socket| async move {
        match connect(&socket.name).await {
            Ok((_, Some(pid))) => Some(Ok(LocalHead { pid, socket: socket.name })),
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

    use fiber_core::inspect::PREFIX;

    use super::*;
    use crate::inspect::testing::{FakeHead, stats};

    async fn own_heads() -> Vec<LocalHead> {
        let own = std::process::id();
        let found = heads().await.unwrap().into_iter().flatten();
        found.filter(|head| head.pid == own).collect()
    }

    #[tokio::test]
    async fn a_head_is_found_and_answers_until_it_ends() {
        let head = FakeHead::start(stats("squares", 3));
        let found = own_heads().await;
        let found = found.iter().find(|found| found.socket == head.socket()).unwrap();
        let mut inspector = found.connect().await.unwrap();
        for _ in 0..2 {
            let stats = inspector.stats().await.unwrap();
            assert_eq!((stats.program.as_str(), stats.report.processes.len()), ("squares", 4));
        }
        let id = head.stats.report.processes[1].id;
        assert_eq!(inspector.stack(id).await.unwrap(), format!("the stack of {id}\n"));
        head.end();
        let problem = inspector.stats().await.unwrap_err();
        assert!(matches!(&problem, InspectError::Ended(_)), "{problem:?}");
        assert!(problem.to_string().contains(&format!("pid {}", std::process::id())));
        assert!(!own_heads().await.contains(found));
    }

    #[tokio::test]
    async fn a_head_that_does_not_answer_is_named() {
        let session = format!("{PREFIX}silent-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&session).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        let head = LocalHead { pid: std::process::id(), socket: session };
        let mut inspector = head.connect().await.unwrap();
        tokio::time::pause();
        let problem = inspector.stats().await.unwrap_err();
        assert!(matches!(&problem, InspectError::Silent(_)), "{problem:?}");
        assert!(problem.to_string().contains(&head.name()), "{problem}");
    }

    #[tokio::test]
    async fn an_answer_in_another_form_is_explained() {
        let head = FakeHead::answering("{\"ok\":{\"session\":3}}\n");
        let found = LocalHead { pid: std::process::id(), socket: head.socket() };
        let problem = found.connect().await.unwrap().stats().await.unwrap_err();
        assert!(problem.to_string().contains("same version"), "{problem}");
    }

    #[tokio::test]
    async fn a_refusal_keeps_the_connection() {
        let head = FakeHead::start(stats("squares", 1));
        let found = LocalHead { pid: std::process::id(), socket: head.socket() };
        let mut inspector = found.connect().await.unwrap();
        let gone = fiber_core::ProcessId(0);
        let problem = inspector.stack(gone).await.unwrap_err();
        assert!(matches!(&problem, InspectError::Refused(_)), "{problem:?}");
        assert!(inspector.stats().await.is_ok());
    }
}
