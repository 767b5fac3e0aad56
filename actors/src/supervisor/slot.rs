//! Where an actor's current incarnation is found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, ArbiterHandle, Handler, MailboxError, Message};
use fiber_core::{Error, ExitReason, Result};
use tokio::sync::{oneshot, watch};

pub(super) struct Slot<A: Actor>(watch::Sender<Status<A>>);

enum Status<A: Actor> {
    /// Not started yet, or being restarted.
    Down,
    Up(Live<A>),
    /// It will not be started again.
    Gone(ExitReason),
}

/// One incarnation.
pub(super) struct Live<A: Actor> {
    id: u64,
    pub(super) addr: Addr<A>,
    home: ArbiterHandle,
    exit: Exit,
}

impl<A: Actor> Clone for Live<A> {
    fn clone(&self) -> Live<A> {
        Live {
            id: self.id,
            addr: self.addr.clone(),
            home: self.home.clone(),
            exit: self.exit.clone(),
        }
    }
}

/// How an incarnation ended, once it has.
#[derive(Clone)]
pub(super) struct Exit(watch::Receiver<Option<ExitReason>>);

impl Exit {
    pub(super) async fn reason(mut self) -> ExitReason {
        let known = self.0.wait_for(Option::is_some).await;
        // The sender always sends before it goes.
        known.ok().and_then(|reason| reason.clone()).unwrap_or(ExitReason::Shutdown)
    }

    fn known(&self) -> Option<ExitReason> {
        self.0.borrow().clone()
    }
}

impl<A: Actor> Slot<A> {
    pub(super) fn new() -> Slot<A> {
        Slot(watch::Sender::new(Status::Down))
    }

    /// It is about to be started, perhaps by another supervisor than the one that had given it up.
    pub(super) fn open(&self) {
        self.replace(Status::Down, |status| matches!(status, Status::Gone(_)));
    }

    /// It will not be started again.
    pub(super) fn gone(&self, reason: &ExitReason) {
        self.0.send_replace(Status::Gone(reason.clone()));
    }

    fn replace(&self, new: Status<A>, applies: impl FnOnce(&Status<A>) -> bool) {
        let mut status = Some(new);
        self.0.send_if_modified(|place| {
            let applies = applies(place);
            if applies && let Some(new) = status.take() {
                status = Some(std::mem::replace(place, new));
            }
            applies
        });
        // Outside of the lock: the last address takes what is left of the mailbox with it.
        drop(status);
    }

    /// The current incarnation, unless there is none at this moment.
    pub(super) fn now(&self) -> Option<Live<A>> {
        match &*self.0.borrow() {
            Status::Up(live) if live.addr.connected() => Some(live.clone()),
            _ => None,
        }
    }

    /// The current incarnation, or the next one.
    ///
    /// # Errors
    /// Why there will be none.
    pub(super) async fn live(&self) -> Result<Live<A>, ExitReason> {
        let mut status = self.0.subscribe();
        let ready = status.wait_for(|status| match status {
            Status::Up(live) => live.addr.connected(),
            Status::Gone(_) => true,
            Status::Down => false,
        });
        match ready.await.as_deref() {
            Ok(Status::Up(live)) => Ok(live.clone()),
            Ok(Status::Gone(reason)) => Err(reason.clone()),
            Ok(Status::Down) | Err(_) => Err(ExitReason::Shutdown),
        }
    }

    /// Waits until it will not be started again, and says why it ended.
    pub(super) async fn ended(&self) -> ExitReason {
        let mut status = self.0.subscribe();
        match status.wait_for(|status| matches!(status, Status::Gone(_))).await.as_deref() {
            Ok(Status::Gone(reason)) => reason.clone(),
            _ => ExitReason::Shutdown,
        }
    }

    /// Sends to the current incarnation, or to the next one, and waits for the answer.
    pub(super) async fn send<M>(&self, name: &str, message: M) -> Result<M::Result>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        let live = self
            .live()
            .await
            .map_err(|reason| Error::ActorStopped { name: name.into(), reason })?;
        match live.addr.send(message).await {
            Ok(answer) => Ok(answer),
            Err(MailboxError::Closed | MailboxError::Timeout) => Err(live.no_answer(name).await),
        }
    }
}

impl<A: Actor> Live<A> {
    pub(super) fn exit(&self) -> Exit {
        self.exit.clone()
    }

    /// Why a call got no answer. It is known before the reason of the end is, which takes the rest
    /// of the poll in which the actor dies: whatever runs on its thread after that finds the
    /// reason, or an actor that lives.
    async fn no_answer(&self, name: &str) -> Error {
        let (passed, after) = oneshot::channel();
        let asked = self.home.spawn_fn(move || {
            let _ = passed.send(());
        });
        let alive = asked && after.await.is_ok();
        let reason = match self.exit.known() {
            Some(reason) => reason,
            None if alive => {
                let problem = "the future that was to give it panicked, or was dropped";
                return Error::system(format!("no answer came from actor `{name}`"), problem);
            }
            None => self.exit().reason().await,
        };
        Error::ActorStopped { name: name.into(), reason }
    }
}

/// The keeper of one incarnation's place in its slot: takes it out, and tells the reason, exactly
/// once.
pub(super) struct Tenancy<A: Actor> {
    slot: Arc<Slot<A>>,
    live: Live<A>,
    exit: watch::Sender<Option<ExitReason>>,
    reason: ExitReason,
}

impl<A: Actor> Tenancy<A> {
    pub(super) fn new(
        slot: Arc<Slot<A>>,
        addr: Addr<A>,
        home: ArbiterHandle,
        exit: watch::Sender<Option<ExitReason>>,
    ) -> Tenancy<A> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let live = Live { id, addr, home, exit: Exit(exit.subscribe()) };
        // Dropped without a word, its thread has ended.
        Tenancy { slot, live, exit, reason: ExitReason::Shutdown }
    }

    /// The actor has started: calls can come. Not if its supervisor has gone in the meantime.
    pub(super) fn enter(&self) {
        self.slot
            .replace(Status::Up(self.live.clone()), |status| !matches!(status, Status::Gone(_)));
    }

    pub(super) fn end(mut self, reason: ExitReason) {
        self.reason = reason;
    }
}

impl<A: Actor> Drop for Tenancy<A> {
    fn drop(&mut self) {
        // An incarnation that was given up may end after the next one has begun.
        self.slot.replace(
            Status::Down,
            |status| matches!(status, Status::Up(live) if live.id == self.live.id),
        );
        self.exit.send_replace(Some(self.reason.clone()));
    }
}

pub(super) fn exit_channel() -> (watch::Sender<Option<ExitReason>>, Exit) {
    let (sender, receiver) = watch::channel(None);
    (sender, Exit(receiver))
}
