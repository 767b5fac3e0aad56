//! The end of this process: what it has sent, and nobody waits for an answer to, is to arrive
//! before.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::Mesh;
use super::deadlines::Waiter;
use super::pending::Pending;
use super::wire::{Payload, Question};

/// Waits until all of it has arrived, but not longer than `limit`.
pub(crate) fn settle(mesh: &'static Mesh, limit: Duration) {
    let deadline = Instant::now() + limit;
    for arrived in ask_for_arrival(mesh) {
        // Nothing comes through it: it ends with the answer, or with the hope of one.
        let _ = arrived.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Asks behind all that was sent, which has arrived when the answer is there.
fn ask_for_arrival(mesh: &'static Mesh) -> Vec<Receiver<()>> {
    let mut arrivals = Vec::new();
    let mut pending = || {
        let (sender, arrived) = channel::<()>();
        arrivals.push(arrived);
        Some(Pending::new(Waiter::Callback(Box::new(move |_| drop(sender)))))
    };
    let question = Payload::ask(&Question::Arrived);
    for route in mesh.routes().into_iter().filter(|route| route.is_looked_for()) {
        mesh.send(&route, question.clone(), pending());
    }
    for channel in mesh.channels().into_iter().filter(|channel| channel.has_unheard()) {
        // One that has closed has nothing to wait for.
        let _ = channel.send(question.clone(), pending());
    }
    arrivals
}
