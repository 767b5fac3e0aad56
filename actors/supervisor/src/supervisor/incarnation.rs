//! The current incarnation of an actor, for the references that send to it.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, ArbiterHandle, Handler, MailboxError, Message, System};
use fiber_core::{Error, ExitReason, Result};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use super::actor::is_shared_in;

/// The current incarnation of an actor, if there is one.
pub(super) struct Current<A: Actor> {
    status: watch::Sender<Status<A>>,
    /// The thread on which the last incarnation was started, and its actix system.
    home: Mutex<Option<(ThreadId, usize)>>,
    /// The actor's address for other processes, once it was exported.
    exported: Mutex<Option<Box<dyn Any + Send + Sync>>>,
}

enum Status<A: Actor> {
    /// It is not started yet, or is being restarted.
    Down,
    Up(Incarnation<A>),
    /// It was removed: there is no next incarnation.
    Removed(ExitReason),
}

/// One incarnation.
#[doc(hidden)]
pub struct Incarnation<A: Actor> {
    pub(super) addr: Addr<A>,
    arbiter: ArbiterHandle,
    exit: ExitWatch,
}

impl<A: Actor> fmt::Debug for Incarnation<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incarnation").finish_non_exhaustive()
    }
}

impl<A: Actor> Clone for Incarnation<A> {
    fn clone(&self) -> Incarnation<A> {
        Incarnation {
            addr: self.addr.clone(),
            arbiter: self.arbiter.clone(),
            exit: self.exit.clone(),
        }
    }
}

/// The exit reason of an incarnation, once it has ended.
#[derive(Clone)]
pub(super) struct ExitWatch(watch::Receiver<Option<ExitReason>>);

impl ExitWatch {
    pub(super) fn channel() -> (watch::Sender<Option<ExitReason>>, ExitWatch) {
        let (sender, receiver) = watch::channel(None);
        (sender, ExitWatch(receiver))
    }

    /// Waits for the end.
    pub(super) async fn reason(mut self) -> ExitReason {
        let reason = self.0.wait_for(Option::is_some).await;
        // The sender always sends before it is dropped.
        reason.ok().and_then(|reason| reason.clone()).unwrap_or(ExitReason::Shutdown)
    }

    fn now(&self) -> Option<ExitReason> {
        self.0.borrow().clone()
    }
}

impl<A: Actor> Current<A> {
    pub(super) fn new() -> Current<A> {
        Current {
            status: watch::Sender::new(Status::Down),
            home: Mutex::default(),
            exported: Mutex::default(),
        }
    }

    /// Expects a next incarnation, perhaps under another supervisor than the one that removed it.
    pub(super) fn reopen(&self) {
        self.replace(Status::Down, |status| matches!(status, Status::Removed(_)));
    }

    /// Ends the wait of all callers: there is no next incarnation. An actor that has ended by itself
    /// keeps its reason when its supervisor ends.
    pub(super) fn remove(&self, reason: &ExitReason) {
        self.replace(Status::Removed(reason.clone()), |status| {
            !matches!(status, Status::Removed(_))
        });
    }

    fn replace(&self, new: Status<A>, applies: impl FnOnce(&Status<A>) -> bool) {
        let mut status = Some(new);
        self.status.send_if_modified(|current| {
            let applies = applies(current);
            if applies && let Some(new) = status.take() {
                status = Some(std::mem::replace(current, new));
            }
            applies
        });
        // Outside of the lock: the last address drops the messages in the mailbox with it.
        drop(status);
    }

    /// Returns the current incarnation, unless there is none at this moment.
    pub(super) fn get(&self) -> Option<Incarnation<A>> {
        match &*self.status.borrow() {
            Status::Up(incarnation) if incarnation.addr.connected() => Some(incarnation.clone()),
            _ => None,
        }
    }

    /// Returns the current incarnation, or waits for the next one.
    ///
    /// # Errors
    /// The last exit reason, if there is no next one.
    pub(super) async fn wait(&self) -> Result<Incarnation<A>, ExitReason> {
        let mut status = self.status.subscribe();
        let ready = status.wait_for(|status| match status {
            Status::Up(incarnation) => incarnation.addr.connected(),
            Status::Removed(_) => true,
            Status::Down => false,
        });
        match ready.await.as_deref() {
            Ok(Status::Up(incarnation)) => Ok(incarnation.clone()),
            Ok(Status::Removed(reason)) => Err(reason.clone()),
            Ok(Status::Down) | Err(_) => Err(ExitReason::Shutdown),
        }
    }

    /// Waits until the actor is removed, and returns the last exit reason.
    pub(super) async fn removed(&self) -> ExitReason {
        let mut status = self.status.subscribe();
        match status.wait_for(|status| matches!(status, Status::Removed(_))).await.as_deref() {
            Ok(Status::Removed(reason)) => reason.clone(),
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
        let incarnation = self
            .wait()
            .await
            .map_err(|reason| Error::ActorStopped { name: name.into(), reason })?;
        incarnation.send(name.into(), message).await
    }

    /// Returns why the actor was removed, if it was.
    pub(super) fn end(&self) -> Option<ExitReason> {
        match &*self.status.borrow() {
            Status::Removed(reason) => Some(reason.clone()),
            Status::Up(_) | Status::Down => None,
        }
    }

    pub(super) fn exported(&self) -> &Mutex<Option<Box<dyn Any + Send + Sync>>> {
        &self.exported
    }

    /// Returns whether the actor needs this thread.
    pub(super) fn needs_this_thread(&self) -> bool {
        self.home.lock().is_some_and(|(thread, _)| thread == thread::current().id())
    }

    /// Returns whether the actor lives, and its end needs this thread.
    pub(super) fn ends_here(&self) -> bool {
        matches!(&*self.status.borrow(), Status::Up(_)) && self.needs_this_thread()
    }

    /// Returns whether this is the thread that supervised actors of the same actix system share.
    pub(super) fn shares_this_thread(&self) -> bool {
        self.home.lock().is_some_and(|(_, system)| is_shared_in(system))
    }
}

impl<A: Actor> Incarnation<A> {
    /// Returns whether the incarnation has not ended.
    pub fn is_alive(&self) -> bool {
        self.addr.connected()
    }

    /// Sends a message without an answer.
    pub fn do_send<M>(&self, message: M)
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        self.addr.do_send(message);
    }

    /// Sends a message at once, and returns the answer of the actor `name`.
    pub fn send<M>(
        &self,
        name: Arc<str>,
        message: M,
    ) -> impl Future<Output = Result<M::Result>> + use<A, M>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        // A new clone of an address may add one message to a full mailbox, so messages keep their
        // order.
        let request = self.addr.clone().send(message);
        let this = self.clone();
        async move {
            match request.await {
                Ok(answer) => Ok(answer),
                Err(MailboxError::Closed | MailboxError::Timeout) => {
                    Err(this.no_answer(&name).await)
                }
            }
        }
    }

    pub(super) fn exit(&self) -> ExitWatch {
        self.exit.clone()
    }

    /// Returns why a call got no answer.
    ///
    /// The exit reason is set at the end of the poll in which the actor dies. A function that runs
    /// on its thread after that poll finds either the reason, or an actor that is alive.
    async fn no_answer(&self, name: &str) -> Error {
        let (sender, polled) = oneshot::channel();
        let spawned = self.arbiter.spawn_fn(move || {
            let _ = sender.send(());
        });
        let alive = spawned && polled.await.is_ok();
        let reason = match self.exit.now() {
            Some(reason) => reason,
            None if alive => {
                let problem = "the future that was to answer panicked, or was dropped";
                return Error::system(format!("actor `{name}` did not answer"), problem);
            }
            None => self.exit().reason().await,
        };
        Error::ActorStopped { name: name.into(), reason }
    }
}

/// Makes an incarnation the current one, and takes it back with its exit reason when it is dropped.
pub(super) struct IncarnationGuard<A: Actor> {
    current: Arc<Current<A>>,
    incarnation: Incarnation<A>,
    exit: watch::Sender<Option<ExitReason>>,
    reason: ExitReason,
}

impl<A: Actor> IncarnationGuard<A> {
    pub(super) fn new(
        current: Arc<Current<A>>,
        addr: Addr<A>,
        arbiter: ArbiterHandle,
        exit: watch::Sender<Option<ExitReason>>,
    ) -> IncarnationGuard<A> {
        let incarnation = Incarnation { addr, arbiter, exit: ExitWatch(exit.subscribe()) };
        *current.home.lock() = Some((thread::current().id(), System::current().id()));
        // If it is only dropped, its thread has ended.
        IncarnationGuard { current, incarnation, exit, reason: ExitReason::Shutdown }
    }

    /// Lets calls reach the actor, unless it was removed meanwhile.
    pub(super) fn started(&self) {
        self.current.replace(Status::Up(self.incarnation.clone()), |status| {
            !matches!(status, Status::Removed(_))
        });
    }

    pub(super) fn finish(mut self, reason: ExitReason) {
        self.reason = reason;
    }
}

impl<A: Actor> Drop for IncarnationGuard<A> {
    fn drop(&mut self) {
        // A killed incarnation that still ran may end after the next one has started.
        let own = &self.incarnation.exit.0;
        self.current.replace(
            Status::Down,
            |status| matches!(status, Status::Up(current) if current.exit.0.same_channel(own)),
        );
        self.exit.send_replace(Some(self.reason.clone()));
    }
}
