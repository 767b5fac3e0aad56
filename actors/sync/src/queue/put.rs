//! Putting an element in.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use fiber_core::{Error, Result, block_on, forks};
use fiber_values::codec;
use futures_util::future::{Either, select};
use serde::Serialize;
use tokio::sync::oneshot;

use super::encoded::Encoded;
use super::handle::{Location, QueueHandle, QueueKind};
use super::wire::{ADMITTED, Closing, Operation};
use fiber_runtime::mesh::Alarm;
use fiber_runtime::objects::{ObjectRef, Response, Ticket};
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::Runtime;

/// The future of an element that is put into a queue.
///
/// The element is sent at once. It is ready when the element is on its way, or, with a bounded
/// queue, when the element is in, or, with a durable queue, when it is on the disk. Dropping the
/// future withdraws an element that waits for room in the queue.
#[must_use = "it says whether the element was put in: use `.await` or `.wait()`"]
pub struct Put {
    queue: QueueHandle,
    state: PutState,
}

/// After how many items of a stream its producer yields: the first of them travel with the answer
/// of a handler, which should not wait for many.
const YIELD: u64 = 16;

enum PutState {
    Done(Option<Result<()>>),
    /// The element is in this process's next frame, which is too long for more elements.
    WaitingForRoom(oneshot::Receiver<()>),
    /// The item of a stream is in. Its producer lets other futures of its thread go first.
    Yielding,
    /// The element of a stream waits for room at its owner. It is not withdrawn, because later ones
    /// may follow.
    Following(Response),
    /// The owner has the element, and answers when it is in the queue.
    Sent {
        response: Response,
        ticket: Ticket,
    },
}

impl Put {
    pub(crate) fn new<T: Serialize>(queue: &QueueHandle, element: &T) -> Put {
        let state = queue
            .encode(element)
            .and_then(|element| put(queue, element))
            .unwrap_or_else(|error| PutState::Done(Some(Err(error))));
        Put { queue: queue.clone(), state }
    }

    /// Sends an item of a stream with its number.
    pub(crate) fn item<T: Serialize>(queue: &QueueHandle, item: &T, number: u64) -> Put {
        let state = queue.encode_item(item).and_then(|mut item| {
            item.set_number(number);
            put(queue, item)
        });
        let state = match state {
            Ok(PutState::Sent { response, .. }) => PutState::Following(response),
            // A producer that never waits would keep its thread.
            Ok(PutState::Done(_)) if number % YIELD == YIELD - 1 => PutState::Yielding,
            Ok(state) => state,
            Err(error) => PutState::Done(Some(Err(error))),
        };
        Put { queue: queue.clone(), state }
    }

    /// Returns whether the element was refused at once.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.state, PutState::Done(Some(Err(_))))
    }

    /// Blocks this thread until the element is on its way, or in the queue if that is bounded.
    ///
    /// # Errors
    /// [`Error::OwnerEnded`] if the queue's process has ended; [`Error::Closed`],
    /// [`Error::TooLarge`], [`Error::Encode`]; [`Error::WouldDeadlock`] on fiber's own threads.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let queue = fiber::Queue::new()?;
    /// queue.put(7).wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait(self) -> Result<()> {
        block_on(self)
    }

    /// Waits for at most `limit`, counted from now. The returned reply then withdraws the element
    /// and fails with [`Error::TimedOut`].
    ///
    /// An element of an unbounded queue is not withdrawn: there the time-out says that the owner
    /// does not keep up with earlier elements.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    ///
    /// let queue = fiber::Queue::bounded(1)?;
    /// queue.put(1).wait()?;
    /// let second = queue.put(2).timeout(Duration::from_millis(1));
    /// assert!(matches!(second.wait(), Err(fiber::Error::TimedOut { .. })));
    /// assert_eq!(queue.len().wait()?, 1);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn timeout(self, limit: Duration) -> Reply<()> {
        let what = format!("putting into {}", self.queue.name());
        let timed_out = Error::TimedOut { what: what.clone(), limit };
        let alarm = Runtime::get().map(|runtime| Alarm::after(runtime.mesh(), limit));
        Reply::named(what, async move {
            let put = match select(self, alarm?).await {
                Either::Left((outcome, _)) => return outcome,
                Either::Right(((), put)) => put,
            };
            if let PutState::Sent { ticket, .. } = put.state {
                let withdrawn = put.queue.request(&Operation::WithdrawPut(ticket));
                if !codec::decode::<bool>(&withdrawn.await?)? {
                    // The element got in, or was refused, just before.
                    return put.await;
                }
            }
            Err(timed_out)
        })
    }
}

fn put(queue: &QueueHandle, element: Encoded) -> Result<PutState> {
    let element = match queue.location()? {
        Location::Local(store) => {
            let mut state = store.lock();
            if let Some(reason) = state.closing() {
                return Err(queue.closed(reason));
            }
            match state.put_here(element) {
                Ok(()) => return Ok(PutState::Done(Some(Ok(())))),
                Err(element) => element,
            }
        }
        Location::Remote(client) if *queue.kind() == QueueKind::Unbounded => {
            return Ok(match client.put(element)? {
                None => PutState::Done(Some(Ok(()))),
                Some(room) => PutState::WaitingForRoom(room),
            });
        }
        Location::Remote(_) => element,
    };
    let ticket = queue.ticket();
    let element = element.into_element();
    Ok(PutState::Sent { response: queue.request(&Operation::Put(ticket, element)), ticket })
}

impl Future for Put {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        forks::check()?;
        let this = &mut *self;
        let outcome = match &mut this.state {
            PutState::Yielding => {
                this.state = PutState::Done(Some(Ok(())));
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            PutState::Done(outcome) => {
                outcome.take().expect("a future is not polled after its end")
            }
            PutState::WaitingForRoom(room) => match Pin::new(room).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => Ok(()),
                Poll::Ready(Err(_)) => match this.queue.location() {
                    Ok(Location::Remote(client)) => client.check(),
                    _ => Ok(()),
                },
            },
            PutState::Following(response) | PutState::Sent { response, .. } => {
                match Pin::new(response).poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(answer) => answer.and_then(|answer| match answer.first() {
                        Some(&ADMITTED) | None => Ok(()),
                        Some(&reason) => Err(this.queue.closed(Closing::from_byte(reason))),
                    }),
                }
            }
        };
        this.state = PutState::Done(None);
        Poll::Ready(outcome)
    }
}

impl Drop for Put {
    fn drop(&mut self) {
        if let PutState::Sent { ticket, .. } = self.state {
            // The answer, whether the element was still outside, is of no use here.
            drop(self.queue.request(&Operation::WithdrawPut(ticket)));
        }
    }
}

impl fmt::Debug for Put {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Put({})", self.queue.name())
    }
}
