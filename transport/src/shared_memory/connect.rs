//! Connecting the two sides of a stream.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fiber_core::{SessionKey, random, shortage};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream as AsyncStream};
use tokio::time::{Instant, sleep};

use super::memory::{self, Memory};
use super::positions::Side;
use super::{Reader, Writer, side};
use crate::PendingPeers;
use crate::peer::own_peer;

/// The time limit of a writer for each step of the listener.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a listener waits for descriptors, and the pause before it tries again. A writer waits
/// for longer, so that the listener reports the shortage first.
const SHORTAGE_TIMEOUT: Duration = Duration::from_secs(5);
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);
/// The limit of a greeting in bytes.
const MAX_GREETING: usize = 255;

/// A writer's greeting, and the stream from it.
type Accepted = (Vec<u8>, Reader);

/// Waits for writers. Several may connect at the same time, so one that says nothing delays no
/// other.
pub struct StreamListener {
    name: String,
    socket: UnixListener,
    handshakes: PendingPeers<io::Result<Accepted>>,
}

impl StreamListener {
    /// Listens at a new random name. Call it, and [`accept`](StreamListener::accept), in a task of
    /// a `LocalSet`, on a runtime with timers.
    ///
    /// # Errors
    /// The system's error.
    pub fn bind() -> io::Result<StreamListener> {
        let name = format!("fiber-{:032x}", u128::from_le_bytes(random()));
        let socket = StdListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        socket.set_nonblocking(true)?;
        let socket = UnixListener::from_std(socket)?;
        Ok(StreamListener { name, socket, handshakes: PendingPeers::default() })
    }

    /// Returns the address for [`open_stream`].
    pub fn address(&self) -> &str {
        &self.name
    }

    /// Waits until a writer that holds the key connects, and returns its greeting. Rejects others.
    ///
    /// # Errors
    /// The system's error, if it lasts for 5 s. The caller may try again.
    pub async fn accept(&mut self, key: &SessionKey) -> io::Result<(Vec<u8>, Reader)> {
        let mut failing_since = None;
        loop {
            match poll_fn(|context| self.poll_accept(key, context)).await {
                Ok(outcome) => return outcome,
                Err(error) => {
                    let since: &mut Instant = failing_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= SHORTAGE_TIMEOUT {
                        return Err(error);
                    }
                    sleep(SHORTAGE_PAUSE).await;
                }
            }
        }
    }

    /// Returns the outcome of a handshake: a writer, or a shortage that cost its stream. Fails if
    /// no connection can be accepted for now.
    fn poll_accept(
        &mut self,
        key: &SessionKey,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<io::Result<Accepted>>> {
        loop {
            while let Poll::Ready(outcome) = self.handshakes.poll_done(context) {
                match outcome {
                    Err(error) if !shortage::is_shortage(&error) => {
                        self.handshakes.log_rejected(&error.to_string());
                    }
                    outcome => return Poll::Ready(Ok(outcome)),
                }
            }
            ready!(self.handshakes.poll_room(context));
            let (socket, _) = ready!(self.socket.poll_accept(context))?;
            let key = key.clone();
            self.handshakes.add(async move { receive(socket, &key).await });
        }
    }
}

impl fmt::Debug for StreamListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamListener").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Opens a stream to the listener at `address`, with a ring buffer of `capacity` bytes, a power of
/// two. The greeting of up to 255 bytes identifies the writer.
///
/// # Errors
/// The system's error; [`io::ErrorKind::PermissionDenied`] if the listener does not hold the key.
pub fn open_stream(
    address: &str,
    key: &SessionKey,
    greeting: &[u8],
    capacity: usize,
) -> io::Result<Writer> {
    assert!(greeting.len() <= MAX_GREETING, "a greeting has up to {MAX_GREETING} bytes");
    let mut socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(address)?)?;
    own_peer(&socket)?;
    socket.set_read_timeout(Some(STEP_TIMEOUT))?;
    let own: [u8; 32] = random();
    socket.write_all(&own)?;
    let (mut theirs, mut proof) = ([0; 32], [0; 32]);
    socket.read_exact(&mut theirs).map_err(no_answer)?;
    socket.read_exact(&mut proof).map_err(no_answer)?;
    if !key.proves("stream", &[&own, &theirs], &proof) {
        return Err(no_proof());
    }
    let file = memory::create(capacity)?;
    let memory = Memory::map(&file)?;
    let mut response = vec![greeting.len() as u8];
    response.extend_from_slice(greeting);
    response.extend_from_slice(&key.proof("writer", &[&theirs, &own, greeting]));
    send_with(&socket, &response, file)?;
    Ok(Writer(side(memory, socket, Side::Writer)?))
}

/// Names a time-out. The system reports it as it reports a lack of processes.
fn no_answer(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no answer within {STEP_TIMEOUT:?}: it may be short of files"),
        ),
        _ => error,
    }
}

async fn receive(mut socket: AsyncStream, key: &SessionKey) -> io::Result<Accepted> {
    own_peer(&socket)?;
    let mut theirs = [0; 32];
    socket.read_exact(&mut theirs).await?;
    let own: [u8; 32] = random();
    let proof = key.proof("stream", &[&theirs, &own]);
    socket.write_all(&[own, proof].concat()).await?;
    let file = receive_file(&socket).await?;
    let length = socket.read_u8().await?;
    let mut greeting = vec![0; length.into()];
    let mut proof = [0; 32];
    socket.read_exact(&mut greeting).await?;
    socket.read_exact(&mut proof).await?;
    if !key.proves("writer", &[&own, &theirs, &greeting], &proof) {
        return Err(no_proof());
    }
    let memory = Memory::map(&file)?;
    Ok((greeting, Reader(side(memory, socket.into_std()?, Side::Reader)?)))
}

fn no_proof() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "the other side does not hold this session's key",
    )
}

fn send_with(mut socket: &UnixStream, bytes: &[u8], file: OwnedFd) -> io::Result<()> {
    let files = [rustix::fd::AsFd::as_fd(&file)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    let sent =
        rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    socket.write_all(&bytes[sent..])
}

/// Receives the file descriptor that comes with the next byte. Leaves the byte, and while there is
/// no free descriptor also the file, in the socket.
async fn receive_file(socket: &AsyncStream) -> io::Result<OwnedFd> {
    let began = Instant::now();
    loop {
        let peeked = socket.async_io(Interest::READABLE, || peek_file(socket)).await;
        match peeked {
            Err(error) if shortage::is_shortage(&error) && began.elapsed() < SHORTAGE_TIMEOUT => {
                sleep(SHORTAGE_PAUSE).await;
            }
            peeked => return peeked,
        }
    }
}

fn peek_file(socket: &AsyncStream) -> io::Result<OwnedFd> {
    let mut first = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut first)], &mut control, flags)?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    match file {
        Some(file) => Ok(file),
        // The system had no descriptor for it.
        None if received.flags.contains(ReturnFlags::CTRUNC) => Err(Errno::MFILE.into()),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "the peer sent no memory")),
    }
}
