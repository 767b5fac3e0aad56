//! Links over Unix stream sockets, for processes of one host.
//!
//! Sockets have names in Linux's abstract namespace, which leave no file behind, whatever kills the
//! process. Such names have no permissions, so a peer that runs as another user is rejected by its
//! credentials, before the handshake.
//!
//! Blobs in shared memory are lent: a message has their places, and the borrower gives each back
//! when it has dropped it (see `loans`).
//!
//! A link waits for the socket to become writable only after a write found it full. If it always
//! waited, each message that the peer takes out would wake this process's thread.

mod loans;
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
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, shutdown, socket_with,
};
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixListener;
use tokio::sync::Notify;
use tokio::time::sleep;

use self::loans::{Borrower, Lender};
use self::sys::{Read, read, watch};
use crate::blob_frame::{self, BlobFrame, Loan};
use crate::frame::{Chunk, Decoder, Encoder, Frame};
use crate::peer::own_peer;
use crate::pending_peers::Rejections;
use crate::traffic::count_sent;
use crate::{Closed, Connection, Incoming, Link, Listener, Message, Received, UNPROVEN_LIMIT};

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
    let socket = UnixListener::from_std(socket)?;
    Ok(UnixSocketListener { name, socket, rejections: Rejections::default() })
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
    rejections: Rejections,
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
                Err(error) => self.rejections.log(&error.to_string()),
            }
        }
    }
}

fn connection(stream: StdStream) -> io::Result<Connection> {
    let peer = own_peer(&stream)?;
    let stream = watch(stream, Interest::READABLE)?;
    let link = Arc::new(UnixLink { stream, peer, state: Mutex::default(), blocked: Notify::new() });
    fiber_core::spawn_local(Arc::clone(&link).unblock());
    let incoming = UnixIncoming {
        borrower: Borrower::new(&link),
        link: Arc::clone(&link),
        decoder: Decoder::new(UNPROVEN_LIMIT),
        short: Bytes::new(),
        is_proven: false,
    };
    Ok(Connection::new(link, incoming))
}

#[derive(Debug)]
struct UnixLink {
    /// Watched for readability.
    stream: AsyncFd<StdStream>,
    peer: Pid,
    state: Mutex<SendState>,
    /// Wakes the task that continues a write when the socket is writable again.
    blocked: Notify,
}

#[derive(Debug, Default)]
struct SendState {
    waiting: Encoder,
    lender: Lender,
    /// Chunks for which the socket had no room.
    unsent: VecDeque<Chunk>,
    /// Whether a thread, or the task that waits for room, is writing. It also writes messages that
    /// others add.
    writing: bool,
    closed: bool,
    /// Whether nothing more is received.
    received_all: bool,
}

impl Link for UnixLink {
    fn send(&self, message: Message) -> Result<(), Closed> {
        self.push(|state| state.push(message))
    }

    fn send_later(&self, message: Message) -> Result<(), Closed> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Closed);
        }
        state.push(message);
        Ok(())
    }

    fn flush(&self) {
        // A closed link has dropped what was queued.
        let _ = self.push(|_| {});
    }

    fn lends_memory(&self) -> bool {
        true
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let unsent = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.unsent));
        drop(state);
        // Without the lock: the last handle of a blob may give it back over another link.
        drop(unsent);
        // Both ends see the shutdown, this one too.
        let _ = shutdown(&self.stream, Shutdown::Both);
        self.blocked.notify_one();
    }

    fn set_peer_timeout(&self, _: Duration) {}
}

impl UnixLink {
    /// Adds something to send, and sends all that is queued unless another thread does.
    fn push(&self, add: impl FnOnce(&mut SendState)) -> Result<(), Closed> {
        // The socket is also the original's.
        if fiber_core::forks::is_forked() {
            return Err(Closed);
        }
        let mut state = self.state.lock();
        if state.closed {
            return Err(Closed);
        }
        add(&mut state);
        if state.writing {
            return Ok(());
        }
        let pieces = state.waiting.take();
        if !pieces.is_empty() {
            state.writing = true;
            drop(state);
            self.write(pieces);
        }
        Ok(())
    }

    /// Returns whether the peer's process has not closed its end.
    fn is_peer_there(&self) -> bool {
        let mut socket = [PollFd::new(self.stream.get_ref(), PollFlags::RDHUP)];
        let polled = retry_on_intr(|| poll(&mut socket, Some(&Timespec::default())));
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        polled.is_ok() && !socket[0].revents().intersects(ended)
    }

    /// Gives a borrowed blob back.
    fn give_back(&self, loan: Loan) {
        // If the link is closed, the lender waits for the end of this process.
        let frame = blob_frame::give_back(&[loan]);
        let _ = self.push(|state| state.waiting.push_extended(&frame, Bytes::new()));
    }

    /// Asks for the bytes of blobs whose memory this process can't map.
    fn request(&self, loans: &[Loan]) {
        let frame = blob_frame::request(loans);
        let _ = self.push(|state| state.waiting.push_extended(&frame, Bytes::new()));
    }

    /// Sends the bytes of lent blobs.
    fn send_requested(&self, loans: &[Loan]) {
        let _ = self.push(|state| {
            for (loan, blob) in state.lender.take_requested(loans) {
                state.waiting.push_extended(&blob_frame::data(loan), blob.to_bytes());
            }
        });
    }

    /// Writes `pieces` and messages that were added meanwhile, until none are left or the socket
    /// has no room.
    fn write(&self, mut pieces: VecDeque<Chunk>) {
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

    fn write_some(&self, pieces: &mut VecDeque<Chunk>) -> rustix::io::Result<()> {
        let mut slices = [IoSlice::new(&[]); PIECES];
        // A file goes with the first byte of a write.
        let together = pieces.iter().skip(1).position(|piece| piece.file.is_some());
        let count = together.map_or(pieces.len(), |more| more + 1).min(PIECES);
        for (slice, piece) in slices.iter_mut().zip(pieces.iter().take(count)) {
            *slice = IoSlice::new(&piece.bytes);
        }
        let file = pieces.front().and_then(|first| first.file.as_ref());
        let mut written = retry_on_intr(|| sys::send(&self.stream, &slices[..count], file))?;
        count_sent(written);
        if let Some(first) = pieces.front_mut() {
            first.file = None;
        }
        while let Some(first) = pieces.front_mut() {
            if written < first.bytes.len() {
                first.bytes.advance(written);
                break;
            }
            written -= first.bytes.len();
            pieces.pop_front();
        }
        Ok(())
    }

    /// Continues writes for which the socket had no room. After the end of the link, keeps lent
    /// blobs until the peer has ended.
    async fn unblock(self: Arc<Self>) {
        loop {
            self.blocked.notified().await;
            let (closed, received_all) = {
                let state = self.state.lock();
                (state.closed, state.received_all)
            };
            // Before that, the peer may have returned blobs in what is not received yet.
            if received_all {
                break;
            }
            if !closed && self.until_written().await.is_err() {
                self.close();
            }
        }
        let (lender, peer) = (std::mem::take(&mut self.state.lock().lender), self.peer);
        drop(self);
        lender.wait_for_end_of(peer).await;
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

impl SendState {
    fn push(&mut self, message: Message) {
        if message.blobs.is_empty() {
            return self.waiting.push(message);
        }
        let (places, new) = self.lender.lend(&message);
        new.iter().for_each(|mapping| self.waiting.push_mapping(mapping));
        self.waiting.push_with_blobs(message, places);
    }
}

struct UnixIncoming {
    link: Arc<UnixLink>,
    decoder: Decoder,
    /// The bytes of a short read that are not decoded yet.
    short: Bytes,
    borrower: Borrower,
    /// Whether the peer has proven that it holds the session's key.
    is_proven: bool,
}

impl UnixIncoming {
    /// Returns the next message of those that were read.
    fn next(&mut self) -> io::Result<Option<Received>> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        loop {
            if let Some(message) = self.borrower.next() {
                return Ok(Some(message));
            }
            match self.decoder.next_frame_in(&mut self.short).map_err(invalid)? {
                None => return Ok(None),
                Some(Frame::Message(bytes)) if !self.borrower.is_waiting() => {
                    return Ok(Some(bytes.into()));
                }
                Some(Frame::Message(bytes)) => drop(self.borrower.add(bytes, Vec::new())?),
                Some(Frame::Extended(_)) if !self.is_proven => {
                    let problem = "the peer sent a blob before it has proven itself";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
                }
                Some(Frame::Extended(frame)) => self.receive(BlobFrame::read(frame)?)?,
            }
        }
    }

    fn receive(&mut self, frame: BlobFrame) -> io::Result<()> {
        match frame {
            BlobFrame::Message { blobs, bytes } => {
                let missing = self.borrower.add(bytes, blobs)?;
                if !missing.is_empty() {
                    self.link.request(&missing);
                }
            }
            BlobFrame::Mapping { id, is_lenders_own } => self.borrower.map(id, is_lenders_own),
            BlobFrame::Return(loans) => {
                let ended = self.link.state.lock().lender.end(&loans);
                loans::release(ended);
            }
            BlobFrame::Request(loans) => self.link.send_requested(&loans),
            BlobFrame::Data(loan, bytes) => self.borrower.fill(loan, bytes),
        }
        Ok(())
    }
}

impl Incoming for UnixIncoming {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Received>>> {
        loop {
            if let Some(message) = self.next()? {
                return Poll::Ready(Some(Ok(message)));
            }
            let UnixIncoming { link, decoder, short, borrower, .. } = &mut *self;
            let mut readiness = ready!(link.stream.poll_read_ready(context))?;
            let is_in_message = decoder.is_in_message();
            match read(link.stream.get_ref(), decoder.buffer(READ), &mut borrower.files) {
                Ok(Read::Ended) if is_in_message => {
                    return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
                }
                Ok(Read::Ended) => return Poll::Ready(None),
                Ok(Read::Some) => {}
                Ok(Read::All) => readiness.clear_ready(),
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            }
            if !is_in_message {
                *short = decoder.take_short();
            }
        }
    }

    fn set_limit(&mut self, bytes: usize) {
        self.decoder.set_limit(bytes);
        self.is_proven = true;
    }
}

impl Drop for UnixIncoming {
    fn drop(&mut self) {
        self.link.state.lock().received_all = true;
        self.link.close();
    }
}
