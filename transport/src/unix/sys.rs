//! The unsafe code of links over Unix sockets.

#![allow(unsafe_code)]

use std::io;
use std::os::unix::net::UnixStream;

use bytes::BytesMut;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a socket with the runtime.
pub(super) fn watch(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    // SAFETY: the stream is moved there, and keeps its one descriptor open until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(stream, interest) }?)
}

/// The result of a read.
pub(super) enum Read {
    Some,
    /// The socket is empty for now.
    All,
    Ended,
}

/// Appends received bytes to the buffer, as far as it has room.
pub(super) fn read(stream: &UnixStream, buffer: &mut BytesMut) -> rustix::io::Result<Read> {
    let length = buffer.len();
    let room = buffer.spare_capacity_mut();
    let size = room.len();
    let count = match retry_on_intr(|| {
        recv(stream, &mut *room, RecvFlags::empty()).map(|(_, count)| count)
    }) {
        Ok(count) => count,
        Err(Errno::WOULDBLOCK) => return Ok(Read::All),
        Err(error) => return Err(error),
    };
    // SAFETY: the kernel has written so many bytes to the beginning of the buffer's spare room.
    unsafe { buffer.set_len(length + count) };
    Ok(match count {
        0 => Read::Ended,
        // A stream gives as much as it has.
        _ if count < size => Read::All,
        _ => Read::Some,
    })
}
