//! The messages and snapshots of a managed actor, in its own process.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix::{Actor, AsyncContext, Context};
use fiber_core::ExitReason;
use fiber_transport::Link;
use fiber_values::codec::EncodedValue;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::snapshot::{SnapshotInterval, SnapshotPolicy};
use super::wire::ActorMessage;
use crate::remote::{Holding, Host};
use fiber_supervisor::Lifecycle;

/// Passes messages to each incarnation of a managed actor, and takes its snapshots.
pub(super) struct ManagedLifecycle<P> {
    pub(super) host: Host,
    pub(super) link: Arc<dyn Link>,
    /// The last snapshot.
    pub(super) snapshot: Arc<Mutex<Option<EncodedValue>>>,
    pub(super) interval: SnapshotInterval,
    pub(super) held: Holding,
    /// Whether the actor is restarted in its process after a failure.
    pub(super) restarts: bool,
    pub(super) has_failed: AtomicBool,
    /// Whether the owner knows that the actor has started.
    pub(super) is_ready: Arc<AtomicBool>,
    /// Set when the actor has ended for good by itself.
    pub(super) ended: watch::Sender<Option<ExitReason>>,
    pub(super) policy: PhantomData<fn() -> P>,
}

impl<A, P> Lifecycle<A> for ManagedLifecycle<P>
where
    A: Actor<Context = Context<A>>,
    P: SnapshotPolicy<A>,
{
    fn starting(&self, context: &mut Context<A>) {
        if self.has_failed.swap(false, Ordering::Relaxed) {
            let _ = self.link.send(ActorMessage::Restarted.encode());
        }
        let (link, snapshot) = (Arc::clone(&self.link), Arc::clone(&self.snapshot));
        let held = self.held.clone();
        let take_snapshot = move |actor: &A, is_awaited: bool| match P::take(actor) {
            Ok(Some(state)) => {
                *snapshot.lock() = Some(state.clone());
                let message = match &held {
                    Some(held) if is_awaited => {
                        held.taken();
                        ActorMessage::AwaitedSnapshot(state)
                    }
                    _ => ActorMessage::Snapshot(state),
                };
                let _ = link.send(message.encode());
            }
            Ok(None) => {}
            Err(error) => {
                let problem = format!("taking a snapshot failed: {error}");
                tracing::error!("{problem}");
                held.iter().filter(|_| is_awaited).for_each(|held| held.not_taken(&problem));
            }
        };
        if let Some(time) = self.interval.time {
            let take_snapshot = take_snapshot.clone();
            context.run_interval(time, move |actor, _| take_snapshot(actor, false));
        }
        let (messages, mut count) = (self.interval.messages, 0);
        let take_awaited = take_snapshot.clone();
        let handled = move |actor: &mut A| {
            count += 1;
            if messages == Some(count) {
                count = 0;
                take_snapshot(actor, false);
            }
        };
        context.spawn(self.host.inbox_pump(handled, move |actor| take_awaited(actor, true)));
    }

    fn ended(&self, reason: &ExitReason) {
        self.host.ended(reason);
        match reason {
            // Its supervisor has stopped it.
            ExitReason::Shutdown => {}
            reason if self.restarts && !reason.is_normal() => {
                // The process itself tells of a failed start.
                if self.is_ready.load(Ordering::Relaxed) {
                    self.has_failed.store(true, Ordering::Relaxed);
                    let _ = self.link.send(ActorMessage::Failed(reason.clone()).encode());
                }
            }
            reason => drop(self.ended.send_replace(Some(reason.clone()))),
        }
    }
}
