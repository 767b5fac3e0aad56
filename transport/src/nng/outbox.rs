//! The sending half.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use nng::{Aio, AioResult, Socket};
use parking_lot::Mutex;

use super::FRAME;
use crate::frame::Encoder;
use crate::seal::{Sealer, TAG};
use crate::{Closed, Message};

/// Sends to one peer.
///
/// nng takes one frame while it writes another. What is sent meanwhile gathers, and leaves when nng
/// takes the first: the callback that says so sends it, on a thread of nng's.
#[derive(Debug)]
pub(super) struct Outbox {
    queue: Arc<Queue>,
    socket: Socket,
    /// nng waits for ever when an `Aio` is dropped in its own callback. The callback is handed a
    /// reference, so this one is dropped only after it has returned: see `drop`.
    aio: Aio,
}

/// What waits to be sent.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Who takes frames out, has it: see `State::sending`.
    sealer: Mutex<Sealer>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Encoder,
    /// What was taken out of `waiting` and is next.
    rest: VecDeque<Bytes>,
    /// Whether a frame is under way. Who completes it sends what waits.
    sending: bool,
    closed: bool,
}

impl Outbox {
    pub(super) fn new(socket: &Socket, queue: Arc<Queue>) -> nng::Result<Outbox> {
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

    /// Sends, or queues behind what is being sent.
    pub(super) fn send(&self, message: Message) -> Result<(), Closed> {
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
        // While nng is idle it takes a frame at once, on this thread: no callback, no other thread.
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

    /// Drops what waits, and lets the peer see the end.
    pub(super) fn close(&self) {
        self.queue.close();
        self.socket.close();
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.close();
        // The closed socket ended what was under way; when its callback has returned, ours is the
        // last reference.
        self.aio.wait();
    }
}

impl Queue {
    pub(super) fn new(sealer: Sealer) -> Queue {
        Queue { state: Mutex::default(), sealer: Mutex::new(sealer) }
    }

    /// Drops what waits, and takes nothing more.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let waiting = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.rest));
        drop(state);
        drop(waiting);
    }

    /// Leaves a frame to nng, which calls back, on another thread, when it has taken it.
    ///
    /// The lock is held meanwhile: a socket that is closed ends what waits in it, but one send that
    /// arrives just then, it keeps for ever. So none starts after `close` has the lock.
    fn start(&self, socket: &Socket, aio: &Aio, frame: nng::Message) {
        let state = self.state.lock();
        if !state.closed && socket.send_async(aio, frame).is_err() {
            drop(state);
            self.close();
        }
    }

    /// What is next to be sent, sealed; `None` when nothing waits, and from then on nothing is
    /// under way.
    fn next_frame(&self) -> Option<nng::Message> {
        let mut state = self.state.lock();
        if state.rest.is_empty() {
            state.rest = state.waiting.take();
        }
        let mut pieces = Vec::new();
        let mut length = 0;
        while length < FRAME
            && let Some(first) = state.rest.front_mut()
        {
            let room = FRAME - length;
            length += first.len().min(room);
            if first.len() <= room {
                pieces.extend(state.rest.pop_front());
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
        Some(frame)
    }
}
