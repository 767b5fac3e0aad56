//! The unsafe code of links over Unix sockets.

#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use bytes::BytesMut;
use fiber_values::blob::Mapping;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::traffic::count_received;

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

/// Appends received bytes to the buffer, as far as it has room, and a received descriptor to
/// `files`: `None` if this process has no room for it.
pub(super) fn read(
    stream: &UnixStream,
    buffer: &mut BytesMut,
    files: &mut VecDeque<Option<OwnedFd>>,
) -> rustix::io::Result<Read> {
    let length = buffer.len();
    let room = buffer.spare_capacity_mut();
    let size = room.len();
    let room = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: size };
    // SAFETY: `IoSliceMut` has the layout of `iovec`. No reference to the bytes, which have no value
    // yet, is made from it: `recvmsg` passes the slice to the kernel, which only writes to them.
    let mut room = [unsafe { mem::transmute::<libc::iovec, IoSliceMut<'_>>(room) }];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let receive = || recvmsg(stream, &mut room, &mut control, RecvFlags::CMSG_CLOEXEC);
    let received = match retry_on_intr(receive) {
        Ok(received) => received,
        Err(Errno::WOULDBLOCK) => return Ok(Read::All),
        Err(error) => return Err(error),
    };
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let comes_with_more = file.is_some() || received.flags.contains(ReturnFlags::CTRUNC);
    if comes_with_more {
        files.push_back(file);
    }
    let count = received.bytes;
    count_received(count);
    // SAFETY: the kernel has written so many bytes to the beginning of the buffer's spare room.
    unsafe { buffer.set_len(length + count) };
    Ok(match count {
        0 => Read::Ended,
        // A stream gives as much as it has, up to the next descriptor.
        _ if count < size && !comes_with_more => Read::All,
        _ => Read::Some,
    })
}

/// Sends bytes, and the descriptor of a mapping with the first of them. Returns how many were sent.
pub(super) fn send(
    stream: &impl AsFd,
    bytes: &[IoSlice<'_>],
    file: Option<&Arc<Mapping>>,
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|mapping| [mapping.file().as_fd()]);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    // A peer that is gone causes an error instead of SIGPIPE.
    sendmsg(stream, bytes, &mut control, SendFlags::NOSIGNAL)
}
