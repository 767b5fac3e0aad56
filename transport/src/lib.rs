//! Links between fiber's nodes: they carry messages, and know nothing of actors or tasks.
//!
//! A [`Link`] sends, an [`Incoming`] receives, a [`Listener`] waits for peers. There are two kinds,
//! Unix sockets and nng, which behave alike:
//! - messages of one link arrive whole and in the order in which they were sent, or the link
//!   closes;
//! - sending never blocks and never waits for a timer: while a write is under way, what is sent
//!   next gathers, and leaves with the next write;
//! - a peer whose process ends closes the link at once. A peer whose host is lost does not:
//!   heartbeats are for that;
//! - what was sent last before a peer died may be lost without notice, so no guarantee may rest on
//!   a link alone.

mod busy_poll;
mod frame;
mod handshake;
#[cfg_attr(not(feature = "nng"), expect(dead_code, reason = "only nng listens at addresses"))]
mod listen_at;
#[cfg_attr(not(feature = "nng"), path = "nng/disabled.rs")]
pub mod nng;
mod pending_peers;
#[cfg(feature = "nng")]
mod seal;
pub mod shared_memory;
pub mod unix;

use std::fmt::Debug;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{LinkKind, SessionKey};

pub use busy_poll::BusyPoll;
pub use frame::{Decoder, Encoder, FrameError, HEADER_LEN};
pub use handshake::{HandshakeError, Peer, PeerInfo, Role, accept_peer, join_session};
pub use listen_at::{ListenAt, local_ip_towards};
pub use pending_peers::PendingPeers;
#[cfg(feature = "nng")]
pub use seal::Keys;

/// One message: a short head, and a body that is handed on without a copy if it is large.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// What comes first.
    pub head: Vec<u8>,
    /// What comes after it.
    pub body: Bytes,
}

impl Message {
    /// A message without a body.
    pub fn new(head: Vec<u8>) -> Message {
        Message { head, body: Bytes::new() }
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The sending half of a connection to one peer. Any thread may use it.
pub trait Link: Debug + Send + Sync {
    /// Sends a message, or queues it behind what is being sent.
    ///
    /// # Errors
    /// [`Closed`], when the link is known to be closed. `Ok` does not say that the peer has the
    /// message.
    fn send(&self, message: Message) -> Result<(), Closed>;

    /// Closes the link: what is queued is dropped, the peer sees the end, and [`Incoming`] ends.
    /// Even what was sent last may be dropped; who wants it to arrive waits until the peer answers
    /// or closes.
    fn close(&self);

    /// Has the link close when the peer's host has not confirmed for so long what was sent. Until
    /// then, one that is lost is not told from one that is slow. A peer on this host is never lost
    /// in this way.
    fn set_peer_timeout(&self, silence: Duration);
}

/// The link is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the link is closed")]
pub struct Closed;

/// The receiving half of a connection. It is polled on the thread on which it was made.
pub trait Incoming {
    /// The next message; `None` when the peer closed the link in order or died, an error when the
    /// link broke or what came can't be a message.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>>;

    /// Sets the length in bytes of the longest message that is accepted. A longer one is an error,
    /// before memory is taken for it.
    fn set_limit(&mut self, bytes: usize);
}

/// Both halves of a connection to one peer.
pub struct Connection {
    /// Sends.
    pub link: Arc<dyn Link>,
    /// Receives.
    pub incoming: Box<dyn Incoming>,
    busy_poll: BusyPoll,
}

impl Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("link", &self.link).finish_non_exhaustive()
    }
}

impl Connection {
    fn new(link: Arc<dyn Link>, incoming: impl Incoming + 'static) -> Connection {
        Connection { link, incoming: Box::new(incoming), busy_poll: BusyPoll::default() }
    }

    /// The next message, as [`Incoming::poll_next`]. For a moment after the last one, the thread
    /// stays awake for it.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        poll_fn(|context| {
            let message = self.incoming.poll_next(context);
            match message {
                Poll::Ready(_) => self.busy_poll.restart(),
                Poll::Pending => self.busy_poll.poll(context),
            }
            message
        })
        .await
    }

    /// What came last says nothing of when more comes: the thread may sleep.
    pub fn allow_sleep(&mut self) {
        self.busy_poll.stop();
    }
}

/// Waits for peers.
pub trait Listener {
    /// Where peers connect to, for [`connect`].
    fn address(&self) -> String;

    /// The next peer. Nothing is known of it yet: see [`accept_peer`].
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Connection>>;
}

/// What a connection may send before it has shown that it holds the session's key.
pub const UNPROVEN_LIMIT: usize = 4096;

/// Listens: over nng where `at` says, over Unix sockets at a name of its own choice.
///
/// # Errors
/// What the system says, or that `at` can't be told to peers.
pub fn listen(kind: LinkKind, key: &SessionKey, at: &ListenAt) -> io::Result<Box<dyn Listener>> {
    match kind {
        LinkKind::Unix => Ok(Box::new(unix::listen()?)),
        LinkKind::Nng => nng::listen(key, at),
        other => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("there is no link of kind {other}"),
        )),
    }
}

/// Connects to a [`Listener::address`].
///
/// # Errors
/// What the system says, or that the address is none.
pub async fn connect(address: &str, key: &SessionKey) -> io::Result<Connection> {
    match (link_kind(address), address.split_once(':')) {
        (Some(LinkKind::Unix), Some((_, name))) => unix::connect(name).await,
        (Some(LinkKind::Nng), Some((_, url))) => nng::connect(url, key).await,
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("`{address}` is no address of a fiber node"),
        )),
    }
}

/// What carries the messages to a [`Listener::address`]; `None` if it is no such address.
pub fn link_kind(address: &str) -> Option<LinkKind> {
    match address.split_once(':')?.0 {
        "unix" => Some(LinkKind::Unix),
        "nng" => Some(LinkKind::Nng),
        _ => None,
    }
}
