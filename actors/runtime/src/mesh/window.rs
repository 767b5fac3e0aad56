//! Calls that wait in this process until their actor's mailbox has room.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Mesh;
use super::pending::Pending;
use super::route::Route;
use super::wire::Payload;

/// The places that an actor's mailbox has for the calls of this process. A call has one until it is
/// completed.
pub(super) struct Window(Mutex<Places>);

struct Places {
    free: u32,
    /// Calls without a place, in the order in which they were sent.
    waiting: VecDeque<(Payload, Pending)>,
    /// Whether a task sends calls that have waited: no other call may overtake these.
    is_sending: bool,
}

/// The place of a call in a mailbox. Dropping it lets the next call have it.
pub struct Place {
    mesh: &'static Mesh,
    route: Arc<Route>,
}

impl Window {
    pub(super) fn new(places: NonZeroU32) -> Window {
        let (waiting, is_sending) = Default::default();
        Window(Mutex::new(Places { free: places.get(), waiting, is_sending }))
    }

    /// Takes a place for a call that is to be sent. Without one, the call waits.
    fn enter(&self, payload: Payload, pending: Pending) -> Option<(Payload, Pending)> {
        let mut places = self.0.lock();
        if places.free == 0 || places.is_sending || !places.waiting.is_empty() {
            places.waiting.push_back((payload, pending));
            return None;
        }
        places.free -= 1;
        Some((payload, pending))
    }

    /// Takes a place for the next call that waits, and whose time has not ended.
    fn next(&self) -> Option<(Payload, Pending)> {
        // They are dropped when the lock is free: handles in them may send messages.
        let mut over = Vec::new();
        let mut places = self.0.lock();
        let waiting = &mut places.waiting;
        while waiting.front().is_some_and(|(_, pending)| pending.waiter.is_over()) {
            over.extend(waiting.pop_front());
        }
        let next = if places.free > 0 { places.waiting.pop_front() } else { None };
        places.free -= u32::from(next.is_some());
        places.is_sending = next.is_some();
        next
    }

    /// Gives a place back. Returns whether calls are to be sent, and no task does it.
    fn leave(&self) -> bool {
        let mut places = self.0.lock();
        places.free += 1;
        let are_waiting = !places.waiting.is_empty();
        are_waiting && !std::mem::replace(&mut places.is_sending, true)
    }
}

impl Mesh {
    /// Sends a call to an owned actor whose mailbox has so many places for the calls of each
    /// process. Without a free one, the call waits.
    pub fn send_within(
        &'static self,
        places: NonZeroU32,
        route: &Arc<Route>,
        payload: Payload,
        pending: Pending,
    ) {
        let window = route.window.get_or_init(|| Window::new(places));
        if let Some((payload, pending)) = window.enter(payload, pending) {
            self.send_with_place(route, payload, pending);
        }
    }

    fn send_with_place(&'static self, route: &Arc<Route>, payload: Payload, mut pending: Pending) {
        pending.place = Some(Place { mesh: self, route: Arc::clone(route) });
        self.send(route, payload, Some(pending));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.route.window.get().is_some_and(Window::leave) {
            return;
        }
        let (mesh, route) = (self.mesh, Arc::clone(&self.route));
        // The call may be completed under locks that sending takes, too.
        mesh.endpoint.spawn(move || async move {
            let Some(window) = route.window.get() else { return };
            while let Some((payload, pending)) = window.next() {
                mesh.send_with_place(&route, payload, pending);
            }
        });
    }
}
