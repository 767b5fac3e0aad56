//! Links over Unix stream sockets, for processes of one host.
//!
//! Sockets have names in Linux's abstract namespace, which leave no file behind, whatever kills the
//! process. Such names have no permissions, so a peer that runs as another user is rejected by its
//! credentials, before the handshake.
//!
//! A link waits for the socket to become writable only after a write found it full. If it always
//! waited, each message that the peer takes out would wake this process's thread.

mod sys;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType, sendmsg, shutdown, socket_with,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio::time::sleep;

use self::sys::{Read, read, watch};
use crate::frame::{Decoder, Encoder};
use crate::{Closed, Connection, Incoming, Link, Listener, Message, UNPROVEN_LIMIT};

/// The size of one read in bytes.
const READ: usize = 64 << 10;
/// The limit of chunks in one write.
const PIECES: usize = 64;
/// The pause before another attempt to connect to a listener whose queue is full.
const QUEUE_FULL: Duration = Duration::from_millis(10);

/// Listens at a new random name.
///
/// # Errors
/// The system's error.
pub fn listen() -> io::Result<impl Listener> {
    let name = format!("fiber-{:032x}", u128::from_le_bytes(fiber_core::random()));
    let socket = StdListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    socket.set_nonblocking(true)?;
    Ok(UnixSocketListener { name, socket: UnixListener::from_std(socket)? })
}

/// Connects to the listener of the given name.
///
/// # Errors
/// The system's error.
pub async fn connect(name: &str) -> io::Result<Connection> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    // The kernel reports that the listener's queue is full, but has no event for when it is not.
    while let Err(error) = rustix::net::connect(&socket, &address) {
        match error {
            Errno::AGAIN => sleep(QUEUE_FULL).await,
            Errno::INTR => {}
            error => return Err(error.into()),
        }
    }
    connection(StdStream::from(socket))
}

struct UnixSocketListener {
    name: String,
    socket: UnixListener,
}

impl Listener for UnixSocketListener {
    fn address(&self) -> String {
        format!("unix:{}", self.name)
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        loop {
            let (stream, _) = ready!(self.socket.poll_accept(context))?;
            match stream.into_std().and_then(connection) {
                Ok(connection) => return Poll::Ready(Ok(connection)),
                Err(error) => tracing::warn!("rejected a peer: {error}"),
            }
        }
    }
}

fn connection(stream: StdStream) -> io::Result<Connection> {
    let peer = rustix::net::sockopt::socket_peercred(&stream)?.uid;
    let own = rustix::process::geteuid();
    if peer != own {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "the other end of the socket runs as user {}, this process as {}",
                peer.as_raw(),
                own.as_raw()
            ),
        ));
    }
    let stream = watch(stream, Interest::READABLE)?;
    let link = Arc::new(UnixLink { stream, state: Mutex::default(), blocked: Notify::new() });
    tokio::task::spawn_local(Arc::clone(&link).unblock());
    let incoming = UnixIncoming { link: Arc::clone(&link), decoder: Decoder::new(UNPROVEN_LIMIT) };
    Ok(Connection::new(link, incoming))
}

#[derive(Debug)]
struct UnixLink {
    /// Watched for readability.
    stream: AsyncFd<StdStream>,
    state: Mutex<SendState>,
    /// Wakes the task that continues a write when the socket is writable again.
    blocked: Notify,
}

#[derive(Debug, Default)]
struct SendState {
    waiting: Encoder,
    /// Chunks for which the socket had no room.
    unsent: VecDeque<Bytes>,
    /// Whether a thread, or the task that waits for room, is writing. It also writes messages that
    /// others add.
    writing: bool,
    closed: bool,
}

impl Link for UnixLink {
    fn send(&self, message: Message) -> Result<(), Closed> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Closed);
        }
        state.waiting.push(message);
        if state.writing {
            return Ok(());
        }
        state.writing = true;
        let pieces = state.waiting.take();
        drop(state);
        self.write(pieces);
        Ok(())
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.waiting = Encoder::default();
        state.unsent.clear();
        drop(state);
        // Both ends see the shutdown, this one too.
        let _ = shutdown(&self.stream, Shutdown::Both);
        self.blocked.notify_one();
    }

    fn set_peer_timeout(&self, _: Duration) {}
}

impl UnixLink {
    /// Writes `pieces` and messages that were added meanwhile, until none are left or the socket
    /// has no room.
    fn write(&self, mut pieces: VecDeque<Bytes>) {
        loop {
            match self.write_some(&mut pieces) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    self.state.lock().unsent = pieces;
                    return self.blocked.notify_one();
                }
                // The receiving half sees the same error and reports it.
                Err(_) => return self.close(),
            }
            if pieces.is_empty() {
                let mut state = self.state.lock();
                pieces = state.waiting.take();
                if pieces.is_empty() {
                    state.writing = false;
                    return;
                }
            }
        }
    }

    fn write_some(&self, pieces: &mut VecDeque<Bytes>) -> rustix::io::Result<()> {
        let mut slices = [IoSlice::new(&[]); PIECES];
        let count = pieces.len().min(PIECES);
        for (slice, piece) in slices.iter_mut().zip(pieces.iter()) {
            *slice = IoSlice::new(piece);
        }
        let slices = &slices[..count];
        // A peer that is gone causes an error instead of SIGPIPE.
        let send = || {
            sendmsg(&self.stream, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
        };
        let mut written = retry_on_intr(send)?;
        while let Some(first) = pieces.front_mut() {
            if written < first.len() {
                first.advance(written);
                break;
            }
            written -= first.len();
            pieces.pop_front();
        }
        Ok(())
    }

    /// Continues writes for which the socket had no room.
    async fn unblock(self: Arc<Self>) {
        loop {
            self.blocked.notified().await;
            if self.until_written().await.is_err() {
                return self.close();
            }
            if self.state.lock().closed {
                return;
            }
        }
    }

    /// Returns when all blocked chunks are written, or the link is closed.
    async fn until_written(&self) -> io::Result<()> {
        // Another descriptor waits for room, because this one waits for received bytes.
        let room = watch(self.stream.get_ref().try_clone()?, Interest::WRITABLE)?;
        loop {
            let mut readiness = room.writable().await?;
            let mut state = self.state.lock();
            let rest = std::mem::take(&mut state.unsent);
            drop(state);
            if rest.is_empty() {
                return Ok(());
            }
            readiness.clear_ready();
            self.write(rest);
        }
    }
}

struct UnixIncoming {
    link: Arc<UnixLink>,
    decoder: Decoder,
}

impl Incoming for UnixIncoming {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            match self.decoder.next_message() {
                Ok(Some(message)) => return Poll::Ready(Some(Ok(message))),
                Ok(None) => {}
                Err(error) => {
                    return Poll::Ready(Some(Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        error,
                    ))));
                }
            }
            let mut readiness = ready!(self.link.stream.poll_read_ready(context))?;
            match read(self.link.stream.get_ref(), self.decoder.buffer(READ)) {
                Ok(Read::Ended) if self.decoder.is_in_message() => {
                    return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
                }
                Ok(Read::Ended) => return Poll::Ready(None),
                Ok(Read::Some) => {}
                Ok(Read::All) => readiness.clear_ready(),
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
        }
    }

    fn set_limit(&mut self, bytes: usize) {
        self.decoder.set_limit(bytes);
    }
}

impl Drop for UnixIncoming {
    fn drop(&mut self) {
        self.link.close();
    }
}
