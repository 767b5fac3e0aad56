//! Streams of bytes through shared memory, from one process of a host to another.
//!
//! A stream has one [`Writer`] and one [`Reader`], each used by one thread, which reads and writes
//! the memory itself: nothing is handed over, and what arrives is read where it lies. Beside the
//! memory there is a Unix socket. Through it the memory comes to the reader, it wakes a side that
//! sleeps, and its end is the end of the other process.
//!
//! Both sides prove that they hold the session's key before any memory is shared:
//!
//! ```text
//! writer → nonce
//! reader → nonce, proof               proof: key, "stream", writer's nonce, reader's nonce
//! writer → greeting, proof, memory    proof: key, "writer", reader's nonce, writer's nonce, greeting
//! ```

mod connect;
mod memory;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{RecvFlags, SendFlags};

pub use self::connect::{StreamListener, open_stream};
use self::memory::{Memory, Side};

/// Puts bytes into a stream.
pub struct Writer(End);

/// Takes bytes out of a stream.
pub struct Reader(End);

/// One side of a stream.
struct End {
    memory: Memory,
    socket: UnixStream,
    /// Bytes that this side has put in, or taken out, since the beginning.
    position: u64,
    side: Side,
}

/// What a side that wants to sleep finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// There is something to do after all.
    Ready,
    /// The other side will wake this one through its descriptor.
    Asleep,
}

/// The other process has ended, or closed the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other process closed the stream")]
pub struct StreamClosed;

impl Writer {
    /// Puts in as many of `bytes` as there is room for, and says how many.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.len().min(self.room());
        if length > 0 {
            self.0.memory.fill(self.0.position, &bytes[..length]);
            self.0.advance(length);
        }
        length
    }

    /// Bytes that there is room for.
    pub fn room(&self) -> usize {
        self.0.memory.capacity() - self.0.memory.filled(Side::Writer, self.0.position)
    }

    /// Has the reader wake this side when there is room.
    pub fn arm(&self) -> Armed {
        self.0.arm(|| self.room() > 0)
    }

    /// Takes notice of having been woken.
    ///
    /// # Errors
    /// [`StreamClosed`]: the reader is gone.
    pub fn woken(&self) -> Result<(), StreamClosed> {
        self.0.woken()
    }
}

impl Reader {
    /// What can be taken out now, as far as it lies in one piece.
    pub fn peek(&self) -> &[u8] {
        self.0.memory.piece(self.0.position, self.available())
    }

    /// Takes out bytes that [`peek`](Reader::peek) has shown.
    pub fn consume(&mut self, length: usize) {
        assert!(length <= self.available(), "no more is taken out than there is");
        self.0.advance(length);
    }

    fn available(&self) -> usize {
        self.0.memory.filled(Side::Reader, self.0.position)
    }

    /// Has the writer wake this side when there is something to read.
    pub fn arm(&self) -> Armed {
        self.0.arm(|| self.available() > 0)
    }

    /// Takes notice of having been woken.
    ///
    /// # Errors
    /// [`StreamClosed`]: the writer is gone. What it has put in before can still be read.
    pub fn woken(&self) -> Result<(), StreamClosed> {
        self.0.woken()
    }
}

impl End {
    fn advance(&mut self, length: usize) {
        self.position += length as u64;
        if self.memory.publish(self.side, self.position) {
            // If the other side is gone, that is seen where this one waits.
            let _ =
                rustix::net::send(&self.socket, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    fn arm(&self, ready: impl Fn() -> bool) -> Armed {
        self.memory.set_asleep(self.side);
        if ready() {
            self.memory.set_awake(self.side);
            return Armed::Ready;
        }
        Armed::Asleep
    }

    fn woken(&self) -> Result<(), StreamClosed> {
        let mut bell = [0; 64];
        self.memory.set_awake(self.side);
        match rustix::net::recv(&self.socket, &mut bell, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(StreamClosed),
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(()),
            Err(_) => Err(StreamClosed),
        }
    }
}

/// What becomes readable when this side is woken, or the other one ends.
impl AsFd for Writer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket.as_fd()
    }
}

/// What becomes readable when this side is woken, or the other one ends.
impl AsFd for Reader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket.as_fd()
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("position", &self.0.position).finish_non_exhaustive()
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("position", &self.0.position).finish_non_exhaustive()
    }
}

fn end(memory: Memory, socket: UnixStream, side: Side) -> io::Result<End> {
    socket.set_read_timeout(None)?;
    Ok(End { memory, socket, position: 0, side })
}

#[cfg(test)]
mod tests;
