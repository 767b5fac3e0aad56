//! The messages and snapshots of a managed actor, in its process.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context};
use fiber_core::ExitReason;
use fiber_transport::{Link, Message};
use fiber_values::codec::EncodedValue;

use super::snapshot::{SnapshotInterval, SnapshotPolicy};
use super::wire::ActorEvent;
use crate::remote::{HeldAnswers, Host};
use fiber_runtime::mesh::ActorId;
use fiber_supervisor::Life;

/// Passes messages to each incarnation of a managed actor, takes its snapshots, and tells its owner
/// what happens to it.
pub(super) struct ManagedLife<P, C> {
    pub(super) id: ActorId,
    pub(super) host: Host,
    pub(super) link: Arc<dyn Link>,
    /// The last snapshot.
    pub(super) snapshot: Rc<RefCell<Option<EncodedValue>>>,
    pub(super) interval: SnapshotInterval,
    /// Makes the actor.
    pub(super) create: C,
    /// The message that the actor has started, until it is sent.
    pub(super) announcement: RefCell<Option<Message>>,
    /// Whether the owner knows that the actor has started.
    pub(super) is_ready: Rc<Cell<bool>>,
    pub(super) has_failed: Cell<bool>,
    pub(super) policy: PhantomData<fn() -> P>,
}

impl<A, P, C> Life<A> for ManagedLife<P, C>
where
    A: Actor<Context = Context<A>>,
    P: SnapshotPolicy<A>,
    C: Fn() -> A + 'static,
{
    fn starting(&self, context: &mut Context<A>) {
        let id = self.id;
        if self.has_failed.replace(false) {
            let _ = self.link.send(ActorEvent::Restarted.encode(id));
        }
        let (link, snapshot) = (Arc::clone(&self.link), Rc::clone(&self.snapshot));
        let take_snapshot = move |actor: &A, held: Option<&HeldAnswers>| match P::take(actor) {
            Ok(Some(state)) => {
                *snapshot.borrow_mut() = Some(state.clone());
                let event = match held {
                    Some(held) => {
                        held.taken();
                        ActorEvent::AwaitedSnapshot(state)
                    }
                    None => ActorEvent::Snapshot(state),
                };
                let _ = link.send(event.encode(id));
            }
            Ok(None) => {}
            Err(error) => {
                let problem = format!("taking a snapshot failed: {error}");
                tracing::error!("{problem}");
                held.into_iter().for_each(|held| held.not_taken(&problem));
            }
        };
        if let Some(time) = self.interval.time {
            let take_snapshot = take_snapshot.clone();
            context.run_interval(time, move |actor, _| take_snapshot(actor, None));
        }
        let (messages, mut count) = (self.interval.messages, 0);
        let take_awaited = take_snapshot.clone();
        let handled = move |actor: &mut A| {
            count += 1;
            if messages == Some(count) {
                count = 0;
                take_snapshot(actor, None);
            }
        };
        let keep = move |actor: &mut A, held: &HeldAnswers| take_awaited(actor, Some(held));
        context.spawn(self.host.inbox_pump(handled, keep));
    }

    fn create(&self) -> A {
        (self.create)()
    }

    fn started(&self) {
        if let Some(announcement) = self.announcement.take() {
            let _ = self.link.send(announcement);
            self.is_ready.set(true);
        }
    }

    fn ended(&self, reason: &ExitReason) {
        self.host.ended(reason);
    }

    fn failed(&self, reason: &ExitReason) {
        self.has_failed.set(true);
        let _ = self.link.send(ActorEvent::Failed(reason.clone()).encode(self.id));
    }
}
