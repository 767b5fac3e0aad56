//! Sending one message to many processes.

use std::sync::Arc;

use fiber_transport::{Link, Message, Wire};
use parking_lot::Mutex;

/// Sends messages that differ in their heads alone. Processes that are reached over one wire, as
/// those of a host are, get theirs with one frame, which waits until the sender has named them all.
///
/// The wait ends with [`finish`](FanOut::finish), before the sender goes on: nothing that it sends
/// afterwards overtakes the frame. A call whose process dies meanwhile fails as any other: its link
/// reports that, and the host drops its part of the frame.
#[derive(Debug, Default)]
pub struct FanOut(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    frames: Vec<SharedFrame>,
    /// Whether messages that come now, from calls that had to wait, are sent at once.
    is_finished: bool,
}

/// A frame for several processes.
#[derive(Debug)]
struct SharedFrame {
    wire: Arc<dyn Wire>,
    /// The numbers of the processes on the wire, and the head for each.
    heads: Vec<(u64, Vec<u8>)>,
    message: Message,
}

impl State {
    fn flush(&mut self) {
        for SharedFrame { wire, heads, message } in self.frames.drain(..) {
            wire.send_to_each(&heads, message);
        }
    }
}

impl FanOut {
    /// Sends a message to one of the processes. A message with another body goes behind all earlier
    /// ones.
    pub(crate) fn send(&self, link: &Arc<dyn Link>, mut message: Message) {
        let mut state = self.0.lock();
        let Some((wire, number)) = link.wire().filter(|_| !state.is_finished) else {
            drop(state);
            // If the link is closed, its reader notices that.
            let _ = link.send(message);
            return;
        };
        // With the same body it is the same message with another head: blobs belong to their bytes.
        let is_other = |frame: &SharedFrame| !std::ptr::eq(&*frame.message.body, &*message.body);
        if state.frames.first().is_some_and(is_other) {
            state.flush();
        }
        let head = std::mem::take(&mut message.head);
        match state.frames.iter().rposition(|frame| Arc::ptr_eq(&frame.wire, &wire)) {
            Some(at) => state.frames[at].heads.push((number, head)),
            None => state.frames.push(SharedFrame { wire, heads: vec![(number, head)], message }),
        }
    }

    /// Sends what waits.
    pub(crate) fn flush(&self) {
        self.0.lock().flush();
    }

    /// Sends what waits. Later messages are sent at once.
    pub fn finish(&self) {
        let mut state = self.0.lock();
        state.is_finished = true;
        state.flush();
    }
}
