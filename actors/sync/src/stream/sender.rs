//! The sender of a stream's items.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use fiber_core::{Error, Result, block_on};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::pipe::PipeSender;
use crate::queue::{PipeEnd, Put};
use fiber_runtime::objects::ObjectRef;
use fiber_runtime::reply::Reply;

/// Sends the items of a [`Stream`](super::Stream) to its consumer.
///
/// The task of `Pool::stream` gets one as its last argument, and the producer of
/// [`Stream::new`](super::Stream::new) as its only one. It stays in its process: a task that lets
/// others produce items receives them by a [`Pipe`](crate::pipe::Pipe) or another stream and sends
/// them on.
///
/// When the consumer is gone, [`send`](Sender::send) fails with
/// [`Error::Closed`](fiber_core::Error::Closed), and [`is_closed`](Sender::is_closed) is true. A
/// task goes on until it ends by itself; the producer of a handler is dropped.
///
/// Clones send to the same stream. Its items are numbered in the order of the calls of `send`: a
/// task that sends from several threads has another order each time, so it can't run again
/// (`Pool::once`).
///
/// # Examples
/// ```
/// # fiber::init();
/// let squares = |count: u64, out: fiber::Sender<u64>| {
///     (0..count).try_for_each(|n| out.send(n * n).wait())
/// };
/// let pool = fiber::Pool::new(1)?;
/// let sum: fiber::Result<u64> = pool.stream(squares, 4).wait().sum();
/// assert_eq!(sum?, 14);
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct Sender<T> {
    shared: Arc<Shared>,
    item: PhantomData<fn(T)>,
}

struct Shared {
    end: PipeEnd,
    /// The number of the next item.
    next: Mutex<u64>,
}

impl<T: Serialize> Sender<T> {
    /// Sends an item. Waits while the consumer is so far behind that the stream's buffer is full.
    ///
    /// The item is encoded and sent when this method is called, also if the future is dropped.
    /// Small items that are sent while earlier ones are on their way share a message.
    ///
    /// # Errors
    /// The future, or its `wait`, fails with [`Error::Closed`](fiber_core::Error::Closed) if the
    /// consumer is gone; [`Error::OwnerEnded`](fiber_core::Error::OwnerEnded) if its process has
    /// ended; [`Error::Encode`](fiber_core::Error::Encode) or
    /// [`Error::TooLarge`](fiber_core::Error::TooLarge), and then the next item may follow.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// async fn countdown(from: u32, out: fiber::Sender<u32>) -> fiber::Result<()> {
    ///     for n in (0..from).rev() {
    ///         out.send(n).await?;
    ///     }
    ///     Ok(())
    /// }
    ///
    /// let pool = fiber::Pool::new(1)?;
    /// let numbers: Vec<u32> = pool.stream(countdown, 3).wait().collect::<fiber::Result<_>>()?;
    /// assert_eq!(numbers, [2, 1, 0]);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn send(&self, item: T) -> Put {
        let mut next = self.shared.next.lock();
        let put = Put::item(&self.shared.end.queue, &item, *next);
        *next += u64::from(!put.is_refused());
        put
    }
}

impl<T> Sender<T> {
    fn new(end: PipeEnd) -> Sender<T> {
        let shared = Arc::new(Shared { end, next: Mutex::new(0) });
        Sender { shared, item: PhantomData }
    }

    /// Returns whether the consumer is gone: no process takes items any more.
    ///
    /// Sends nothing: a message says so when the consumer goes. For producers that work long for an
    /// item.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    ///
    /// fn search(ended: fiber::sync::Event, out: fiber::Sender<u64>) -> fiber::Result<()> {
    ///     out.send(0).wait()?;
    ///     while !out.is_closed() {
    ///         std::thread::sleep(Duration::from_millis(1)); // a part of a long search
    ///     }
    ///     ended.set().wait()
    /// }
    ///
    /// let (pool, ended) = (fiber::Pool::new(1)?, fiber::sync::Event::new()?);
    /// let mut found = pool.stream(search, ended.clone()).wait();
    /// assert_eq!(found.next().transpose()?, Some(0));
    /// drop(found);
    /// ended.wait_set().wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn is_closed(&self) -> bool {
        self.shared.end.queue.check().is_err()
    }

    /// Waits until all items that were sent have arrived in the process that owns the stream.
    ///
    /// They also arrive before the task ends. Without this, some may be lost with the process, and
    /// the task sends them again when it runs again.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let produce = |out: fiber::Sender<u64>| {
    ///     out.send(1).wait()?;
    ///     out.flush().wait()?; // now the item is delivered, whatever happens to this process
    ///     out.send(2).wait()
    /// };
    /// let pool = fiber::Pool::new(1)?;
    /// assert_eq!(pool.stream(produce, ()).wait().count(), 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn flush(&self) -> Reply<()> {
        let queue = self.shared.end.queue.clone();
        let flushed = queue.flush();
        let what = format!("the arrival of the items of {}", queue.name());
        Reply::named(what, async move {
            if let Some(flushed) = flushed {
                let _ = flushed.await;
            }
            queue.check()
        })
    }

    /// Returns a value that waits, when it is dropped, until the items have arrived that were sent.
    #[doc(hidden)]
    pub fn flushing(&self) -> Flushing {
        Flushing(self.shared.end.clone())
    }
}

/// Waits in its drop until the items of a task have arrived. Its outcome may take another way.
#[doc(hidden)]
#[derive(Debug)]
pub struct Flushing(PipeEnd);

impl Flushing {
    /// Waits until the items have arrived. A consumer that is gone needs none.
    ///
    /// # Errors
    /// [`Error::OwnerEnded`] if the link to the stream's owner was lost: some may not have arrived.
    pub fn finish(self) -> Result<()> {
        let queue = self.0.queue.clone();
        drop(self);
        match queue.check() {
            Ok(()) | Err(Error::Closed { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Flushing {
    fn drop(&mut self) {
        if let Some(arrived) = self.0.queue.flush() {
            let _ = block_on(async { Ok(arrived.await) });
        }
    }
}

/// The material of a [`Sender`]. It travels in the arguments of a task, which may run again.
#[doc(hidden)]
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct SenderSeed<T>(PipeSender<T>);

impl<T> SenderSeed<T> {
    pub(super) fn new(end: PipeEnd) -> SenderSeed<T> {
        SenderSeed(PipeSender::new(end))
    }

    /// Returns the sender, whose next item is the first one.
    pub fn start(self) -> Sender<T> {
        Sender::new(self.0.end)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { shared: Arc::clone(&self.shared), item: PhantomData }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({:?})", self.shared.end)
    }
}

impl<T> fmt::Debug for SenderSeed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SenderSeed({:?})", self.0)
    }
}
