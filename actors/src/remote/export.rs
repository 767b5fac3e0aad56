//! Local actors that other processes can reach.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use actix::{Actor, Addr};

use super::inbox_pump::Dispatch;
use super::method::ended;
use crate::endpoint::message_limit;
use crate::mesh::{ActorId, CallFailure, Inbox};
use crate::runtime::Runtime;

/// Gives an actor an inbox, whose messages are handed to it for as long as it lives.
pub(super) fn export<A: Actor>(runtime: &'static Runtime, addr: Addr<A>) -> ActorId {
    let inbox = Arc::new(Inbox::new(usize::MAX));
    let watched = addr.clone();
    let actor = runtime.registry().export(Arc::clone(&inbox), move || watched.connected());
    let limit = message_limit(runtime.config());
    let carry = move || async move {
        let mut dispatch = Dispatch::new(limit);
        let mut addr = addr;
        poll_fn(|task| {
            while let Poll::Ready(next) = inbox.poll_next(task) {
                let Some(delivery) = next else { return Poll::Ready(()) };
                if !addr.connected() {
                    delivery.responder.fail(&CallFailure::Stopped(ended()));
                    inbox.close(&ended());
                    return Poll::Ready(());
                }
                // Its panics end nothing but the message: the actor handles it elsewhere.
                let _ = dispatch.handle(&mut addr, &mut (), delivery);
            }
            dispatch.poll_answers(task);
            Poll::Pending
        })
        .await;
    };
    // Most likely it is the actor's own thread, which saves waking another.
    match actix::Arbiter::try_current() {
        Some(arbiter) => drop(arbiter.spawn_fn(move || drop(actix::spawn(carry())))),
        None => runtime.spawn(carry),
    }
    actor
}
