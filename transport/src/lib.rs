//! Links between fiber's processes. They carry messages, and do not depend on actors or tasks.
//!
//! A [`Link`] sends, an [`Incoming`] receives, a [`Listener`] waits for peers. Links over Unix
//! sockets, over nng and in memory behave alike:
//! - The messages of one link arrive whole and in the order in which they were sent, or the link
//!   closes.
//! - Sending never blocks and never waits for a timer. Messages that are sent while a write is in
//!   progress leave together with the next write.
//! - A peer whose process ends closes the link at once. A peer whose host is lost does not:
//!   heartbeats find that.
//! - The last messages before a peer's death may be lost without notice, so no guarantee may rest
//!   on a link alone.

// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod blob_frame;
mod busy_poll;
mod frame;
mod handshake;
#[cfg_attr(not(feature = "nng"), expect(dead_code, reason = "only nng listens at addresses"))]
mod listen_at;
#[cfg(any(test, feature = "simulation"))]
pub mod memory;
mod near_and_far;
#[cfg_attr(not(feature = "nng"), path = "nng/disabled.rs")]
pub mod nng;
mod pass;
mod peer;
mod pending_peers;
#[cfg(feature = "nng")]
mod seal;
pub mod shared_memory;
mod traffic;
pub mod unix;

use std::fmt::{self, Debug};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{Address, LinkKind, SessionKey};
use fiber_values::blob::Blobs;
use fiber_values::codec::EncodedValue;

pub use busy_poll::BusyPoll;
pub use frame::{Chunk, Decoder, Encoder, Frame, FrameError, HEADER_LEN};
pub use handshake::{HandshakeError, Peer, PeerInfo, Role, accept_peer, join_session};
pub use listen_at::ListenAt;
pub use near_and_far::{is_near, listen_near_and_far};
pub use pass::Pass;
pub use pending_peers::PendingPeers;
#[cfg(feature = "nng")]
pub use seal::Keys;
pub use traffic::traffic;

/// A message: a short head, and a body that is sent without a copy if it is large.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The first bytes.
    pub head: Vec<u8>,
    /// The bytes after the head.
    pub body: Bytes,
    /// The blobs to which head and body refer. A link within one host lends those in shared memory,
    /// and sends the bytes of all others.
    pub blobs: Blobs,
}

impl Message {
    /// Makes a message without a body.
    pub fn new(head: Vec<u8>) -> Message {
        Message { head, ..Message::default() }
    }

    /// Makes a message without blobs.
    pub fn with_body(head: Vec<u8>, body: Bytes) -> Message {
        Message { head, body, ..Message::default() }
    }

    /// Makes a message with an encoded value behind its head.
    pub fn with_value(head: Vec<u8>, value: EncodedValue) -> Message {
        Message { head, body: value.bytes, blobs: value.blobs }
    }

    /// Returns the length of head and body in bytes, without blobs.
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Returns whether head and body are empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A message that has arrived. It derefs to its bytes: those of head and body.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// The bytes.
    pub bytes: Bytes,
    /// The blobs that came with them.
    pub blobs: Blobs,
}

impl Received {
    /// Returns the message as [`unshared`] does its bytes.
    #[must_use]
    pub fn unshared(self) -> Received {
        Received { bytes: unshared(self.bytes), ..self }
    }
}

/// Returns received bytes that may wait for long in memory of their own, if they keep more than
/// twice as many from being freed.
pub fn unshared(bytes: Bytes) -> Bytes {
    if bytes.len() <= frame::SHORT { Bytes::copy_from_slice(&bytes) } else { bytes }
}

impl std::ops::Deref for Received {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

impl<T> PartialEq<T> for Received
where
    Bytes: PartialEq<T>,
{
    fn eq(&self, bytes: &T) -> bool {
        self.bytes == *bytes
    }
}

impl From<Received> for Bytes {
    fn from(received: Received) -> Bytes {
        received.bytes
    }
}

impl From<Received> for EncodedValue {
    fn from(Received { bytes, blobs }: Received) -> EncodedValue {
        EncodedValue { bytes, blobs }
    }
}

impl From<Bytes> for Received {
    fn from(bytes: Bytes) -> Received {
        Received { bytes, blobs: Blobs::default() }
    }
}

/// The sending half of a connection to one peer. Any thread may use it.
pub trait Link: Debug + Send + Sync {
    /// Sends a message, or queues it behind the ones that are being sent.
    ///
    /// # Errors
    /// [`Closed`], if the link is known to be closed. `Ok` does not confirm that the peer gets the
    /// message.
    fn send(&self, message: Message) -> Result<(), Closed>;

    /// Queues a message for the next [`send`](Link::send) or [`flush`](Link::flush), so that one
    /// write may carry both. A link that gains nothing by that sends it at once.
    ///
    /// # Errors
    /// Those of [`send`](Link::send).
    fn send_later(&self, message: Message) -> Result<(), Closed> {
        self.send(message)
    }

    /// Sends what [`send_later`](Link::send_later) has queued.
    fn flush(&self) {}

    /// Works as [`send_later`](Link::send_later), for a message that goes to other peers too, with
    /// the same key and the same bytes. Links that share a wire may carry it there once.
    ///
    /// # Errors
    /// Those of [`send`](Link::send).
    fn send_shared(&self, _key: u64, message: Message) -> Result<(), Closed> {
        self.send_later(message)
    }

    /// Notes that this peer needs the shared message of this key no more, if it was sent it.
    fn drop_shared(&self, _key: u64) {}

    /// Returns the wire that carries this link's messages and those of others, and the number of
    /// this peer on it.
    fn wire(&self) -> Option<(Arc<dyn Wire>, u64)> {
        None
    }

    /// Returns whether the peer reads blobs in shared memory: then they cross no wire.
    fn lends_memory(&self) -> bool {
        false
    }

    /// Closes the link: queued messages are dropped, the peer sees the end, and [`Incoming`] ends.
    /// Even messages that were sent already may be lost. A caller that needs them to arrive waits
    /// until the peer answers or closes.
    fn close(&self);

    /// Closes the link when the peer's host has not acknowledged sent data for `silence`. Without
    /// this, a lost host looks like a slow one. It has no effect on links within one host.
    fn set_peer_timeout(&self, silence: Duration);
}

/// A wire that carries the messages of several links.
pub trait Wire: Debug + Send + Sync {
    /// Sends the same message to several peers, to each by its number and behind a head of its own.
    /// The message itself crosses the wire once. A peer whose link is closed does not get it.
    fn send_to_each(self: Arc<Self>, heads: &[(u64, Vec<u8>)], message: Message);
}

/// The link is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the link is closed")
    }
}

impl std::error::Error for Closed {}

/// The receiving half of a connection. It is polled on the thread on which it was made.
pub trait Incoming {
    /// Returns the next message; `None` when the peer closed the link or died; an error when the
    /// link broke or received bytes that can't be a message.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Received>>>;

    /// Sets the limit of a message's length in bytes. A longer message is an error, before memory
    /// is allocated for it. The peer has proven that it holds the session's key: from now on, it
    /// may send blobs.
    fn set_limit(&mut self, bytes: usize);
}

/// Both halves of a connection to one peer.
pub struct Connection {
    /// The sending half.
    pub link: Arc<dyn Link>,
    /// The receiving half.
    pub incoming: Box<dyn Incoming>,
    /// `None` if the connection by whose way its messages come polls.
    busy_poll: Option<BusyPoll>,
}

impl Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("link", &self.link).finish_non_exhaustive()
    }
}

impl Connection {
    /// Makes a connection of its halves.
    pub fn new(link: Arc<dyn Link>, incoming: impl Incoming + 'static) -> Connection {
        Connection { link, incoming: Box::new(incoming), busy_poll: Some(BusyPoll::default()) }
    }

    /// Makes a connection whose messages come by way of another one. Many may share that one: it
    /// alone keeps the thread awake.
    pub fn relayed(link: Arc<dyn Link>, incoming: impl Incoming + 'static) -> Connection {
        Connection { link, incoming: Box::new(incoming), busy_poll: None }
    }

    /// Returns the next message, as [`Incoming::poll_next`] does. Keeps the thread awake for a
    /// moment after the last one.
    pub async fn next(&mut self) -> Option<io::Result<Received>> {
        poll_fn(|context| {
            let message = self.incoming.poll_next(context);
            if let Some(busy_poll) = &mut self.busy_poll {
                match message {
                    Poll::Ready(_) => busy_poll.restart(),
                    Poll::Pending => busy_poll.poll(context),
                }
            }
            message
        })
        .await
    }

    /// Lets the thread sleep at once: the last message, such as a heartbeat, does not announce
    /// another.
    pub fn allow_sleep(&mut self) {
        if let Some(busy_poll) = &mut self.busy_poll {
            busy_poll.stop();
        }
    }
}

/// Waits for peers.
pub trait Listener {
    /// Returns the address for [`connect`].
    fn address(&self) -> String;

    /// Returns the next connection. Its peer has proven nothing yet: see [`accept_peer`].
    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Connection>>;
}

/// The limit in bytes of a message from a peer that has not yet proven that it holds the session's
/// key.
pub const UNPROVEN_LIMIT: usize = 4096;

/// Listens: over nng at `at`, over Unix sockets at a random name.
///
/// # Errors
/// The system's error; [`io::ErrorKind::InvalidInput`] if `at` has no address for peers.
pub fn listen(kind: LinkKind, key: &SessionKey, at: &ListenAt) -> io::Result<Box<dyn Listener>> {
    match kind {
        LinkKind::Unix => Ok(Box::new(unix::listen()?)),
        LinkKind::Nng => nng::listen(key, at),
        #[cfg(any(test, feature = "simulation"))]
        LinkKind::Memory => Ok(Box::new(memory::listen())),
        other => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("there is no link of kind {other}"),
        )),
    }
}

/// Connects to a [`Listener::address`].
///
/// # Errors
/// The system's error; [`io::ErrorKind::InvalidInput`] for a malformed address.
pub async fn connect(address: &str, pass: impl Into<Pass>) -> io::Result<Connection> {
    let pass = pass.into();
    let address: Address =
        address.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    match &address {
        Address::Unix(name) => unix::connect(name).await,
        #[cfg(any(test, feature = "simulation"))]
        Address::Memory(name) => memory::connect(name),
        #[cfg(not(any(test, feature = "simulation")))]
        Address::Memory(_) => Err(io::ErrorKind::Unsupported.into()),
        Address::Nng(far) => nng::connect(far, &pass).await,
        Address::NearAndFar { reach, name, far } => {
            near_and_far::connect(reach, name, far, &pass).await
        }
    }
}
