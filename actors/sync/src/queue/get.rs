//! Getting the next element.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use fiber_core::{Result, block_on, forks};
use fiber_values::codec::EncodedValue;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::handle::{Location, QueueHandle};
use super::wire::Closing;
use fiber_runtime::objects::ObjectRef;
use fiber_runtime::reply::Reply;

/// The future of the next element of a queue or a pipe.
///
/// It joins the queue of consumers when it is first polled. Dropping it loses no element: one that
/// was on its way here goes to another consumer. [`Queue::get`](super::Queue::get) has an example.
#[must_use = "no element is taken before this is awaited or waited for"]
pub struct Get<T> {
    queue: QueueHandle,
    promise: Option<oneshot::Receiver<EncodedValue>>,
    element: PhantomData<fn() -> T>,
}

/// An element, or the promise of one.
pub(super) enum NextElement {
    Now(EncodedValue),
    Later(oneshot::Receiver<EncodedValue>),
}

impl<T> Get<T> {
    pub(crate) fn new(queue: &QueueHandle) -> Get<T> {
        Get { queue: queue.clone(), promise: None, element: PhantomData }
    }
}

impl<T: DeserializeOwned> Get<T> {
    /// Blocks this thread until there is an element.
    ///
    /// # Errors
    /// [`Error::OwnerEnded`](fiber_core::Error::OwnerEnded) if the queue's process has ended;
    /// [`Error::Closed`](fiber_core::Error::Closed) when the queue is closed and empty;
    /// [`Error::Decode`](fiber_core::Error::Decode), and then the element is lost;
    /// [`Error::WouldDeadlock`](fiber_core::Error::WouldDeadlock) on fiber's own threads.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let queue = fiber::Queue::new()?;
    /// queue.put(7).wait()?;
    /// assert_eq!(queue.get().wait()?, 7);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait(self) -> Result<T> {
        block_on(self)
    }

    /// Waits for at most `limit`, counted from now. The returned reply then fails with
    /// [`Error::TimedOut`](fiber_core::Error::TimedOut), and no element is lost.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    ///
    /// let queue = fiber::Queue::<u32>::new()?;
    /// let late = queue.get().timeout(Duration::from_millis(1));
    /// assert!(matches!(late.wait(), Err(fiber::Error::TimedOut { .. })));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn timeout(self, limit: Duration) -> Reply<T>
    where
        T: Send + 'static,
    {
        Reply::named(format!("an element of {}", self.queue.name()), self).timeout(limit)
    }

    pub(crate) fn poll_element(&mut self, context: &mut Context<'_>) -> Poll<Result<EncodedValue>> {
        forks::check()?;
        if self.promise.is_none() {
            self.queue.check_taking("Queue::get")?;
            let next = match self.queue.location()? {
                Location::Local(store) => {
                    let next = store.lock().get_here();
                    next.map_err(|reason| self.queue.closed(reason))?
                }
                Location::Remote(client) => client.get()?,
            };
            match next {
                NextElement::Now(element) => return Poll::Ready(Ok(element)),
                NextElement::Later(promise) => self.promise = Some(promise),
            }
        }
        let promise = self.promise.as_mut().expect("it was set above");
        let Poll::Ready(element) = Pin::new(promise).poll(context) else { return Poll::Pending };
        self.promise = None;
        if let (Ok(element), Ok(Location::Remote(client))) = (&element, self.queue.location())
            && !element.blobs.is_empty()
        {
            client.took_blobs();
        }
        Poll::Ready(element.or_else(|_| match self.queue.location()? {
            Location::Local(store) => {
                let reason = store.lock().closing().unwrap_or(Closing::Closed);
                Err(self.queue.closed(reason))
            }
            Location::Remote(client) => Err(client.broken_promise()),
        }))
    }
}

impl<T> Unpin for Get<T> {}

impl<T: DeserializeOwned> Future for Get<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        self.poll_element(context).map(|element| self.queue.decode(&element?))
    }
}

impl<T> Drop for Get<T> {
    fn drop(&mut self) {
        let Some(mut promise) = self.promise.take() else { return };
        match self.queue.location() {
            Ok(Location::Local(store)) => {
                let mut state = store.lock();
                promise.close();
                if let Ok(element) = promise.try_recv() {
                    state.return_element(element);
                }
                state.remove_closed_promises();
            }
            Ok(Location::Remote(client)) => client.withdraw(promise),
            Err(_) => {}
        }
    }
}

impl<T> fmt::Debug for Get<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Get({})", self.queue.name())
    }
}
