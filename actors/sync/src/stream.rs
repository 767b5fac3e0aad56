//! Streams: many values as the answer of a task or of a handler.
//!
//! A stream is a pipe for one direction whose items are numbered. The process that owns the pipe
//! ends it with a last element, which says how the producer ended. A producer that runs again
//! numbers its items from 0 again, and the reader skips those that it had.

mod owner;
mod producer;
mod sender;

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use fiber_core::{Error, Result};
use fiber_values::codec::EncodedValue;
use fiber_values::slot::Waiting;
use fiber_values::transfer::{self, Mode};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::pipe::PipeReceiver;
use crate::queue::{Get, PipeEnd, split_number};
use fiber_runtime::blocking::{Blocking, blocking_iterator};

pub use owner::StreamOwner;
pub use sender::{Flushing, Sender, SenderSeed};

/// The number of the last element of a stream, which says how its producer ended.
const END: u64 = u64::MAX;

/// A stream of the items that a task or an actor's handler sends, in their order.
///
/// `Pool::stream` returns one, and a handler may: [`Stream::new`] and [`Stream::from_stream`]
/// make it. It is a [`futures::Stream`] of `Result<T>` in async code, and an iterator in a `for`
/// loop or after [`wait`](Stream::wait).
///
/// - **End.** The stream ends with its producer. If that has failed, or its process has ended, the
///   reason is the last item, behind those that were sent before.
/// - **Flow.** The producer sends ahead of the consumer: at most half of `call_buffer` of the
///   [configuration](fiber_core::Config), or of `Pool::buffer`. Then its `send` waits.
/// - **Drop.** Dropping the stream stops the producer: see [`Sender`].
/// - **Passing on.** A stream may travel to another process, as an argument, in a message or as an
///   item of another stream. There it goes on where it has stopped here. The items go through the
///   process that owns the stream: the one that called `Pool::stream`, or that of the actor.
///   The stream ends with it.
///
/// [`futures::Stream`]: futures_core::Stream
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Pool, Sender};
///
/// fn multiples(of: u64, out: Sender<u64>) -> fiber::Result<()> {
///     (1..=3).try_for_each(|n| out.send(n * of).wait())
/// }
///
/// let pool = Pool::new(1)?;
/// let multiples = pool.stream(multiples, 5).wait();
/// assert_eq!(multiples.collect::<fiber::Result<Vec<_>>>()?, [5, 10, 15]);
/// # Ok::<(), fiber::Error>(())
/// ```
///
/// With an extension trait for streams:
/// ```
/// use fiber::prelude::*;
/// use futures_util::{StreamExt, future};
///
/// #[fiber::main]
/// async fn main() -> fiber::Result<()> {
///     let pool = Pool::new(1)?;
///     let count = |out: fiber::Sender<u64>| (0..).try_for_each(|n| out.send(n).wait());
///     let numbers = pool.stream(count, ());
///     let odd = numbers.filter(|number| future::ready(matches!(number, Ok(n) if n % 2 == 1)));
///     assert_eq!(odd.take(2).map(Result::unwrap).collect::<Vec<_>>().await, [1, 3]);
///     Ok(())
/// }
/// ```
#[must_use = "dropping the stream stops its producer: take the items with `for`, `.wait()` or as a \
              `futures::Stream`"]
pub struct Stream<T> {
    state: State<T>,
}

enum State<T> {
    Reading(Reader<T>),
    Failed(Error),
    Ended,
}

struct Reader<T> {
    receiver: Option<PipeReceiver<T>>,
    /// The number of the next item.
    next: u64,
    get: Mutex<Option<Get<T>>>,
    /// Elements that have travelled with the stream, or are about to.
    early: Mutex<VecDeque<EncodedValue>>,
    /// Why the producer failed, in the process that knows it.
    outcome: Option<Arc<OnceLock<Error>>>,
    /// Whether a task that waits for an item lends its slot, because a task of its pool makes it.
    lends_slot: bool,
    waiting: Option<Waiting>,
}

/// A stream as it travels.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
enum Encoded<T> {
    Reading {
        /// `None` if the last element is an early one.
        receiver: Option<PipeReceiver<T>>,
        next: u64,
        early: VecDeque<EncodedValue>,
        lends_slot: bool,
    },
    Failed(String),
    Ended,
}

fn is_end(element: &EncodedValue) -> bool {
    split_number(element.clone()).is_some_and(|(number, _)| number == END)
}

/// Makes a stream of this process that holds so many bytes: what its sender is made of, its owner,
/// and the stream.
#[doc(hidden)]
#[track_caller]
pub fn channel<T>(bytes: u64) -> Result<(SenderSeed<T>, StreamOwner, Stream<T>)> {
    let (writer, reader) = PipeEnd::stream_pair(usize::try_from(bytes).unwrap_or(usize::MAX))?;
    let outcome = Arc::new(OnceLock::new());
    let owner = StreamOwner::new(writer.clone(), Arc::clone(&outcome));
    let reader = Reader::new(Some(PipeReceiver::new(reader)), 0, Some(outcome));
    Ok((SenderSeed::new(writer), owner, Stream { state: State::Reading(reader) }))
}

impl<T> Reader<T> {
    fn new(
        receiver: Option<PipeReceiver<T>>,
        next: u64,
        outcome: Option<Arc<OnceLock<Error>>>,
    ) -> Reader<T> {
        let get = Mutex::new(receiver.as_ref().map(|receiver| Get::new(&receiver.end.queue)));
        let early = Mutex::default();
        Reader { receiver, next, get, early, outcome, lends_slot: false, waiting: None }
    }

    fn poll_element(&mut self, context: &mut Context<'_>) -> Poll<Result<EncodedValue>>
    where
        T: DeserializeOwned,
    {
        if let Some(element) = self.early.get_mut().pop_front() {
            return Poll::Ready(Ok(element));
        }
        match self.get.get_mut() {
            Some(get) => get.poll_element(context),
            None => {
                let problem = "it has no last element".to_string();
                Poll::Ready(Err(Error::StreamFailed { problem }))
            }
        }
    }

    fn decode(&self, element: &EncodedValue) -> Result<T>
    where
        T: DeserializeOwned,
    {
        match &self.receiver {
            Some(receiver) => receiver.end.queue.decode(element),
            None => element.decode(),
        }
    }

    /// Returns the stream as it travels.
    fn encoded(&self) -> Encoded<T> {
        let (mut get, mut early) = (self.get.lock(), self.early.lock());
        if let Some(receiver) = &self.receiver {
            // An element that has come for the reader here goes back, for the one there.
            *get = Some(Get::new(&receiver.end.queue));
            if transfer::mode() == Mode::Once {
                early.extend(receiver.end.queue.take_ready());
            }
        }
        let is_whole = early.back().is_some_and(is_end);
        Encoded::Reading {
            receiver: self.receiver.clone().filter(|_| !is_whole),
            next: self.next,
            early: early.clone(),
            lends_slot: self.lends_slot,
        }
    }
}

impl<T> Stream<T> {
    /// Returns a stream whose only item is this error.
    #[doc(hidden)]
    pub fn failed(error: Error) -> Stream<T> {
        Stream { state: State::Failed(error) }
    }

    /// Lets a task that waits for an item lend its slot.
    #[doc(hidden)]
    pub fn lend_slot(&mut self) {
        if let State::Reading(reader) = &mut self.state {
            reader.lends_slot = true;
        }
    }
}

impl<T: DeserializeOwned> Stream<T> {
    /// Returns the items as an iterator, which blocks this thread until the next one is there. A
    /// `for` loop over the stream does the same.
    ///
    /// Dropping the iterator drops the stream: a loop over `&mut stream` leaves it for the items
    /// that were not taken.
    ///
    /// # Errors
    /// Each item may be the last, and say why: [`Error::Task`], [`Error::WorkerDied`] and others as
    /// of other calls; [`Error::OwnerEnded`] if the process that owns the stream has ended;
    /// [`Error::StreamFailed`] with the reason in words if another process knows it. After an
    /// [`Error::Decode`] the next items follow.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let pool = fiber::Pool::new(1)?;
    /// let fails = |out: fiber::Sender<u64>| {
    ///     out.send(1).wait().unwrap();
    ///     panic!("there is no other");
    /// };
    /// let mut items = pool.stream(fails, ()).wait();
    /// assert_eq!(items.next().unwrap()?, 1);
    /// assert!(matches!(items.next(), Some(Err(fiber::Error::Task { .. }))));
    /// assert!(items.next().is_none());
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait(self) -> Blocking<Stream<T>> {
        Blocking::new(self)
    }

    /// Takes an element of the pipe. Returns `None` for an item that the stream has had.
    fn take(&mut self, element: EncodedValue) -> Option<Option<Result<T>>> {
        let State::Reading(reader) = &mut self.state else { return Some(None) };
        let Some((number, element)) = split_number(element) else {
            let problem = "an item has no number".to_string();
            return Some(self.end(Some(Error::StreamFailed { problem })));
        };
        if number == END {
            let problem =
                element.decode::<Option<String>>().unwrap_or_else(|e| Some(e.to_string()));
            let error = problem.map(|problem| {
                let known = reader.outcome.as_ref().and_then(|outcome| outcome.get());
                known.cloned().unwrap_or(Error::StreamFailed { problem })
            });
            return Some(self.end(error));
        }
        if number > reader.next {
            let problem = format!(
                "the items from number {} to {} went to another copy of the stream",
                reader.next,
                number - 1
            );
            return Some(self.end(Some(Error::StreamFailed { problem })));
        }
        // Handles in an item that is skipped count until they are decoded.
        let item = reader.decode(&element);
        if number < reader.next {
            return None;
        }
        reader.next += 1;
        Some(Some(item))
    }

    fn end(&mut self, error: Option<Error>) -> Option<Result<T>> {
        self.state = State::Ended;
        error.map(Err)
    }
}

impl<T: DeserializeOwned> futures_core::Stream for Stream<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        loop {
            let State::Reading(reader) = &mut self.state else {
                let last = match mem::replace(&mut self.state, State::Ended) {
                    State::Failed(error) => Some(Err(error)),
                    State::Reading(_) | State::Ended => None,
                };
                return Poll::Ready(last);
            };
            let element = reader.poll_element(context);
            if reader.lends_slot {
                Waiting::note(&mut reader.waiting, &element);
            }
            let item = match ready!(element) {
                Ok(element) => self.take(element),
                Err(error) => Some(self.end(Some(error))),
            };
            if let Some(item) = item {
                return Poll::Ready(item);
            }
        }
    }
}

blocking_iterator!(Stream<T>);

impl<T> Serialize for Stream<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let encoded = match &self.state {
            State::Reading(reader) => reader.encoded(),
            State::Failed(error) => Encoded::Failed(error.to_string()),
            State::Ended => Encoded::Ended,
        };
        encoded.serialize(serializer)
    }
}

impl<'de, T> Deserialize<'de> for Stream<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Stream<T>, D::Error> {
        let state = match Encoded::deserialize(deserializer)? {
            Encoded::Reading { receiver, next, early, lends_slot } => {
                let early = Mutex::new(early);
                State::Reading(Reader { early, lends_slot, ..Reader::new(receiver, next, None) })
            }
            Encoded::Failed(problem) => State::Failed(Error::StreamFailed { problem }),
            Encoded::Ended => State::Ended,
        };
        Ok(Stream { state })
    }
}

// The stream contains no `T` in place.
impl<T> Unpin for Stream<T> {}

impl<T> fmt::Debug for Stream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::Reading(reader) => write!(f, "Stream({:?})", reader.receiver),
            State::Failed(error) => write!(f, "Stream({error})"),
            State::Ended => f.write_str("Stream(ended)"),
        }
    }
}
