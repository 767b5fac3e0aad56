//! Queues between processes.

mod blocks;
mod builder;
mod client;
mod delivery;
mod encoded;
mod get;
mod handle;
mod name;
mod pipe_end;
mod put;
mod store;
mod stream;
mod wire;

use std::marker::PhantomData;

use fiber_core::{Error, Result};
use fiber_values::codec::EncodedValue;
use fiber_values::transfer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::handle::{Location, QueueHandle};
use self::wire::{Closing, Operation};
use crate::sync::generic_handle;
use fiber_runtime::objects::ObjectRef;
use fiber_runtime::reply::Reply;

pub use builder::QueueBuilder;
pub use delivery::Delivery;
pub(crate) use encoded::split_number;
pub use get::Get;
pub(crate) use pipe_end::{PipeEnd, PipeRole};
pub use put::Put;
pub use stream::QueueStream;

/// A queue between any number of processes.
///
/// It lives in the process that made it, its *owner*. Its handles work in every process of the
/// program: as arguments of tasks, fields of messages, or elements of other queues. The queue ends,
/// with the elements in it, when the last handle in any process is gone, and with its owner. Then
/// operations fail with [`Error::OwnerEnded`].
///
/// - **Order.** Elements of one process come out in the order in which it put them in.
/// - **Fairness.** An element goes to the process that has waited longest. A process that gets many
///   elements prefetches some, as long as no other consumer waits for them. They go back when one
///   does.
/// - **Delivery.** Each element goes to one [`get`](Queue::get). When a process dies, the elements
///   that it prefetched go to others, and some of those that it got just before may be delivered
///   again. An element that was on its way to a waiting `get` of that process is lost. Elements
///   from [`get_acknowledged`](Queue::get_acknowledged) are delivered again if and only if they
///   were not acknowledged.
/// - **Durability.** A [durable](QueueBuilder::durable) queue keeps its elements on the disk until
///   they are acknowledged, also when the program ends and is started again.
/// - **Lost links.** A process whose link to the owner is lost counts as dead. If it lives, its
///   handles of the queue stay unusable; another handle that the owner sends it works.
/// - **Cost.** Each element is encoded once and decoded once. Large arrays in it
///   ([`Array`](fiber_values::Array)) are passed on by reference within a host. In the owner
///   itself, `put` and `get` send no messages. Elements that another process puts into an unbounded
///   queue while earlier ones are in flight share a frame. `put` returns when an element is on its
///   way; [`flush`](Queue::flush) waits until all have arrived. They also arrive before the process
///   exits in order, and before its next operation on an object in [`sync`](crate::sync).
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Process, Queue};
///
/// let (questions, answers) = (Queue::<u32>::new()?, Queue::new()?);
/// let square = |questions: Queue<u32>, answers: Queue<u32>| {
///     for question in questions.stream().wait() {
///         answers.put(question.unwrap().pow(2)).wait().unwrap();
///     }
/// };
/// let process = Process::spawn(square, (questions.clone(), answers.clone()));
/// for n in 0..100 {
///     questions.put(n).wait()?;
/// }
/// questions.close().wait()?;
/// assert_eq!(answers.stream().wait().take(100).sum::<Result<u32, _>>()?, 328_350);
/// # process.wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Queue<T> {
    handle: QueueHandle,
    marker: PhantomData<fn(T) -> T>,
}

generic_handle!(Queue<T>);

impl<T: Serialize + DeserializeOwned + Send + 'static> Queue<T> {
    /// Makes a queue that holds any number of elements. This process owns it.
    ///
    /// It starts no process. The elements stay in this process's memory until they are taken;
    /// beyond the limit of all its values, the option `value_memory`, in a file. If that can't be
    /// written, producers wait as for a bounded queue, and a line on standard error says so.
    /// [`bounded`](Queue::bounded) sets a limit of the queue's own.
    ///
    /// # Errors
    /// [`Error::NotInitialized`], a wrong configuration, or an error of the system.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let names = fiber::Queue::new()?;
    /// names.put("Ada".to_string()).wait()?;
    /// assert_eq!(names.get().wait()?, "Ada");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn new() -> Result<Queue<T>> {
        Queue::builder().build()
    }

    /// Makes a queue that holds at most `capacity` elements: further puts wait. This process owns
    /// it.
    ///
    /// Elements that consumers have prefetched count, elements that wait to be acknowledged do not.
    /// Each [`put`](Queue::put) of another process is a round trip, because it waits until its
    /// element is in.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `capacity` is 0; otherwise as [`new`](Queue::new).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let queue = fiber::Queue::bounded(1)?;
    /// queue.put("first".to_string()).wait()?;
    /// let second = queue.put("second".to_string()); // there is no room for it yet
    /// assert_eq!(queue.get().wait()?, "first");
    /// second.wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn bounded(capacity: usize) -> Result<Queue<T>> {
        if capacity == 0 {
            let problem = "a queue for no elements can't hold one: choose 1 or more";
            return Err(Error::invalid("Queue::bounded", problem));
        }
        Queue::builder().capacity(capacity).build()
    }

    /// Returns a builder of a queue, for a durable one. [`QueueBuilder`] has an example.
    pub fn builder() -> QueueBuilder<T> {
        QueueBuilder::new()
    }

    /// Puts an element in, at once or when there is room.
    ///
    /// The element is encoded when this method is called. In the queue's owner it then goes into
    /// the queue, without a message; other processes send it at once.
    ///
    /// The returned future is ready when the element is in. The exception is an unbounded queue of
    /// another process: there it is ready at once, unless more than 256 KiB of elements wait behind
    /// the two frames in flight. An unbounded queue of this process has room unless values take as
    /// much memory as they may.
    ///
    /// Its errors are [`Error::Closed`], [`Error::OwnerEnded`], [`Error::Encode`] and
    /// [`Error::TooLarge`]. If the owner dies, elements that were put but not taken are lost.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let queue = fiber::Queue::new()?;
    /// for n in 0..3 {
    ///     queue.put(n).wait()?;
    /// }
    /// assert_eq!(queue.len().wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn put(&self, element: T) -> Put {
        Put::new(&self.handle, &element)
    }

    /// Puts an element in if there is room. Returns `Err` with the element if there is none.
    ///
    /// It does not wait for room, but the reply waits for the owner's answer: one round trip.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let queue = fiber::Queue::bounded(1)?;
    /// assert_eq!(queue.try_put(1).wait()?, Ok(()));
    /// assert_eq!(queue.try_put(2).wait()?, Err(2));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn try_put(&self, element: T) -> Reply<Result<(), T>> {
        let put =
            self.handle.encode(&element).map(|encoded| Operation::TryPut(encoded.into_element()));
        let handle = self.handle.clone();
        self.handle.call_then("putting into", put, move |fits: Result<bool, Closing>| {
            let fits = fits.map_err(|reason| handle.closed(reason))?;
            Ok(if fits { Ok(()) } else { Err(element) })
        })
    }

    /// Takes the next element, when there is one.
    ///
    /// The returned [`Get`] joins the queue of consumers when it is first polled. A process that
    /// gets many elements prefetches some, so most of its calls send no message. It fails with
    /// [`Error::Closed`] when the queue is closed and empty, and with [`Error::OwnerEnded`] when
    /// the owner has died.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Process, Queue};
    ///
    /// let greetings = Queue::<String>::new()?;
    /// let greet = |greetings: Queue<String>| greetings.put("hello".to_string()).wait();
    /// let process = Process::builder().try_spawn(greet, greetings.clone());
    /// assert_eq!(greetings.get().wait()?, "hello"); // waits for the other process
    /// process.wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn get(&self) -> Get<T> {
        Get::new(&self.handle)
    }

    /// Takes the next element, if there is one that no process has prefetched. It is a round trip
    /// to the owner, and returns `None` if there is no element, also when the queue is closed.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let queue = fiber::Queue::new()?;
    /// assert_eq!(queue.try_get().wait()?, None);
    /// queue.put(7).wait()?;
    /// assert_eq!(queue.try_get().wait()?, Some(7));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn try_get(&self) -> Reply<Option<T>> {
        let get = self.handle.check_taking("Queue::try_get").map(|()| Operation::TryGet);
        self.handle.call_then("getting from", get, |element: Option<EncodedValue>| {
            element.map(|element| element.decode()).transpose()
        })
    }

    /// Takes the next element, when there is one. This process has to
    /// [acknowledge](Delivery::acknowledge) it.
    ///
    /// If the process dies before, or drops the delivery, the element goes back to its position in
    /// the queue, and to another consumer. Nothing is prefetched, so each element costs a round
    /// trip, and a second one to acknowledge it. Dropping the reply gives up the place among the
    /// consumers.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let jobs = fiber::Queue::new()?;
    /// jobs.put("sweep".to_string()).wait()?;
    /// drop(jobs.get_acknowledged().wait()?);
    /// let job = jobs.get_acknowledged().wait()?;
    /// assert_eq!(*job, "sweep");
    /// job.acknowledge().wait()?;
    /// assert!(jobs.is_empty().wait()?);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn get_acknowledged(&self) -> Reply<Delivery<T>> {
        let ticket = self.handle.ticket();
        let response = self.handle.request(&Operation::GetDelivery(ticket));
        let withdraw = self.handle.send_on_drop(Operation::WithdrawGet(ticket));
        Reply::named(format!("an element of {}", self.handle.name()), async move {
            let delivered: Result<(u64, EncodedValue), Closing> =
                EncodedValue::from(response.await?).decode()?;
            let handle = withdraw.object().clone();
            withdraw.disarm();
            let (number, element) = delivered.map_err(|reason| handle.closed(reason))?;
            let (element, uncommitted) = transfer::uncommitted(|| element.decode());
            Delivery::<T>::new(handle, number, uncommitted).with(element)
        })
    }

    /// Returns a stream of the elements, until the queue is closed and empty. With
    /// [`wait`](QueueStream::wait) it is an iterator.
    ///
    /// It takes elements as [`get`](Queue::get) does: one at a time, when it is polled.
    ///
    /// # Examples
    /// ```
    /// use futures_util::TryStreamExt;
    ///
    /// #[fiber::main]
    /// async fn main() -> fiber::Result<()> {
    ///     let queue = fiber::Queue::new()?;
    ///     for n in 1..=3 {
    ///         queue.put(n).await?;
    ///     }
    ///     queue.close().await?;
    ///     assert_eq!(queue.stream().try_collect::<Vec<u32>>().await?, [1, 2, 3]);
    ///     Ok(())
    /// }
    /// ```
    pub fn stream(&self) -> QueueStream<T> {
        QueueStream::new(&self.handle)
    }

    /// Returns the number of elements: a round trip to the owner.
    ///
    /// It includes elements that other processes have prefetched, and may have used without having
    /// reported it yet. Elements that wait for room or for an acknowledgement do not count.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let queue = fiber::Queue::new()?;
    /// queue.put("one".to_string()).wait()?;
    /// assert_eq!(queue.len().wait()?, 1);
    /// assert!(!queue.is_empty().wait()?);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn len(&self) -> Reply<usize> {
        self.handle.call("asking", &Operation::Len)
    }

    /// Returns whether [`len`](Queue::len) is 0. The example there shows both.
    pub fn is_empty(&self) -> Reply<bool> {
        self.handle.call_then("asking", Ok(Operation::Len), |length: usize| Ok(length == 0))
    }

    /// Waits until all elements that this process has put in have arrived. In the queue's owner it
    /// is ready at once.
    ///
    /// # Errors
    /// [`Error::OwnerEnded`] or [`Error::Closed`], if they can't arrive.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Process, Queue};
    ///
    /// let log = Queue::<String>::new()?;
    /// let report = |log: Queue<String>| -> fiber::Result<()> {
    ///     log.put("it works".to_string()).wait()?;
    ///     log.flush().wait()?; // arrives, even if this process is killed now
    ///     std::process::abort()
    /// };
    /// assert!(Process::builder().try_spawn(report, log.clone()).wait().is_err());
    /// assert_eq!(log.get().wait()?, "it works");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn flush(&self) -> Reply<()> {
        let (handle, flushed) = (self.handle.clone(), self.handle.flush());
        let what = format!("the arrival of the elements that were put into {}", handle.name());
        Reply::named(what, async move {
            if let Some(flushed) = flushed {
                let _ = flushed.await;
            }
            match handle.location()? {
                Location::Local(_) => Ok(()),
                Location::Remote(client) => client.check(),
            }
        })
    }

    /// Marks the work on one element as done: see [`join`](Queue::join), which has an example. It
    /// sends a message to the owner and does not wait.
    pub fn task_done(&self) {
        self.handle.send(&Operation::TaskDone(1));
    }

    /// Waits until the work on all elements that were ever put in is done: until
    /// [`task_done`](Queue::task_done) and [`acknowledge`](Delivery::acknowledge) were called, in
    /// all processes, as many times as elements were put in.
    ///
    /// A process that dies after [`get`](Queue::get) and before `task_done` leaves its element
    /// undone for ever, and the reply waits. With [`get_acknowledged`](Queue::get_acknowledged),
    /// another consumer gets that element.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Process, Queue};
    ///
    /// let rooms = Queue::<u32>::new()?;
    /// let clean = |rooms: Queue<u32>| {
    ///     for room in rooms.stream() {
    ///         println!("room {} is clean", room.unwrap());
    ///         rooms.task_done();
    ///     }
    /// };
    /// let cleaner = Process::spawn(clean, rooms.clone());
    /// for room in 1..=3 {
    ///     rooms.put(room).wait()?;
    /// }
    /// rooms.join().wait()?;
    /// rooms.close().wait()?;
    /// cleaner.wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn join(&self) -> Reply<()> {
        let what = format!("the end of the work on {}", self.handle.name());
        self.handle.call_withdrawable(what, Operation::Join, Operation::WithdrawJoin)
    }

    /// Closes the queue for new elements. Elements in it can still be taken; then
    /// [`get`](Queue::get) fails with [`Error::Closed`], and streams end.
    ///
    /// Puts that wait for room fail with [`Error::Closed`]. Elements of other processes that have
    /// not arrived are refused: their [`flush`](Queue::flush) and their next `put` fail. While
    /// deliveries are not acknowledged, consumers wait, because the elements may come back.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let queue = fiber::Queue::new()?;
    /// queue.put(1).wait()?;
    /// queue.close().wait()?;
    /// assert!(queue.put(2).wait().is_err());
    /// assert_eq!(queue.get().wait()?, 1);
    /// assert!(matches!(queue.get().wait(), Err(fiber::Error::Closed { .. })));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn close(&self) -> Reply<()> {
        self.handle.call("closing", &Operation::Close)
    }
}
