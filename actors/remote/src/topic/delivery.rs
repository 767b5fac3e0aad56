//! Delivery of a topic's messages to an actor.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fiber_core::{Error, ExitReason, Result};
use fiber_runtime::mesh::{CallFailure, Unanswered};
use fiber_runtime::reply::Reply;
use fiber_transport::Received;
use fiber_values::entry::EntryRef;
use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use super::client::Messages;
use crate::remote::UntypedAddr;

/// The pause before a message is sent again that an actor's full mailbox has refused.
const MAILBOX_FULL: Duration = Duration::from_millis(10);

/// Sends the messages of a topic to an actor, until it is dropped or the actor has ended: the next
/// message finds that.
///
/// - A message whose handler fails is not sent again: [`failed`](Delivery::failed) counts it.
/// - A managed actor gets the next messages when it has restarted; one that it had not answered
///   counts as failed, unless its address [sends messages
///   again](crate::remote::RemoteAddr::resend).
/// - A full mailbox makes the subscription wait.
///
/// [`Topic::deliver_to`](super::Topic::deliver_to) makes one and has an example.
#[must_use = "the delivery ends when this is dropped: `detach` lets it go on"]
pub struct Delivery {
    guard: Guard,
    end: oneshot::Receiver<Result<()>>,
    failed: Arc<AtomicU64>,
}

/// Ends a delivery when it is dropped: no message is sent after that.
struct Guard {
    messages: Arc<Messages>,
    /// Ends the future, too. `None` if the delivery goes on.
    stop: Option<oneshot::Sender<()>>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.stop.is_some() {
            self.messages.end();
        }
    }
}

impl Delivery {
    pub(super) fn start(
        messages: Messages,
        addr: UntypedAddr,
        method: EntryRef,
        message: &'static str,
    ) -> Delivery {
        let ((stop, stopped), (ended, end)) = (oneshot::channel(), oneshot::channel());
        let messages = Arc::new(messages);
        let guard = Guard { messages: Arc::clone(&messages), stop: Some(stop) };
        let failed = Arc::new(AtomicU64::new(0));
        let runtime = messages.client().runtime();
        let (all, failures) = (Arc::clone(&messages), Arc::clone(&failed));
        let sending = Sending { messages: all, addr, method, message, failed: failures };
        runtime.spawn(move || async move {
            let sending = Box::pin(sending.run());
            let end = match select(sending, stopped).await {
                Either::Left((error, _)) => Err(error),
                // It was detached.
                Either::Right((Ok(()), sending)) => Err(sending.await),
                Either::Right((Err(_), _)) => Ok(()),
            };
            messages.end();
            let _ = ended.send(end);
        });
        Delivery { guard, end, failed }
    }

    /// Returns how many messages the actor has failed to handle.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Lets the delivery go on as long as the actor and this process live.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// use fiber::topic::{Slow, Topic};
    ///
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// let clicks = Topic::<Add>::named("clicks")?;
    /// clicks.deliver_to(&counter.recipient(), Slow::Wait).wait()?.detach();
    /// clicks.publish(Add(2)).wait()?;
    /// while counter.send(Add(0)).wait()? < 2 {}
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn detach(mut self) {
        if let Some(stop) = self.guard.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits until the delivery has ended. The reply is the reason, which is an error: that of the
    /// subscription, or [`Error::ActorStopped`]. Dropping the reply ends the delivery.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    #[doc = include_str!("../doc/counter.md")]
    /// use fiber::topic::{Slow, Topic};
    ///
    /// let counter = fiber::AsyncManager::start(Counter, 0).wait()?;
    /// let clicks = Topic::<Add>::new()?;
    /// let delivery = clicks.deliver_to(&counter.recipient(), Slow::Wait).wait()?;
    /// counter.stop().wait()?;
    /// clicks.publish(Add(2)).wait()?;
    /// let error = delivery.join().wait().unwrap_err();
    /// assert!(matches!(error, fiber::Error::ActorStopped { .. }), "{error}");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn join(self) -> Reply<()> {
        let Delivery { guard, end, .. } = self;
        Reply::named("the end of a delivery", async move {
            let _guard = guard;
            end.await.unwrap_or(Ok(()))
        })
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("failed", &self.failed()).finish_non_exhaustive()
    }
}

/// The future that delivers.
struct Sending {
    messages: Arc<Messages>,
    addr: UntypedAddr,
    method: EntryRef,
    message: &'static str,
    failed: Arc<AtomicU64>,
}

impl Sending {
    /// Delivers all messages. Returns why there are no more.
    async fn run(mut self) -> Error {
        loop {
            let next = poll_fn(|context| self.messages.poll_next(context)).await;
            let delivered = match next {
                Ok(message) => self.deliver(&message).await,
                Err(error) => return error,
            };
            if let Err(error) = delivered {
                return error;
            }
        }
    }

    /// Sends a message until the actor has answered.
    ///
    /// # Errors
    /// The actor has ended.
    async fn deliver(&mut self, message: &Received) -> Result<()> {
        loop {
            let unanswered = match self.addr.call_encoded(self.method, message)?.await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(unanswered)) => unanswered,
                Err(_) => {
                    let problem = "its process stopped answering".into();
                    Unanswered::Lost(ExitReason::LinkLost(problem))
                }
            };
            match unanswered {
                Unanswered::Failed(CallFailure::Full { .. }) => {
                    tokio::time::sleep(MAILBOX_FULL).await;
                }
                Unanswered::Failed(CallFailure::Stopped(reason)) | Unanswered::Lost(reason)
                    if !self.addr.may_restart() =>
                {
                    return Err(self.addr.stopped(reason));
                }
                Unanswered::Refused(error) => return Err(error),
                other => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    let (actor, message) = (&self.addr.target.name, self.message);
                    tracing::warn!("actor `{actor}` has not handled a `{message}`: {other:?}");
                    return Ok(());
                }
            }
        }
    }
}
