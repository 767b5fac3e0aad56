//! Streams of bytes through shared memory, from one process of a host to another.
//!
//! A stream has one [`Writer`] and one [`Reader`]. Each is used by one thread, which accesses the
//! memory directly, so the reader reads bytes where the writer put them. A Unix socket next to the
//! memory has three uses: it carries the memory's descriptor to the reader, it wakes a side that
//! sleeps, and its end of file reports the end of the other process.
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
mod positions;

/// A model test replaces it.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{RecvFlags, SendFlags};

pub use self::connect::{StreamListener, open_stream};
use self::memory::Memory;
use self::positions::Side;

/// The writing side of a stream.
pub struct Writer(StreamSide);

/// The reading side of a stream.
pub struct Reader(StreamSide);

/// One side of a stream.
struct StreamSide {
    memory: Memory,
    socket: UnixStream,
    /// The number of bytes that this side has written or read since the start.
    position: u64,
    side: Side,
}

/// The result of preparing to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// There are bytes to read, or there is room to write: do not sleep.
    Ready,
    /// The other side will wake this one through the descriptor.
    Asleep,
}

/// The error of a stream whose other process has ended or closed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamClosed;

impl fmt::Display for StreamClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other process closed the stream")
    }
}

impl std::error::Error for StreamClosed {}

impl Writer {
    /// Writes as many of `bytes` as there is room for, and returns how many.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.len().min(self.room());
        if length > 0 {
            self.0.memory.fill(self.0.position, &bytes[..length]);
            self.0.advance(length);
        }
        length
    }

    /// Returns the number of bytes that there is room for.
    pub fn room(&self) -> usize {
        self.0.memory.capacity() - self.0.filled()
    }

    /// Asks the reader to wake this side when there is room.
    pub fn arm(&self) -> Armed {
        self.0.arm(|| self.room() > 0)
    }

    /// Clears the wake-up that made the descriptor readable.
    ///
    /// # Errors
    /// [`StreamClosed`] if the reader is gone.
    pub fn woken(&self) -> Result<(), StreamClosed> {
        self.0.woken()
    }
}

impl Reader {
    /// Returns the available bytes, up to the end of the ring buffer.
    pub fn peek(&self) -> &[u8] {
        self.0.memory.piece(self.0.position, self.available())
    }

    /// Removes bytes that [`peek`](Reader::peek) has returned.
    pub fn consume(&mut self, length: usize) {
        assert!(length <= self.available(), "a reader consumes available bytes only");
        self.0.advance(length);
    }

    fn available(&self) -> usize {
        self.0.filled()
    }

    /// Asks the writer to wake this side when there are bytes to read.
    pub fn arm(&self) -> Armed {
        self.0.arm(|| self.available() > 0)
    }

    /// Clears the wake-up that made the descriptor readable.
    ///
    /// # Errors
    /// [`StreamClosed`] if the writer is gone. Bytes that it wrote before can still be read.
    pub fn woken(&self) -> Result<(), StreamClosed> {
        self.0.woken()
    }
}

impl StreamSide {
    /// Returns the number of bytes that are in the ring buffer.
    fn filled(&self) -> usize {
        self.memory.positions().filled(self.side, self.position, self.memory.capacity())
    }

    fn advance(&mut self, length: usize) {
        self.position += length as u64;
        let capacity = self.memory.capacity();
        if self.memory.positions().publish(self.side, self.position, capacity) {
            // If the other side is gone, `woken` reports it.
            let _ =
                rustix::net::send(&self.socket, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }

    fn arm(&self, ready: impl Fn() -> bool) -> Armed {
        self.memory.positions().set_asleep(self.side);
        if ready() {
            self.memory.positions().set_awake(self.side);
            return Armed::Ready;
        }
        Armed::Asleep
    }

    fn woken(&self) -> Result<(), StreamClosed> {
        let mut wakeups = [0; 64];
        self.memory.positions().set_awake(self.side);
        match rustix::net::recv(&self.socket, &mut wakeups, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Err(StreamClosed),
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(()),
            Err(_) => Err(StreamClosed),
        }
    }
}

/// The descriptor becomes readable when this side is woken, or the other process ends.
impl AsFd for Writer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket.as_fd()
    }
}

/// The descriptor becomes readable when this side is woken, or the other process ends.
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

fn side(memory: Memory, socket: UnixStream, side: Side) -> io::Result<StreamSide> {
    socket.set_read_timeout(None)?;
    Ok(StreamSide { memory, socket, position: 0, side })
}

#[cfg(test)]
mod tests;
