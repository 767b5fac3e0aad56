//! The sending half of a link over nng.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use nng::{Aio, AioResult, Socket};
use parking_lot::Mutex;

use super::FRAME;
use crate::frame::Encoder;
use crate::seal::{Sealer, TAG};
use crate::traffic::count_sent;
use crate::{Closed, Message};

/// Sends to one peer.
///
/// nng accepts one frame while it writes another. Messages that are sent meanwhile wait in the
/// [`SendQueue`]. When nng has accepted the frame, it calls back on one of its threads, and the
/// callback sends the next frame.
#[derive(Debug)]
pub(super) struct Outbox {
    queue: Arc<SendQueue>,
    socket: Socket,
    /// nng deadlocks if an `Aio` is dropped in its own callback. The callback has a reference, so
    /// this one is dropped only after the callback has returned: see `drop`.
    aio: Aio,
}

/// Messages that wait to be sent.
#[derive(Debug)]
pub(super) struct SendQueue {
    state: Mutex<SendState>,
    /// Used by the thread that takes frames out: see `SendState::sending`.
    sealer: Mutex<Sealer>,
}

#[derive(Debug, Default)]
struct SendState {
    waiting: Encoder,
    /// Chunks that were taken out of `waiting` and are next.
    next: VecDeque<Bytes>,
    /// Whether a frame is being sent. The thread that completes it sends the next one.
    sending: bool,
    closed: bool,
}

impl Outbox {
    pub(super) fn new(socket: &Socket, queue: Arc<SendQueue>) -> nng::Result<Outbox> {
        let aio = Aio::new({
            let (queue, socket) = (Arc::clone(&queue), socket.clone());
            move |aio, result| match result {
                AioResult::Send(Ok(())) => {
                    if let Some(frame) = queue.next_frame() {
                        queue.start(&socket, &aio, frame);
                    }
                }
                _ => queue.close(),
            }
        })?;
        Ok(Outbox { queue, socket: socket.clone(), aio })
    }

    /// Sends a message, or queues it behind the ones that are being sent.
    pub(super) fn send(&self, message: Message) -> Result<(), Closed> {
        // The connection is also the original's, and so is the number of the next frame.
        fiber_core::forks::check().map_err(|_| Closed)?;
        {
            let mut state = self.queue.state.lock();
            if state.closed {
                return Err(Closed);
            }
            state.waiting.push(message);
            if std::mem::replace(&mut state.sending, true) {
                return Ok(());
            }
        }
        // While nng is idle, it accepts a frame at once on this thread, without a callback.
        while let Some(frame) = self.queue.next_frame() {
            match self.socket.try_send(frame) {
                Ok(()) => {}
                Err((frame, nng::Error::TryAgain)) => {
                    self.queue.start(&self.socket, &self.aio, frame);
                    break;
                }
                Err(_) => self.queue.close(),
            }
        }
        Ok(())
    }

    /// Drops waiting messages and closes the socket, which the peer sees.
    pub(super) fn close(&self) {
        self.queue.close();
        self.socket.close();
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.close();
        // Closing the socket ended the operation in progress. After its callback has returned,
        // this is the last reference.
        self.aio.wait();
    }
}

impl SendQueue {
    pub(super) fn new(sealer: Sealer) -> SendQueue {
        SendQueue { state: Mutex::default(), sealer: Mutex::new(sealer) }
    }

    /// Drops waiting messages and accepts no more.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let waiting = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.next));
        drop(state);
        drop(waiting);
    }

    /// Gives a frame to nng, which calls back on another thread when it has accepted it.
    ///
    /// Holds the lock meanwhile: a socket that is closed ends the operations in it, but keeps one
    /// that starts at that moment for ever. So none starts after `close` has taken the lock.
    fn start(&self, socket: &Socket, aio: &Aio, frame: nng::Message) {
        let state = self.state.lock();
        if !state.closed && socket.send_async(aio, frame).is_err() {
            drop(state);
            self.close();
        }
    }

    /// Returns the next frame, sealed; `None` when no messages wait, and from then on no frame is
    /// being sent.
    fn next_frame(&self) -> Option<nng::Message> {
        let mut state = self.state.lock();
        if state.next.is_empty() {
            state.next = state.waiting.take().into_iter().map(|chunk| chunk.bytes).collect();
        }
        let mut pieces = Vec::new();
        let mut length = 0;
        while length < FRAME
            && let Some(first) = state.next.front_mut()
        {
            let room = FRAME - length;
            length += first.len().min(room);
            if first.len() <= room {
                pieces.extend(state.next.pop_front());
            } else {
                pieces.push(first.split_to(room));
            }
        }
        state.sending = !pieces.is_empty();
        drop(state);
        if pieces.is_empty() {
            return None;
        }
        let mut frame = nng::Message::with_capacity(length + TAG);
        pieces.iter().for_each(|piece| frame.push_back(piece.chunk()));
        let tag = self.sealer.lock().seal(&mut frame);
        frame.push_back(&tag);
        count_sent(frame.len());
        Some(frame)
    }
}
