//! Waiting, before the process exits, until its messages have arrived.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use fiber_core::deadline_after;

use super::Mesh;
use super::deadlines::Waiter;
use super::pending::Pending;
use super::wire::{Payload, Query};

/// Waits until all messages without an answer have arrived, for at most `limit`.
pub(crate) fn flush(mesh: &'static Mesh, limit: Duration) {
    let deadline = deadline_after(limit);
    for arrived in query_behind_all(mesh) {
        // No value is sent: the channel closes with the answer, or with the call's failure.
        let _ = arrived.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Sends a query behind all messages. They have arrived when it is answered.
fn query_behind_all(mesh: &'static Mesh) -> Vec<Receiver<()>> {
    let mut arrivals = Vec::new();
    let mut pending = || {
        let (sender, arrived) = channel::<()>();
        arrivals.push(arrived);
        Some(Pending::new(Waiter::Callback(Box::new(move |_| drop(sender)))))
    };
    let query = Payload::query(&Query::Flush);
    for route in mesh.routes().into_iter().filter(|route| route.is_locating()) {
        mesh.send(&route, query.clone(), pending());
    }
    for channel in mesh.channels().into_iter().filter(|channel| channel.has_unconfirmed()) {
        // The messages of a closed channel are lost.
        let _ = channel.send(query.clone(), pending());
    }
    arrivals
}
