//! Links over nng, between containers and hosts.
//!
//! A link is one TCP connection, and only the listener has to be reachable. First, connector and
//! acceptor prove to each other that they hold the session's key (see [`accept_keys`]). Then both
//! give the connection to nng, each to a PAIR socket of its own. So nng never sees a peer without
//! the key.
//!
//! nng carries the bytes of the [`Encoder`](crate::Encoder), cut into frames of at most `FRAME`
//! bytes, each sealed (see `seal.rs`). Each link has a receive limit of its own, so a peer whose
//! messages are not read does not delay others.

mod inbox;
mod key_exchange;
mod outbox;
mod startup;
mod sys;

use std::io;
use std::net::{SocketAddr, TcpStream as StdStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fiber_core::{Address, HostPort, SessionKey, shortage};
use nng::options::{Options, RecvMaxSize};
use nng::{PipeEvent, Protocol, Socket};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;

use self::inbox::Inbox;
pub use self::key_exchange::{accept_keys, connect_keys};
use self::outbox::Outbox;
use crate::pending_peers::{HANDSHAKE_TIMEOUT, PendingPeers};
use crate::seal::{Keys, TAG};
use crate::{Closed, Connection, Incoming, Link, ListenAt, Listener, Message, Pass, Received};

/// The limit of a frame in bytes, before it is sealed.
const FRAME: usize = 256 << 10;
const NO_ROOM: &str = "nng has no room for its threads or its memory; raise the limits (`ulimit \
                       -u` and `ulimit -v`), or use fewer workers";
/// The kernel's queue of connections that wait for `accept`.
const BACKLOG: u32 = 4096;

/// Listens at `at`. Call it on a tokio runtime with timers, in a task of a `LocalSet`.
///
/// # Errors
/// The system's error; [`io::ErrorKind::InvalidInput`] if `at` has no address for peers.
pub fn listen(key: &SessionKey, at: &ListenAt) -> io::Result<Box<dyn Listener>> {
    let host = at.advertised()?;
    let socket = at.open(|address| {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Without this, the port would stay in use for a while after its listener has ended.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    })?;
    let address = HostPort::new(&host, socket.local_addr()?.port());
    // Finds out now whether nng can start, and not for each peer.
    drop(open()?);
    let (key, pending) = (key.clone(), PendingPeers::default());
    Ok(Box::new(NngListener { socket, address, key, pending }))
}

/// Connects to the listener at `address`, under the same conditions as [`listen`].
///
/// # Errors
/// If there is no listener, or it does not answer, or it does not hold the key.
pub async fn connect(address: &HostPort, pass: &Pass) -> io::Result<Connection> {
    let url = format!("tcp://{address}");
    let connected = async {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await;
        let mut stream = stream
            .map_err(|error| in_context(&error, &format!("there is no connection to {url}")))?;
        let keys = prepare(&stream).and(connect_keys(&mut stream, pass).await);
        let keys = keys.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => {
                let problem = format!(
                    "{url} closed the connection without an answer: does it hold this session's \
                     key?"
                );
                io::Error::new(io::ErrorKind::ConnectionReset, problem)
            }
            _ => in_context(&error, &format!("{url} is not to be trusted")),
        })?;
        connection(stream, keys).await
    };
    tokio::time::timeout(HANDSHAKE_TIMEOUT, connected).await.unwrap_or_else(|_| {
        let problem = format!(
            "{url} did not answer within {HANDSHAKE_TIMEOUT:?}: its process may be stopped, or the \
             network between may fail or deny it (a firewall, a NetworkPolicy)"
        );
        Err(io::Error::new(io::ErrorKind::TimedOut, problem))
    })
}

fn in_context(error: &io::Error, context: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{context}: {}", shortage::explain(error)))
}

/// Turns Nagle's algorithm off, so that small messages do not wait for others.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)
}

struct NngListener {
    socket: TcpListener,
    address: HostPort,
    key: SessionKey,
    pending: PendingPeers<(SocketAddr, io::Result<Connection>)>,
}

impl Listener for NngListener {
    fn address(&self) -> String {
        Address::Nng(self.address.clone()).to_string()
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        loop {
            match self.pending.poll_done(context) {
                // This process ran out of a resource: the peer is not to blame.
                Poll::Ready((_, Err(error))) if shortage::is_shortage(&error) => {
                    return Poll::Ready(Err(error));
                }
                Poll::Ready((peer, Err(error))) => {
                    self.pending.log_rejected(&format!("{peer}: {error}"));
                    continue;
                }
                Poll::Ready((_, connected)) => return Poll::Ready(connected),
                Poll::Pending => {}
            }
            ready!(self.pending.poll_room(context));
            match ready!(self.socket.poll_accept(context)) {
                Ok((stream, peer)) => {
                    let handshake = accept(stream, self.key.clone());
                    self.pending.add(async move { (peer, handshake.await) });
                }
                // The peer left before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

async fn accept(mut stream: TcpStream, key: SessionKey) -> io::Result<Connection> {
    prepare(&stream)?;
    let keys = accept_keys(&mut stream, &key).await?;
    connection(stream, keys).await
}

/// Gives a connection to nng, and waits until nng has set it up.
async fn connection(stream: TcpStream, keys: Keys) -> io::Result<Connection> {
    let outgoing = Arc::new(outbox::SendQueue::new(keys.sealer));
    let incoming = Arc::new(inbox::ReceiveQueue::default());
    let ready = Arc::new(Notify::new());
    let stream = stream.into_std()?;
    let wire = Arc::new(Mutex::new(Some(stream.try_clone()?)));
    let socket = open()?;
    socket.pipe_notify({
        let (outgoing, incoming, ready) =
            (Arc::clone(&outgoing), Arc::clone(&incoming), Arc::clone(&ready));
        let wire = Arc::clone(&wire);
        move |_, event| match event {
            PipeEvent::AddPost => ready.notify_one(),
            PipeEvent::RemovePost => {
                outgoing.close();
                incoming.disconnect();
                drop(wire.lock().take());
                ready.notify_one();
            }
            _ => {}
        }
    })?;
    let link = Arc::new(NngLink {
        outbox: Outbox::new(&socket, outgoing)?,
        incoming: Arc::clone(&incoming),
        socket,
        wire,
    });
    let inbox = Inbox::new(&link.socket, incoming, keys.opener)?;
    let connection =
        Connection::new(Arc::clone(&link) as _, NngIncoming { link: Arc::clone(&link), inbox });
    sys::adopt(&link.socket, OwnedFd::from(stream))?;
    ready.notified().await;
    Ok(connection)
}

/// Opens a socket for sealed frames. It has one pipe in its life.
fn open() -> io::Result<Socket> {
    startup::check_room()?;
    sys::limit_threads();
    let socket = Socket::new(Protocol::Pair0).map_err(explained)?;
    socket.set_opt::<RecvMaxSize>(FRAME + TAG)?;
    Ok(socket)
}

/// Translates an error of nng. Names the resource if one ran out.
fn explained(error: nng::Error) -> io::Error {
    match error {
        nng::Error::OutOfFiles => Errno::MFILE.into(),
        // nng reports the same if it can't start its threads.
        nng::Error::OutOfMemory => io::Error::new(io::ErrorKind::OutOfMemory, NO_ROOM),
        other => other.into(),
    }
}

#[derive(Debug)]
struct NngLink {
    outbox: Outbox,
    incoming: Arc<inbox::ReceiveQueue>,
    socket: Socket,
    /// A duplicate of nng's connection, to set its options. It is dropped when nng closes the
    /// connection, which would stay open otherwise.
    wire: Arc<Mutex<Option<StdStream>>>,
}

impl Link for NngLink {
    fn send(&self, message: Message) -> Result<(), Closed> {
        self.outbox.send(message)
    }

    fn close(&self) {
        self.incoming.close();
        self.outbox.close();
    }

    fn set_peer_timeout(&self, silence: Duration) {
        let Some(wire) = &*self.wire.lock() else { return };
        let milliseconds = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX).max(1);
        if let Err(error) = set_tcp_user_timeout(wire, milliseconds) {
            tracing::warn!("the loss of a peer's host will be noticed late: {error}");
        }
    }
}

struct NngIncoming {
    link: Arc<NngLink>,
    inbox: Inbox,
}

impl Incoming for NngIncoming {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Received>>> {
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
