//! All elements of a queue, one after the other.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use fiber_core::{Error, Result};
use serde::de::DeserializeOwned;

use super::get::Get;
use super::handle::QueueHandle;
use fiber_runtime::blocking::{Blocking, blocking_iterator};
use fiber_runtime::objects::ObjectRef;

/// A stream of the elements of a queue, until the queue is closed and empty, or of a pipe, until
/// its other end is gone.
///
/// Other consumers get their share: each element goes to one of them. An element that can't be
/// decoded is an error in the stream, which then goes on; any other error ends it.
/// [`Queue::stream`](super::Queue::stream) has an example.
#[must_use = "no element is taken before the stream is polled"]
pub struct QueueStream<T> {
    queue: QueueHandle,
    next: Option<Get<T>>,
    ended: bool,
}

impl<T: DeserializeOwned> QueueStream<T> {
    pub(crate) fn new(queue: &QueueHandle) -> QueueStream<T> {
        QueueStream { queue: queue.clone(), next: None, ended: false }
    }

    /// Returns the elements as an iterator, which blocks this thread while the next is not there. A
    /// `for` loop over the stream does the same.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let queue = fiber::Queue::new()?;
    /// queue.put(1).wait()?;
    /// queue.put(2).wait()?;
    /// queue.close().wait()?;
    /// assert_eq!(queue.stream().wait().collect::<fiber::Result<Vec<u32>>>()?, [1, 2]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait(self) -> Blocking<QueueStream<T>> {
        Blocking::new(self)
    }

    fn conclude(&mut self, next: Result<T>) -> Option<Result<T>> {
        match next {
            Err(Error::Closed { .. }) => {
                self.ended = true;
                None
            }
            // After an element that can't be decoded, others follow.
            other => {
                self.ended = matches!(&other, Err(error) if !matches!(error, Error::Decode { .. }));
                Some(other)
            }
        }
    }
}

impl<T> Unpin for QueueStream<T> {}

blocking_iterator!(QueueStream<T>);

impl<T: DeserializeOwned> futures_core::Stream for QueueStream<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let this = &mut *self;
        let next = this.next.get_or_insert_with(|| Get::new(&this.queue));
        let Poll::Ready(element) = Pin::new(next).poll(context) else { return Poll::Pending };
        this.next = None;
        Poll::Ready(this.conclude(element))
    }
}

impl<T> fmt::Debug for QueueStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueStream({})", self.queue.name())
    }
}
