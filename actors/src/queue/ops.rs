//! Putting and getting.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fiber_core::{Error, Result, block_on, codec};
use futures_util::future::{Either, select};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;
use tokio::sync::oneshot;

use super::blocks::Encoded;
use super::client::Got;
use super::core::{Core, Side};
use super::wire::{ADMITTED, Ask, Closing};
use crate::blocking::Blocking;
use crate::mesh::Alarm;
use crate::objects::{Asked, Ticket, Waiting};
use crate::runtime::Runtime;

/// An element on its way into a queue.
///
/// It is sent at once. With a bounded queue, dropping this takes the element back if there has been
/// no room for it yet.
#[must_use = "the outcome tells whether it worked: use `.await` or `.wait()`"]
pub struct Put {
    core: Core,
    state: Putting,
}

enum Putting {
    Done(Option<Result<()>>),
    /// It is among what is to be sent, which is a lot.
    Room(oneshot::Receiver<()>),
    /// It is there, and there may be no room.
    One {
        asked: Asked,
        ticket: Ticket,
    },
}

impl Put {
    pub(crate) fn of<T: Serialize>(core: &Core, element: &T) -> Put {
        Put::new(core, core.encode(element))
    }

    fn new(core: &Core, element: Result<Encoded>) -> Put {
        let state = element
            .and_then(|element| start(core, element))
            .unwrap_or_else(|error| Putting::Done(Some(Err(error))));
        Put { core: core.clone(), state }
    }

    /// Blocks this thread until the element is on its way, or in the queue if that is bounded.
    ///
    /// # Errors
    /// [`Error::OwnerEnded`], [`Error::Closed`], [`Error::TooLarge`], [`Error::Encode`];
    /// [`Error::WouldDeadlock`] on fiber's own thread.
    pub fn wait(self) -> Result<()> {
        block_on(self)
    }

    /// Waits for at most `limit` from now, then takes the element back and gives up with
    /// [`Error::TimedOut`].
    ///
    /// What was put into a queue that is not bounded is not taken back: then the time-out says that
    /// what was put before is not taken.
    pub fn timeout(self, limit: Duration) -> Waiting<()> {
        let what = format!("putting into {}", self.core.name());
        let timed_out = Error::TimedOut { what: what.clone(), limit };
        let alarm = Runtime::get().map(|runtime| Alarm::after(runtime.mesh(), limit));
        Waiting::new(what, async move {
            let put = match select(self, alarm?).await {
                Either::Left((outcome, _)) => return outcome,
                Either::Right(((), put)) => put,
            };
            if let Putting::One { ticket, .. } = put.state {
                let unput = put.core.ask(&Ask::Unput { ticket })?;
                if !codec::decode::<bool>(&unput.await?)? {
                    // It got in, or was refused, just now.
                    return put.await;
                }
            }
            Err(timed_out)
        })
    }
}

fn start(core: &Core, element: Encoded) -> Result<Putting> {
    let refused = match core.side()? {
        Side::Here(store) => {
            let mut state = store.lock();
            if let Some(closing) = state.closing() {
                return Err(core.closed(closing));
            }
            match state.put_here(element) {
                Ok(()) => return Ok(Putting::Done(Some(Ok(())))),
                Err(element) => element,
            }
        }
        Side::There(client) if !core.is_bounded() => {
            return Ok(match client.put(element)? {
                None => Putting::Done(Some(Ok(()))),
                Some(room) => Putting::Room(room),
            });
        }
        Side::There(_) => element,
    };
    let ticket = Ticket::new();
    let element = ByteBuf::from(refused.element());
    Ok(Putting::One { asked: core.ask(&Ask::PutOne { ticket, element })?, ticket })
}

impl Future for Put {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let outcome = match &mut this.state {
            Putting::Done(outcome) => outcome.take().expect("a future is not polled after its end"),
            Putting::Room(room) => match Pin::new(room).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => Ok(()),
                Poll::Ready(Err(_)) => match this.core.side() {
                    Ok(Side::There(client)) => client.problem(),
                    _ => Ok(()),
                },
            },
            Putting::One { asked, .. } => match Pin::new(asked).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(answer) => answer.and_then(|answer| match answer.first() {
                    Some(&ADMITTED) | None => Ok(()),
                    Some(&other) => Err(this.core.closed(Closing::from_byte(other))),
                }),
            },
        };
        this.state = Putting::Done(None);
        Poll::Ready(outcome)
    }
}

impl Drop for Put {
    fn drop(&mut self) {
        if let Putting::One { ticket, .. } = self.state {
            // Whether it was still time, nobody wants to know.
            drop(self.core.ask(&Ask::Unput { ticket }));
        }
    }
}

impl fmt::Debug for Put {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Put({})", self.core.name())
    }
}

/// The next element of a queue.
///
/// It takes its place among those who wait when it is first polled. Dropped, it loses nothing: an
/// element that was on its way here goes to another.
#[must_use = "nothing is taken before this is awaited or waited for"]
pub struct Get<T> {
    core: Core,
    promise: Option<oneshot::Receiver<Bytes>>,
    element: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Get<T> {
    pub(crate) fn new(core: &Core) -> Get<T> {
        Get { core: core.clone(), promise: None, element: PhantomData }
    }

    /// Blocks this thread until there is an element.
    ///
    /// # Errors
    /// [`Error::OwnerEnded`]; [`Error::Closed`], when nothing is left; [`Error::Decode`];
    /// [`Error::WouldDeadlock`] on fiber's own thread.
    pub fn wait(self) -> Result<T> {
        block_on(self)
    }

    /// Waits for at most `limit` from now, then gives up with [`Error::TimedOut`].
    pub fn timeout(self, limit: Duration) -> Waiting<T>
    where
        T: Send + 'static,
    {
        Waiting::new(format!("an element of {}", self.core.name()), self).timeout(limit)
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes>> {
        if self.promise.is_none() {
            let got = match self.core.side()? {
                Side::Here(store) => {
                    let mut state = store.lock();
                    match state.get_here() {
                        Some(Ok(element)) => Got::Element(element),
                        Some(Err(promise)) => Got::Later(promise),
                        None => {
                            let closing = state.closing().unwrap_or(Closing::Closed);
                            return Poll::Ready(Err(self.core.closed(closing)));
                        }
                    }
                }
                Side::There(client) => client.get()?,
            };
            match got {
                Got::Element(element) => return Poll::Ready(Ok(element)),
                Got::Later(promise) => self.promise = Some(promise),
            }
        }
        let promise = self.promise.as_mut().expect("it was set");
        let Poll::Ready(element) = Pin::new(promise).poll(context) else { return Poll::Pending };
        self.promise = None;
        Poll::Ready(element.or_else(|_| match self.core.side()? {
            Side::Here(store) => {
                Err(self.core.closed(store.lock().closing().unwrap_or(Closing::Closed)))
            }
            Side::There(client) => Err(client.broken()),
        }))
    }
}

impl<T> Unpin for Get<T> {}

impl<T: DeserializeOwned> Future for Get<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.poll_bytes(context).map(|element| self.core.decode(&element?))
    }
}

impl<T> Drop for Get<T> {
    fn drop(&mut self) {
        let Some(mut promise) = self.promise.take() else { return };
        match self.core.side() {
            Ok(Side::Here(store)) => {
                let mut state = store.lock();
                promise.close();
                if let Ok(element) = promise.try_recv() {
                    state.give_back(&element);
                }
                state.forget_promises();
            }
            Ok(Side::There(client)) => client.forget(promise),
            Err(_) => {}
        }
    }
}

impl<T> fmt::Debug for Get<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Get({})", self.core.name())
    }
}

/// All elements of a queue, one after the other, until it is closed and nothing is left.
#[must_use = "nothing is taken before this is polled"]
pub struct QueueStream<T> {
    core: Core,
    next: Option<Get<T>>,
    ended: bool,
}

impl<T: DeserializeOwned> QueueStream<T> {
    pub(crate) fn new(core: &Core) -> QueueStream<T> {
        QueueStream { core: core.clone(), next: None, ended: false }
    }

    /// Returns the elements as an iterator, which blocks this thread while the next is not there. A
    /// `for` loop over this does the same.
    pub fn wait(self) -> Blocking<QueueStream<T>> {
        Blocking::new(self)
    }

    fn conclude(&mut self, next: Result<T>) -> Option<Result<T>> {
        match next {
            Err(Error::Closed { .. }) => {
                self.ended = true;
                None
            }
            // One element that can't be read says nothing of the others.
            other => {
                self.ended = matches!(&other, Err(error) if !matches!(error, Error::Decode { .. }));
                Some(other)
            }
        }
    }
}

impl<T> Unpin for QueueStream<T> {}

impl<T: DeserializeOwned> IntoIterator for QueueStream<T> {
    type Item = Result<T>;
    type IntoIter = Blocking<QueueStream<T>>;

    /// As [`wait`](QueueStream::wait).
    fn into_iter(self) -> Blocking<QueueStream<T>> {
        self.wait()
    }
}

impl<'a, T: DeserializeOwned> IntoIterator for &'a mut QueueStream<T> {
    type Item = Result<T>;
    type IntoIter = Blocking<&'a mut QueueStream<T>>;

    /// As [`wait`](QueueStream::wait); the stream is there for the rest.
    fn into_iter(self) -> Blocking<&'a mut QueueStream<T>> {
        Blocking::new(self)
    }
}

impl<T: DeserializeOwned> futures_core::Stream for QueueStream<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let this = &mut *self;
        let next = this.next.get_or_insert_with(|| Get::new(&this.core));
        let Poll::Ready(element) = Pin::new(next).poll(context) else { return Poll::Pending };
        this.next = None;
        Poll::Ready(this.conclude(element))
    }
}

impl<T> fmt::Debug for QueueStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueStream({})", self.core.name())
    }
}
