//! The messages that one subscription has not read.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use fiber_core::Error;
use fiber_runtime::topics::size;
use fiber_runtime::topics::wire::{Read, Subscribe, WhenFull};
use fiber_transport::Received;
use parking_lot::Mutex;

/// The bytes of the messages that a subscription buffers: beyond that it is full, however few they
/// are.
pub(super) const BYTES: u64 = 16 << 20;
/// How many messages may be on their way to a subscription that keeps the newest: it takes them as
/// they come.
const ON_THE_WAY: u32 = 1024;

/// The buffer of a subscription.
pub(super) struct Buffer {
    when_full: WhenFull,
    /// How many messages it has read or dropped when the topic hears of it.
    batch: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Received>,
    bytes: u64,
    /// Whether the topic has confirmed the subscription: messages to all are for it, too.
    is_there: bool,
    /// News for the topic.
    read: u32,
    read_bytes: u64,
    missed: u64,
    end: Option<End>,
    reader: Option<Waker>,
}

/// Why no more messages come.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// So many messages waited.
    TooSlow(usize),
    Failed(Error),
}

/// The next item of a reader.
pub(super) enum Next {
    Message {
        message: Received,
        /// Whether the topic is to hear that messages were read.
        is_due: bool,
    },
    End(End),
}

impl Buffer {
    /// Returns the buffer of a subscription that waits or ends when it has so many messages, or
    /// keeps so many.
    pub(super) fn new(when_full: WhenFull, capacity: u32) -> Buffer {
        let window = match when_full {
            WhenFull::KeepNewest(_) => ON_THE_WAY,
            WhenFull::Wait | WhenFull::End => capacity,
        };
        Buffer { when_full, batch: (window / 2).max(1), state: Mutex::default() }
    }

    /// Returns the request for its subscription.
    pub(super) fn request(&self, id: u64, capacity: u32) -> Subscribe {
        let window = match self.when_full {
            WhenFull::KeepNewest(_) => ON_THE_WAY,
            // Messages that the topic has not heard of do not count.
            WhenFull::Wait | WhenFull::End => capacity.saturating_add(self.batch - 1),
        };
        Subscribe { id, when_full: self.when_full, window, window_bytes: BYTES + BYTES / 2 }
    }

    /// Notes that the topic has confirmed the subscription.
    pub(super) fn is_there(&self) {
        self.state.lock().is_there = true;
    }

    /// Takes a message; one that is for all subscriptions only if the topic knew this one. Returns
    /// whether the topic is to hear that messages were read, and the reader to wake.
    pub(super) fn push(&self, message: &Received, is_for_all: bool) -> (bool, Option<Waker>) {
        let mut state = self.state.lock();
        if (is_for_all && !state.is_there) || state.end.is_some() {
            return (false, None);
        }
        state.messages.push_back(message.clone());
        state.bytes += size(message);
        let WhenFull::KeepNewest(most) = self.when_full else {
            return (false, state.reader.take());
        };
        state.note_read(message);
        while state.messages.len() > most as usize
            || (state.messages.len() > 1 && state.bytes > BYTES)
        {
            state.pop();
            state.missed += 1;
        }
        (self.is_due(&state), state.reader.take())
    }

    fn is_due(&self, state: &State) -> bool {
        state.read >= self.batch || state.read_bytes >= BYTES / 2
    }

    /// Counts messages that the topic had to drop.
    pub(super) fn miss(&self, count: u64) {
        self.state.lock().missed += count;
    }

    pub(super) fn missed(&self) -> u64 {
        self.state.lock().missed
    }

    /// Ends the subscription behind the messages that are there, because it was too slow.
    pub(super) fn end_too_slow(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        let waiting = state.messages.len();
        state.end.get_or_insert(End::TooSlow(waiting));
        state.reader.take()
    }

    /// Drops the messages that are there.
    pub(super) fn clear(&self) {
        let mut state = self.state.lock();
        state.bytes = 0;
        let messages = std::mem::take(&mut state.messages);
        drop(state);
        drop(messages);
    }

    /// Ends the subscription behind the messages that are there.
    pub(super) fn fail(&self, error: &Error) -> Option<Waker> {
        let mut state = self.state.lock();
        state.end.get_or_insert_with(|| End::Failed(error.clone()));
        state.reader.take()
    }

    /// Takes the news for the topic, if they are worth a place in a frame.
    pub(super) fn take_read(&self, subscription: u64) -> Option<Read> {
        let mut state = self.state.lock();
        let is_worth = state.read > self.batch / 2 || state.read_bytes > BYTES / 4;
        if !is_worth || state.end.is_some() {
            return None;
        }
        let (messages, bytes) = (state.read, state.read_bytes);
        (state.read, state.read_bytes) = (0, 0);
        Some(Read { subscription, messages, bytes })
    }

    /// Returns the next message, or the end.
    pub(super) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.state.lock();
        if let Some(message) = state.pop() {
            if !matches!(self.when_full, WhenFull::KeepNewest(_)) {
                state.note_read(&message);
            }
            let is_due = state.end.is_none() && self.is_due(&state);
            return Poll::Ready(Next::Message { message, is_due });
        }
        if let Some(end) = &state.end {
            return Poll::Ready(Next::End(end.clone()));
        }
        if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(context.waker())) {
            state.reader = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl State {
    fn pop(&mut self) -> Option<Received> {
        let message = self.messages.pop_front()?;
        self.bytes -= size(&message);
        Some(message)
    }

    fn note_read(&mut self, message: &Received) {
        self.read += 1;
        self.read_bytes += size(message);
    }
}
