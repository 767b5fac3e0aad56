//! The messages of a topic as a stream.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use fiber_core::Result;
use fiber_runtime::blocking::{Blocking, blocking_iterator};
use fiber_values::codec;
use futures_core::Stream;
use serde::de::DeserializeOwned;

use super::client::Messages;

/// A stream of the messages of a topic. Dropping it ends the subscription.
///
/// A message that can't be decoded is an error in the stream, which then goes on; any other error
/// ends it: [`Error::TooSlow`](fiber_core::Error::TooSlow) with
/// [`Slow::End`](super::Slow::End), [`Error::OwnerEnded`](fiber_core::Error::OwnerEnded) when the
/// topic's process, or the link to it, is lost, and [`Error::Forked`](fiber_core::Error::Forked).
///
/// An actor takes the messages by `ctx.add_stream`.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::prelude::*;
/// use fiber::topic::{Slow, Subscription, Topic};
///
/// struct Sum(u32);
///
/// impl Actor for Sum {
///     type Context = Context<Self>;
/// }
///
/// impl StreamHandler<fiber::Result<u32>> for Sum {
///     fn handle(&mut self, message: fiber::Result<u32>, _: &mut Context<Self>) {
///         self.0 += message.expect("no message is lost");
///         if self.0 == 6 {
///             System::current().stop();
///         }
///     }
/// }
///
/// let system = System::new();
/// system.block_on(async {
///     let topic = Topic::new()?;
///     let subscription: Subscription<u32> = topic.subscribe(Slow::Wait).await?;
///     Sum::create(|ctx| {
///         ctx.add_stream(subscription);
///         Sum(0)
///     });
///     for message in 1..=3 {
///         topic.publish(message).await?;
///     }
///     fiber::Result::<()>::Ok(())
/// })?;
/// system.run().unwrap();
/// # Ok::<(), fiber::Error>(())
/// ```
#[must_use = "a subscription ends when it is dropped"]
pub struct Subscription<M> {
    messages: Messages,
    ended: bool,
    message: PhantomData<fn() -> M>,
}

impl<M> Subscription<M> {
    pub(super) fn new(messages: Messages) -> Subscription<M> {
        Subscription { messages, ended: false, message: PhantomData }
    }

    /// Returns how many messages it has missed, because it keeps the newest alone:
    /// [`Slow::KeepNewest`](super::Slow::KeepNewest), which has an example.
    pub fn missed(&self) -> u64 {
        self.messages.missed()
    }
}

impl<M: DeserializeOwned> Subscription<M> {
    /// Returns the messages as an iterator, which blocks this thread while the next is not there. A
    /// `for` loop over the subscription does the same.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::topic::{Slow, Topic};
    ///
    /// let topic = Topic::<u32>::new()?;
    /// let mut messages = topic.subscribe(Slow::Wait).wait()?.wait();
    /// topic.publish(7).wait()?;
    /// assert_eq!(messages.next().unwrap()?, 7);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait(self) -> Blocking<Subscription<M>> {
        Blocking::new(self)
    }
}

impl<M> Unpin for Subscription<M> {}

impl<M: DeserializeOwned> Stream for Subscription<M> {
    type Item = Result<M>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<M>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(match ready!(self.messages.poll_next(context)) {
            Ok(message) => codec::decode_with(&message, &message.blobs),
            Err(error) => {
                self.ended = true;
                Err(error)
            }
        }))
    }
}

blocking_iterator!(Subscription<M>);

impl<M> fmt::Debug for Subscription<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subscription({})", self.messages.client().what())
    }
}
