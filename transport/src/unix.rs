//! Links over Unix stream sockets, for processes of one host.
//!
//! Sockets have names in Linux's abstract namespace: they leave no file behind, whatever kills the process. Such names
//! have no permissions, so a peer that runs as another user is turned away by its credentials, before the handshake.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;

use crate::frame::{Decoder, Gather};
use crate::{Closed, Connection, Incoming, Link, Listener, Message, UNPROVEN_LIMIT};

/// Bytes asked for in one read.
const READ: usize = 64 << 10;
/// Pieces handed to the kernel in one write.
const PIECES: usize = 64;

/// Listens at a new random name.
///
/// # Errors
/// What the system says.
pub fn listen() -> io::Result<impl Listener> {
    let name = format!("fiber-{:032x}", u128::from_le_bytes(fiber_core::random()));
    let socket = StdListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    socket.set_nonblocking(true)?;
    Ok(Unix { name, socket: UnixListener::from_std(socket)? })
}

/// Connects to the listener of the given name.
///
/// # Errors
/// What the system says.
pub fn connect(name: &str) -> io::Result<Connection> {
    let socket = StdStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    socket.set_nonblocking(true)?;
    connection(UnixStream::from_std(socket)?)
}

struct Unix {
    name: String,
    socket: UnixListener,
}

impl Listener for Unix {
    fn address(&self) -> String {
        format!("unix:{}", self.name)
    }

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        loop {
            let (stream, _) = ready!(self.socket.poll_accept(context))?;
            match connection(stream) {
                Ok(connection) => return Poll::Ready(Ok(connection)),
                Err(error) => tracing::warn!("turned a peer away: {error}"),
            }
        }
    }
}

fn connection(stream: UnixStream) -> io::Result<Connection> {
    let (peer, own) = (stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw());
    if peer != own {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("the other end of the socket runs as user {peer}, this process as {own}"),
        ));
    }
    let link = Arc::new(UnixLink { stream, state: Mutex::default(), blocked: Notify::new() });
    tokio::task::spawn_local(Arc::clone(&link).unblock());
    let incoming = UnixIncoming { link: Arc::clone(&link), decoder: Decoder::new(UNPROVEN_LIMIT) };
    Ok(Connection { link, incoming: Box::new(incoming) })
}

#[derive(Debug)]
struct UnixLink {
    stream: UnixStream,
    state: Mutex<State>,
    /// Wakes the task that continues a write when the socket has room again.
    blocked: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: Gather,
    /// What the socket had no room for.
    rest: VecDeque<Bytes>,
    /// Whether some thread, or the task that waits for room, is writing. It takes what others add.
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
        state.waiting = Gather::default();
        state.rest.clear();
        drop(state);
        // Both ends see it, this one too.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Both);
        self.blocked.notify_one();
    }
}

impl UnixLink {
    /// Writes `pieces`, and what was added meanwhile, until nothing is left or the socket has no room.
    fn write(&self, mut pieces: VecDeque<Bytes>) {
        loop {
            match self.write_some(&mut pieces) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.state.lock().rest = pieces;
                    return self.blocked.notify_one();
                }
                // The receiving half sees the same and tells why.
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

    fn write_some(&self, pieces: &mut VecDeque<Bytes>) -> io::Result<()> {
        let mut slices = [IoSlice::new(&[]); PIECES];
        let count = pieces.len().min(PIECES);
        for (slice, piece) in slices.iter_mut().zip(pieces.iter()) {
            *slice = IoSlice::new(piece);
        }
        let mut written = self.stream.try_write_vectored(&slices[..count])?;
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

    /// Continues writes that found no room.
    async fn unblock(self: Arc<Self>) {
        loop {
            self.blocked.notified().await;
            if self.stream.writable().await.is_err() {
                return self.close();
            }
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            let rest = std::mem::take(&mut state.rest);
            drop(state);
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
                Err(error) => return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::InvalidData, error)))),
            }
            match self.link.stream.try_read_buf(self.decoder.buffer(READ)) {
                Ok(0) if self.decoder.is_in_message() => {
                    return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
                }
                Ok(0) => return Poll::Ready(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.link.stream.poll_read_ready(context))?;
                }
                Err(error) => return Poll::Ready(Some(Err(error))),
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
