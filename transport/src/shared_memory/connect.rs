//! Connecting the two sides of a stream.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use fiber_core::{SessionKey, random};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use super::memory::{self, Memory, Side};
use super::{Reader, Writer, side};

/// The time limit for each step of the other side.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// The limit of a greeting in bytes.
const MAX_GREETING: usize = 255;

/// Waits for writers.
#[derive(Debug)]
pub struct StreamListener {
    name: String,
    socket: UnixListener,
}

impl StreamListener {
    /// Listens at a new random name.
    ///
    /// # Errors
    /// The system's error.
    pub fn bind() -> io::Result<StreamListener> {
        let name = format!("fiber-{:032x}", u128::from_le_bytes(random()));
        let socket = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        Ok(StreamListener { name, socket })
    }

    /// Returns the address for [`open_stream`].
    pub fn address(&self) -> &str {
        &self.name
    }

    /// Blocks until a writer that holds the key connects, and returns its greeting. Rejects others.
    ///
    /// # Errors
    /// The system's error. The caller may try again.
    pub fn accept(&self, key: &SessionKey) -> io::Result<(Vec<u8>, Reader)> {
        loop {
            let (socket, _) = self.socket.accept()?;
            match receive(socket, key) {
                Ok(connected) => return Ok(connected),
                Err(error) => tracing::warn!("rejected a writer: {error}"),
            }
        }
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
    check_user(&socket)?;
    socket.set_read_timeout(Some(STEP_TIMEOUT))?;
    let own: [u8; 32] = random();
    socket.write_all(&own)?;
    let (mut theirs, mut proof) = ([0; 32], [0; 32]);
    socket.read_exact(&mut theirs)?;
    socket.read_exact(&mut proof)?;
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

fn receive(mut socket: UnixStream, key: &SessionKey) -> io::Result<(Vec<u8>, Reader)> {
    check_user(&socket)?;
    socket.set_read_timeout(Some(STEP_TIMEOUT))?;
    let mut theirs = [0; 32];
    socket.read_exact(&mut theirs)?;
    let own: [u8; 32] = random();
    let proof = key.proof("stream", &[&theirs, &own]);
    socket.write_all(&[own, proof].concat())?;
    let (length, file) = receive_with(&socket)?;
    let mut greeting = vec![0; length.into()];
    let mut proof = [0; 32];
    socket.read_exact(&mut greeting)?;
    socket.read_exact(&mut proof)?;
    if !key.proves("writer", &[&own, &theirs, &greeting], &proof) {
        return Err(no_proof());
    }
    let memory = Memory::map(&file)?;
    Ok((greeting, Reader(side(memory, socket, Side::Reader)?)))
}

/// Checks the peer's user, because names in the abstract namespace have no permissions.
fn check_user(socket: &UnixStream) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?.uid;
    let own = rustix::process::geteuid();
    if peer == own {
        return Ok(());
    }
    let problem = format!(
        "the other end of the socket runs as user {}, this process as {}",
        peer.as_raw(),
        own.as_raw()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
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

/// Receives the first byte and the file descriptor that comes with it.
fn receive_with(socket: &UnixStream) -> io::Result<(u8, OwnedFd)> {
    let mut first = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut first)], &mut control, flags)?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    match file {
        Some(file) if received.bytes == 1 => Ok((first[0], file)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the peer sent no memory")),
    }
}
