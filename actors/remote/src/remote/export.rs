//! Exporting local actors to other processes.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use actix::{Actor, Addr};

use super::inbox_pump::Dispatch;
use super::method::ended;
use fiber_runtime::mesh::{ActorId, CallFailure, Full, Inbox};
use fiber_runtime::runtime::Runtime;

/// Makes an inbox for an actor, and passes its messages to the actor until that ends.
pub(super) fn export<A: Actor>(runtime: &'static Runtime, addr: Addr<A>) -> ActorId {
    let inbox = Arc::new(Inbox::new(usize::MAX, Full::Fail));
    inbox.read_by(std::any::type_name::<A>(), runtime.part());
    let watched = addr.clone();
    let actor = runtime.registry().export(Arc::clone(&inbox), move || watched.connected());
    let pump = move || async move {
        let mut dispatch = Dispatch::new(runtime);
        let mut addr = addr;
        poll_fn(|task| {
            let mut turn = 0;
            while let Poll::Ready(next) = inbox.poll_next(task) {
                let Some(message) = next else { return Poll::Ready(()) };
                if !addr.connected() {
                    message.responder.fail(&CallFailure::Stopped(ended()));
                    inbox.close(&ended());
                    return Poll::Ready(());
                }
                // The actor handles the message elsewhere, so a panic here does not concern it.
                let _ = dispatch.handle(&mut addr, &mut (), message);
                turn += 1;
            }
            if turn > 0 {
                inbox.note_turn(turn, false, Instant::now());
            }
            dispatch.poll_answers(task);
            Poll::Pending
        })
        .await;
    };
    // This is most likely the actor's own thread. Running there saves waking another one.
    match actix::Arbiter::try_current() {
        Some(arbiter) => drop(arbiter.spawn_fn(move || drop(fiber_core::spawn_local(pump())))),
        None => runtime.spawn(pump),
    }
    actor
}
