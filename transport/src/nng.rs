//! Links over nng, between containers and hosts.
//!
//! A link is one tcp connection, and only the listener has to be reachable. The connector and the
//! acceptor first show each other on it that they hold the session's key (see [`accept_keys`]);
//! then both hand the connection to nng, each to a PAIR socket of its own. nng sees nothing of a
//! peer that has not shown the key.
//!
//! What nng carries are the bytes that [`Encoder`](crate::Encoder) encodes, cut into frames of
//! `FRAME` bytes at most, each sealed (see `seal.rs`). What waits in a process is bounded for each
//! link by itself, so a peer that is not read holds nobody else up.

mod exchange;
mod inbox;
mod outbox;
mod startup;
mod sys;

use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{SessionKey, shortage};
use nng::options::{Options, RecvMaxSize};
use nng::{PipeEvent, Protocol, Socket};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;

pub use self::exchange::{accept_keys, connect_keys};
use self::inbox::Inbox;
use self::outbox::Outbox;
use crate::pending_peers::{PATIENCE, PendingPeers};
use crate::seal::{Keys, TAG};
use crate::{Closed, Connection, Incoming, Link, ListenAt, Listener, Message};

/// The longest frame before it is sealed.
const FRAME: usize = 256 << 10;
const NO_ROOM: &str = "nng has no room for its threads or its memory; raise the limits (`ulimit -u` and `ulimit -v`), or use \
                       fewer workers";
/// Connections that may wait in the kernel.
const BACKLOG: u32 = 4096;

/// Listens. Has to be called on a tokio runtime with timers, in a task of a `LocalSet`.
///
/// # Errors
/// What the system says, or that `at` can't be told to peers.
pub fn listen(key: &SessionKey, at: &ListenAt) -> io::Result<Box<dyn Listener>> {
    let host = at.advertised()?;
    let socket = at.open(|address| {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Else a port would stay taken for a while after its listener has ended.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    })?;
    let url = format!("tcp://{host}:{}", socket.local_addr()?.port());
    // What nng lacks is found out now, and not by each peer.
    drop(open()?);
    Ok(Box::new(NngListener { socket, url, key: key.clone(), pending: PendingPeers::default() }))
}

/// Connects to the listener at `url`, under the same conditions as [`listen`].
///
/// # Errors
/// That nobody listens there, that the peer does not answer, or that it does not hold the key.
pub async fn connect(url: &str, key: &SessionKey) -> io::Result<Connection> {
    let Some(address) = url.strip_prefix("tcp://") else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{url}` is no address of the form tcp://HOST:PORT"),
        ));
    };
    let connected = async {
        let stream = TcpStream::connect(address).await;
        let mut stream = stream
            .map_err(|error| in_context(&error, &format!("there is no connection to {url}")))?;
        let keys = prepare(&stream).and(connect_keys(&mut stream, key).await);
        let keys = keys.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                let problem =
                    format!("{url} closed the connection without an answer: does it hold this session's key?");
                io::Error::new(io::ErrorKind::ConnectionReset, problem)
            }
            _ => in_context(&error, &format!("{url} is not to be trusted")),
        })?;
        connection(stream, keys).await
    };
    tokio::time::timeout(PATIENCE, connected).await.unwrap_or_else(|_| {
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("{url} did not answer within {PATIENCE:?}"),
        ))
    })
}

fn in_context(error: &io::Error, context: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{context}: {error}"))
}

/// Small messages are not to wait for others.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)
}

struct NngListener {
    socket: TcpListener,
    url: String,
    key: SessionKey,
    pending: PendingPeers<(SocketAddr, io::Result<Connection>)>,
}

impl Listener for NngListener {
    fn address(&self) -> String {
        format!("nng:{}", self.url)
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        loop {
            match self.pending.poll_entered(context) {
                // This process is short of something, and not to blame the peer for it.
                Poll::Ready((_, Err(error))) if shortage::is_shortage(&error) => {
                    return Poll::Ready(Err(error));
                }
                Poll::Ready((peer, Err(error))) => {
                    self.pending.refuse(&format!("{peer}: {error}"));
                    continue;
                }
                Poll::Ready((_, entered)) => return Poll::Ready(entered),
                Poll::Pending => {}
            }
            ready!(self.pending.poll_room(context));
            match ready!(self.socket.poll_accept(context)) {
                Ok((stream, peer)) => {
                    let entry = enter(stream, self.key.clone());
                    self.pending.add(async move { (peer, entry.await) });
                }
                // It left before it was its turn.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

async fn enter(mut stream: TcpStream, key: SessionKey) -> io::Result<Connection> {
    prepare(&stream)?;
    let keys = accept_keys(&mut stream, &key).await?;
    connection(stream, keys).await
}

/// Hands a connection to nng, and waits until nng has it at both ends.
async fn connection(stream: TcpStream, keys: Keys) -> io::Result<Connection> {
    let outflow = Arc::new(outbox::Queue::new(keys.sealer));
    let inflow = Arc::new(inbox::Queue::default());
    let begun = Arc::new(Notify::new());
    let stream = stream.into_std()?;
    let wire = Arc::new(Mutex::new(Some(stream.try_clone()?)));
    let socket = open()?;
    socket.pipe_notify({
        let (outflow, inflow, begun) =
            (Arc::clone(&outflow), Arc::clone(&inflow), Arc::clone(&begun));
        let wire = Arc::clone(&wire);
        move |_, event| match event {
            PipeEvent::AddPost => begun.notify_one(),
            PipeEvent::RemovePost => {
                outflow.close();
                inflow.leave();
                drop(wire.lock().take());
                begun.notify_one();
            }
            _ => {}
        }
    })?;
    let link = Arc::new(NngLink {
        outbox: Outbox::new(&socket, outflow)?,
        inflow: Arc::clone(&inflow),
        socket,
        wire,
    });
    let inbox = Inbox::new(&link.socket, inflow, keys.opener)?;
    let connection =
        Connection::new(Arc::clone(&link) as _, NngIncoming { link: Arc::clone(&link), inbox });
    sys::adopt(&link.socket, OwnedFd::from(stream))?;
    begun.notified().await;
    Ok(connection)
}

/// A socket that accepts sealed frames. It is to have one pipe, and no other takes its place.
fn open() -> io::Result<Socket> {
    startup::check_room()?;
    sys::limit_threads();
    let socket = Socket::new(Protocol::Pair0).map_err(refused)?;
    socket.set_opt::<RecvMaxSize>(FRAME + TAG)?;
    Ok(socket)
}

/// What the system is short of, where nng says that it is short of something.
fn refused(error: nng::Error) -> io::Error {
    match error {
        nng::Error::OutOfFiles => Errno::MFILE.into(),
        // It says the same where it can't start its threads.
        nng::Error::OutOfMemory => io::Error::new(io::ErrorKind::OutOfMemory, NO_ROOM),
        other => other.into(),
    }
}

#[derive(Debug)]
struct NngLink {
    outbox: Outbox,
    inflow: Arc<inbox::Queue>,
    socket: Socket,
    /// The connection that nng has, until it closes it: else it would stay open.
    wire: Arc<Mutex<Option<StdStream>>>,
}

impl Link for NngLink {
    fn send(&self, message: Message) -> Result<(), Closed> {
        self.outbox.send(message)
    }

    fn close(&self) {
        self.inflow.close();
        self.outbox.close();
    }

    fn set_peer_timeout(&self, silence: Duration) {
        let Some(wire) = &*self.wire.lock() else { return };
        let milliseconds = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX).max(1);
        if let Err(error) = set_tcp_user_timeout(wire, milliseconds) {
            tracing::warn!("a peer whose host is lost will be missed late: {error}");
        }
    }
}

struct NngIncoming {
    link: Arc<NngLink>,
    inbox: Inbox,
}

impl Incoming for NngIncoming {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let next = ready!(self.inbox.poll_next(context));
        if let Some(Err(_)) = next {
            self.link.close();
        }
        Poll::Ready(next)
    }

    fn set_limit(&mut self, bytes: usize) {
        self.inbox.set_limit(bytes);
    }
}

impl Drop for NngIncoming {
    fn drop(&mut self) {
        self.link.close();
    }
}
