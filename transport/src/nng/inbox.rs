//! The receiving half.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use nng::{Aio, AioResult, Socket};
use parking_lot::Mutex;
use tokio::task::coop::poll_proceed;

use crate::UNPROVEN_LIMIT;
use crate::frame::Decoder;
use crate::seal::{Opener, TAG};

/// Bytes that may wait to be polled. When more do, nng is asked for nothing; the kernel's buffers
/// fill, and the peer's sends wait.
const MAX_WAITING: usize = 256 << 10;
/// What a frame takes beside its bytes.
const FRAME_OVERHEAD: usize = 256;

/// Receives from one peer.
#[derive(Debug)]
pub(super) struct Inbox {
    queue: Arc<Queue>,
    socket: Socket,
    /// See [`super::outbox::Outbox`].
    aio: Aio,
    opener: Opener,
    frame: Bytes,
    decoder: Decoder,
}

/// What came and was not polled.
#[derive(Debug, Default)]
pub(super) struct Queue(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<nng::Message>,
    waiting: usize,
    /// Whether nng was asked for the next frame.
    asked: bool,
    /// The connection is gone. The answer to what nng was asked may still be on its way here.
    gone: bool,
    /// Nothing more comes.
    ended: bool,
    reader: Option<Waker>,
}

impl Inbox {
    pub(super) fn new(socket: &Socket, queue: Arc<Queue>, opener: Opener) -> nng::Result<Inbox> {
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
        inbox.queue.0.lock().ask(&inbox.socket, &inbox.aio);
        Ok(inbox)
    }

    /// See [`crate::Incoming::poll_next`].
    pub(super) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        // A peer that sends without end does not hold the thread.
        let progress = ready!(poll_proceed(context));
        loop {
            match self.decoder.next_message_in(&mut self.frame) {
                Ok(None) => {}
                Ok(Some(message)) => {
                    progress.made_progress();
                    return Poll::Ready(Some(Ok(message)));
                }
                Err(error) => return Poll::Ready(Some(Err(invalid(error)))),
            }
            match ready!(self.poll_frame(context)) {
                Some(mut frame) => {
                    self.opener.open(&mut frame).map_err(invalid)?;
                    frame.truncate(frame.len() - TAG);
                    self.frame = Bytes::from_owner(Owned(frame));
                }
                None if self.decoder.is_in_message() => {
                    return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
                }
                None => return Poll::Ready(None),
            }
        }
    }

    fn poll_frame(&self, context: &mut Context<'_>) -> Poll<Option<nng::Message>> {
        let mut state = self.queue.0.lock();
        match state.frames.pop_front() {
            Some(frame) => {
                state.waiting -= frame.len() + FRAME_OVERHEAD;
                state.ask(&self.socket, &self.aio);
                Poll::Ready(Some(frame))
            }
            None if state.ended => Poll::Ready(None),
            None => {
                state.reader = Some(context.waker().clone());
                let (gone, asked) = (state.gone, state.asked);
                drop(state);
                // The answer says whether a last frame came; from nothing comes none.
                if gone && asked {
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

impl Queue {
    fn push(&self, frame: nng::Message, socket: &Socket, aio: &Aio) {
        let mut state = self.0.lock();
        state.asked = false;
        state.waiting += frame.len() + FRAME_OVERHEAD;
        state.frames.push_back(frame);
        state.ask(socket, aio);
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    /// The connection is gone: nothing more comes but what nng has taken from it.
    pub(super) fn leave(&self) {
        let mut state = self.0.lock();
        state.gone = true;
        state.ended |= !state.asked;
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Nothing more comes.
    fn end(&self) {
        let mut state = self.0.lock();
        state.asked = false;
        state.ended = true;
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Drops what came, and takes nothing more.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.ended = true;
        let (frames, reader) = (std::mem::take(&mut state.frames), state.reader.take());
        drop(state);
        drop(frames);
        reader.into_iter().for_each(Waker::wake);
    }
}

impl State {
    /// Asks nng for the next frame if there is room for it.
    ///
    /// The lock is held meanwhile, for the reason that sending has: see `Queue::start` of the
    /// outbox.
    fn ask(&mut self, socket: &Socket, aio: &Aio) {
        if self.asked || self.ended || self.waiting >= MAX_WAITING {
            return;
        }
        self.asked = !self.gone && socket.recv_async(aio).is_ok();
        self.ended = !self.asked;
    }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

struct Owned(nng::Message);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
