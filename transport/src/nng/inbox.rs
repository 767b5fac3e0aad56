//! The receiving half of a link over nng.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use fiber_values::blob::Blob;
use nng::{Aio, AioResult, Socket};
use parking_lot::Mutex;
use tokio::task::coop::poll_proceed;

use crate::blob_frame::{BlobFrame, SentBlob};
use crate::frame::{Decoder, Frame};
use crate::seal::{Opener, TAG};
use crate::traffic::count_received;
use crate::{Received, UNPROVEN_LIMIT};

/// The limit of received bytes that wait to be polled. Above it, fiber takes no more frames from
/// nng; then the kernel's buffers fill, and the peer's sends wait.
const MAX_WAITING: usize = 256 << 10;
const LENT: &str = "the peer lent a blob, which it can do over Unix sockets only";
/// The memory of a frame in addition to its bytes.
const FRAME_OVERHEAD: usize = 256;

/// Receives from one peer.
#[derive(Debug)]
pub(super) struct Inbox {
    queue: Arc<ReceiveQueue>,
    socket: Socket,
    /// See [`super::outbox::Outbox`].
    aio: Aio,
    opener: Opener,
    frame: Bytes,
    decoder: Decoder,
}

/// Frames that nng has delivered and that were not polled yet.
#[derive(Debug, Default)]
pub(super) struct ReceiveQueue(Mutex<ReceiveState>);

#[derive(Debug, Default)]
struct ReceiveState {
    frames: VecDeque<nng::Message>,
    waiting: usize,
    /// Whether a receive operation of nng is in progress.
    receiving: bool,
    /// The connection is gone. The operation in progress may still deliver a last frame.
    disconnected: bool,
    /// No more frames come.
    ended: bool,
    reader: Option<Waker>,
}

impl Inbox {
    pub(super) fn new(
        socket: &Socket,
        queue: Arc<ReceiveQueue>,
        opener: Opener,
    ) -> nng::Result<Inbox> {
        let aio = Aio::new({
            let (queue, socket) = (Arc::clone(&queue), socket.clone());
            move |aio, result| match result {
                AioResult::Recv(Ok(frame)) => queue.push(frame, &socket, &aio),
                _ => queue.end(),
            }
        })?;
        let decoder = Decoder::new(UNPROVEN_LIMIT);
        let inbox =
            Inbox { queue, socket: socket.clone(), aio, opener, frame: Bytes::new(), decoder };
        inbox.queue.0.lock().receive(&inbox.socket, &inbox.aio);
        Ok(inbox)
    }

    /// See [`crate::Incoming::poll_next`].
    pub(super) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Received>>> {
        // A peer that sends without end does not keep the thread from other tasks.
        let progress = ready!(poll_proceed(context));
        loop {
            match self.decoder.next_frame_in(&mut self.frame) {
                Ok(None) => {}
                Ok(Some(frame)) => {
                    progress.made_progress();
                    return Poll::Ready(Some(self.received(frame)));
                }
                Err(error) => return Poll::Ready(Some(Err(invalid(error)))),
            }
            match ready!(self.poll_frame(context)) {
                Some(mut frame) => {
                    self.opener.open(&mut frame).map_err(invalid)?;
                    frame.truncate(frame.len() - TAG);
                    self.frame = Bytes::from_owner(FrameBytes(frame));
                }
                None if self.decoder.is_in_message() => {
                    return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
                }
                None => return Poll::Ready(None),
            }
        }
    }

    fn received(&self, frame: Frame) -> io::Result<Received> {
        let (blobs, bytes) = match frame {
            Frame::Message(bytes) => return Ok(bytes.into()),
            Frame::Extended(frame) => match BlobFrame::read(frame)? {
                BlobFrame::Message { blobs, bytes } => (blobs, bytes),
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, LENT)),
            },
        };
        let private = |blob| match blob {
            SentBlob::Inline(bytes) => Ok(Blob::private(bytes)),
            SentBlob::Shared(_) => Err(io::Error::new(io::ErrorKind::InvalidData, LENT)),
        };
        let blobs: Vec<_> = blobs.into_iter().map(private).collect::<io::Result<_>>()?;
        Ok(Received { bytes, blobs: blobs.into() })
    }

    fn poll_frame(&self, context: &mut Context<'_>) -> Poll<Option<nng::Message>> {
        let mut state = self.queue.0.lock();
        match state.frames.pop_front() {
            Some(frame) => {
                state.waiting -= frame.len() + FRAME_OVERHEAD;
                count_received(frame.len());
                state.receive(&self.socket, &self.aio);
                Poll::Ready(Some(frame))
            }
            None if state.ended => Poll::Ready(None),
            None => {
                state.reader = Some(context.waker().clone());
                let (disconnected, receiving) = (state.disconnected, state.receiving);
                drop(state);
                // The cancelled operation still delivers a last frame if there is one.
                if disconnected && receiving {
                    self.aio.cancel();
                }
                Poll::Pending
            }
        }
    }

    /// See [`crate::Incoming::set_limit`].
    pub(super) fn set_limit(&mut self, bytes: usize) {
        self.decoder.set_limit(bytes);
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.queue.close();
        self.socket.close();
        self.aio.wait();
    }
}

impl ReceiveQueue {
    fn push(&self, frame: nng::Message, socket: &Socket, aio: &Aio) {
        let mut state = self.0.lock();
        state.receiving = false;
        state.waiting += frame.len() + FRAME_OVERHEAD;
        state.frames.push_back(frame);
        state.receive(socket, aio);
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Notes that the connection is gone. Only the operation in progress may deliver a frame.
    pub(super) fn disconnect(&self) {
        let mut state = self.0.lock();
        state.disconnected = true;
        state.ended |= !state.receiving;
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Ends the queue after the frames in it.
    fn end(&self) {
        let mut state = self.0.lock();
        state.receiving = false;
        state.ended = true;
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Drops all frames and ends the queue.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.ended = true;
        let (frames, reader) = (std::mem::take(&mut state.frames), state.reader.take());
        drop(state);
        drop(frames);
        reader.into_iter().for_each(Waker::wake);
    }
}

impl ReceiveState {
    /// Starts to receive the next frame if there is room for it.
    ///
    /// The caller holds the lock, for the same reason as `SendQueue::start` does.
    fn receive(&mut self, socket: &Socket, aio: &Aio) {
        if self.receiving || self.ended || self.waiting >= MAX_WAITING {
            return;
        }
        self.receiving = !self.disconnected && socket.recv_async(aio).is_ok();
        self.ended = !self.receiving;
    }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A frame as the owner of bytes.
struct FrameBytes(nng::Message);

impl AsRef<[u8]> for FrameBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
