//! Elements on their way from this process to the queue's owner.

use std::sync::Arc;

use fiber_core::Result;
use tokio::sync::oneshot;

use super::{Answer, Client, ClientState};
use crate::queue::encoded::{Encoded, HEAD};
use crate::queue::wire::{ADMITTED, Closing, PUT};
use fiber_runtime::mesh::{Payload, Unsent};
use fiber_runtime::objects::PortRef;

/// The largest number of frames of elements that are in flight. Elements that are put meanwhile
/// gather in the next frame.
const FRAMES: usize = 2;
/// The length of the next frame, in bytes, from which further puts wait.
const GATHERED: usize = 256 << 10;

#[derive(Default)]
pub(super) struct Sending {
    /// The next frame. It is empty if no elements are in it.
    frame: Vec<u8>,
    in_frame: u32,
    in_flight: usize,
    /// Puts that wait for room in the next frame.
    waiting_for_room: Vec<oneshot::Sender<()>>,
    flushing: Vec<oneshot::Sender<()>>,
}

impl Sending {
    fn wait_for_room(&mut self) -> oneshot::Receiver<()> {
        let (sender, room) = oneshot::channel();
        self.waiting_for_room.push(sender);
        room
    }

    fn drop_frame(&mut self, unsent: &Unsent) {
        self.frame.clear();
        if std::mem::take(&mut self.in_frame) > 0 {
            unsent.release();
        }
    }

    /// Forgets all elements, and wakes everything that waits for them.
    pub(super) fn clear(&mut self, unsent: &Unsent) {
        self.waiting_for_room.clear();
        self.flushing.clear();
        self.in_flight = 0;
        self.drop_frame(unsent);
    }
}

impl Client {
    /// Sends an element, or adds it to the next frame. Returns `Some` if that frame is too long for
    /// more elements: a promise of room.
    pub(in crate::queue) fn put(
        self: &Arc<Self>,
        element: Encoded,
    ) -> Result<Option<oneshot::Receiver<()>>> {
        let mut state = self.state.lock();
        self.check_state(&state)?;
        if element.is_long() {
            self.send_frame(&mut state);
            let (mut frame, blobs) = element.into_frame();
            let mut head = self.queue.payload();
            head.push(PUT);
            head.extend_from_slice(&1_u32.to_le_bytes());
            frame[..HEAD].copy_from_slice(&head);
            self.send_elements(&mut state, Payload::whole(frame, blobs));
            let sending = &mut state.sending;
            return Ok((sending.in_flight > FRAMES).then(|| sending.wait_for_room()));
        }
        let sending = &mut state.sending;
        if sending.in_frame == 0 {
            self.queue.begin(&mut sending.frame);
            sending.frame.push(PUT);
            sending.frame.extend_from_slice(&[0; 4]);
            self.unsent().hold();
        }
        sending.frame.extend_from_slice(element.as_block());
        sending.in_frame += 1;
        element.recycle();
        if sending.in_flight < FRAMES {
            self.send_frame(&mut state);
        }
        let sending = &mut state.sending;
        Ok((sending.frame.len() > GATHERED).then(|| sending.wait_for_room()))
    }

    /// Sends the next frame, if elements are in it.
    pub(super) fn send_frame(self: &Arc<Self>, state: &mut ClientState) {
        let sending = &mut state.sending;
        if sending.in_frame == 0 {
            return;
        }
        let next = Vec::with_capacity(sending.frame.len().min(GATHERED));
        let mut frame = std::mem::replace(&mut sending.frame, next);
        let count = PortRef::HEAD + 1;
        frame[count..count + 4].copy_from_slice(&sending.in_frame.to_le_bytes());
        sending.in_frame = 0;
        self.unsent().release();
        self.send_elements(state, frame.into());
    }

    fn send_elements(self: &Arc<Self>, state: &mut ClientState, frame: Payload) {
        state.sending.in_flight += 1;
        let client = Arc::clone(self);
        self.owner.request_then(frame, move |answer| client.arrived(answer));
    }

    /// Handles the answer to a frame of elements.
    fn arrived(self: &Arc<Self>, answer: Answer) {
        let outcome = match answer {
            Ok(outcome) => outcome.first().copied().unwrap_or(ADMITTED),
            Err(error) => return self.fail(error),
        };
        let mut state = self.state.lock();
        if state.failed.is_some() {
            // The elements that were in flight are forgotten.
            return;
        }
        state.sending.in_flight -= 1;
        if outcome != ADMITTED {
            state.closing = Some(Closing::from_byte(outcome));
            state.sending.drop_frame(self.unsent());
            state.sending.waiting_for_room.clear();
        }
        self.send_frame(&mut state);
        let sending = &mut state.sending;
        if sending.in_flight <= FRAMES {
            sending.waiting_for_room.drain(..).for_each(|room| {
                let _ = room.send(());
            });
        }
        if sending.in_flight == 0 {
            sending.flushing.drain(..).for_each(|flushed| {
                let _ = flushed.send(());
            });
        }
    }

    /// Sends the next frame. Returns a promise that all elements have arrived, unless they have.
    pub(in crate::queue) fn flush(self: &Arc<Self>) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state.lock();
        self.send_frame(&mut state);
        if state.sending.in_flight == 0 {
            return None;
        }
        let (sender, flushed) = oneshot::channel();
        state.sending.flushing.push(sender);
        Some(flushed)
    }
}
