//! Queues that processes put elements into and get elements from.

mod blocks;
mod client;
mod core;
mod delivery;
mod end;
mod ops;
mod store;
mod wire;

use std::marker::PhantomData;
use std::panic::Location;

use fiber_core::{Error, Result, codec, transfer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use self::core::{Core, Side};
use self::wire::{Ask, Closing};
use crate::objects::{Ticket, Waiting, made_at};

pub use delivery::Delivery;
pub(crate) use end::{End, Role};
pub use ops::{Get, Put, QueueStream};

/// A queue that any number of processes put elements into and get elements from.
///
/// It lives in the process that made it, and its handles work in every process of the program: as
/// arguments of tasks, fields of messages, or elements of other queues. It ends, with what is in
/// it, when the last handle in any process is gone, and with its process.
///
/// - **Order.** QueueStream of one process come out in the order in which it put them in.
/// - **Fairness.** An element goes to the process that has waited longest. A process that gets many
///   is sent some before it asks, as long as nobody waits for them; what it has not used goes back
///   when somebody does.
/// - **Delivery.** Each element goes to one [`get`](Queue::get). What a process has been sent and
///   not used when it dies goes to others; of what it got just before, some may be delivered again.
///   With [`get_acknowledged`](Queue::get_acknowledged) that is certain for all that it has not
///   acknowledged.
/// - **Speed.** What is put into an unbounded queue of another process while something is under way
///   rides together. `put` returns when an element is on its way; [`flush`](Queue::flush) waits
///   until all have arrived. They also have when the process ends in order, and before anything
///   that it does next with an object in [`sync`](crate::sync).
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
    core: Core,
    element: PhantomData<fn(T) -> T>,
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Queue<T> {
    /// A queue that holds any number of elements, in this process.
    ///
    /// # Errors
    /// If fiber can't work at all.
    #[track_caller]
    pub fn new() -> Result<Queue<T>> {
        let name = made_at("queue", Location::caller());
        Ok(Queue { core: Core::new(&name, store::Capacity::Unbounded)?, element: PhantomData })
    }

    /// A queue that holds at most so many elements, in this process: who puts more waits.
    ///
    /// # Errors
    /// If `capacity` is 0, or fiber can't work at all.
    #[track_caller]
    pub fn bounded(capacity: usize) -> Result<Queue<T>> {
        let name = made_at("queue", Location::caller());
        if capacity == 0 {
            let problem = "a queue for no elements can't hold one: choose 1 or more";
            return Err(Error::invalid("Queue::bounded", problem));
        }
        Ok(Queue {
            core: Core::new(&name, store::Capacity::QueueStream(capacity))?,
            element: PhantomData,
        })
    }

    /// Puts an element in, at once or when there is room.
    pub fn put(&self, element: T) -> Put {
        Put::of(&self.core, &element)
    }

    /// Puts an element in if there is room, and says whether there was.
    pub fn try_put(&self, element: &T) -> Waiting<bool> {
        let asked = self.core.encode(element).map(|element| {
            let element = ByteBuf::from(element.element());
            self.core.call::<Result<bool, Closing>>("putting into", &Ask::TryPut(element))
        });
        let core = self.core.clone();
        Waiting::new(format!("putting into {}", core.name()), async move {
            asked?.await?.map_err(|closing| core.closed(closing))
        })
    }

    /// Takes the next element, when there is one.
    pub fn get(&self) -> Get<T> {
        Get::new(&self.core)
    }

    /// Takes the next element if there is one that no other process has been sent.
    pub fn try_get(&self) -> Waiting<Option<T>> {
        let asked = self.core.call::<Option<ByteBuf>>("getting from", &Ask::TryGet);
        Waiting::new(format!("getting from {}", self.core.name()), async move {
            asked.await?.map(|element| codec::decode(&element)).transpose()
        })
    }

    /// Takes the next element on uncommitted: if this process dies before it has
    /// [acknowledged](Delivery::acknowledge) it, or drops the delivery, another consumer is given
    /// it, before all others.
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
    pub fn get_acknowledged(&self) -> Waiting<Delivery<T>> {
        let ticket = Ticket::new();
        let asked = self.core.ask(&Ask::Take { ticket });
        let untake = Untake { core: self.core.clone(), ticket: Some(ticket) };
        Waiting::new(format!("an element of {}", self.core.name()), async move {
            let taken: Result<(u64, ByteBuf), Closing> = codec::decode(&asked?.await?)?;
            let core = untake.fulfilled();
            let (number, element) = taken.map_err(|closing| core.closed(closing))?;
            let (element, uncommitted) = transfer::uncommitted(|| codec::decode(&element));
            Delivery::<T>::new(core, number, uncommitted).with(element)
        })
    }

    /// All elements, one after the other, until the queue is closed and nothing is left: a stream,
    /// and with [`wait`](QueueStream::wait) an iterator.
    pub fn stream(&self) -> QueueStream<T> {
        QueueStream::new(&self.core)
    }

    /// How many elements are in it. Other processes may have used some of them already without
    /// having said so.
    pub fn len(&self) -> Waiting<usize> {
        self.core.call("asking", &Ask::Len)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> Waiting<bool> {
        let asked = self.len();
        Waiting::new(format!("asking {}", self.core.name()), async move { Ok(asked.await? == 0) })
    }

    /// Waits until all that this process has put in has arrived.
    ///
    /// # Errors
    /// Why it can't.
    pub fn flush(&self) -> Waiting<()> {
        let core = self.core.clone();
        let flushed = self.core.side().map(|side| match side {
            Side::Here(_) => None,
            Side::There(client) => client.flush(),
        });
        Waiting::new(format!("the arrival of what was put into {}", core.name()), async move {
            if let Some(flushed) = flushed? {
                let _ = flushed.await;
            }
            match core.side()? {
                Side::Here(_) => Ok(()),
                Side::There(client) => client.problem(),
            }
        })
    }

    /// Says that the work on an element that was got is done: see [`join`](Queue::join).
    pub fn task_done(&self) {
        self.core.tell(&Ask::TaskDone(1));
    }

    /// Waits until the work on all elements that were ever put in is done: as many times as
    /// elements were put in, somebody has called [`task_done`](Queue::task_done) or acknowledged
    /// one.
    pub fn join(&self) -> Waiting<()> {
        let ticket = Ticket::new();
        let asked = self.core.ask(&Ask::Join { ticket });
        let unjoin = Unjoin { core: self.core.clone(), ticket: Some(ticket) };
        Waiting::new(format!("the end of the work on {}", self.core.name()), async move {
            codec::decode::<()>(&asked?.await?)?;
            unjoin.fulfilled();
            Ok(())
        })
    }

    /// Lets nothing more in. What is in it can be got; then [`get`](Queue::get) fails with
    /// [`Error::Closed`], and streams end.
    pub fn close(&self) -> Waiting<()> {
        self.core.call("closing", &Ask::Close)
    }
}

/// Takes a request for an element back.
struct Untake {
    core: Core,
    ticket: Option<Ticket>,
}

impl Untake {
    fn fulfilled(mut self) -> Core {
        self.ticket = None;
        self.core.clone()
    }
}

impl Drop for Untake {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.core.tell(&Ask::Untake { ticket });
        }
    }
}

/// Stops waiting for the end of the work.
struct Unjoin {
    core: Core,
    ticket: Option<Ticket>,
}

impl Unjoin {
    fn fulfilled(mut self) {
        self.ticket = None;
    }
}

impl Drop for Unjoin {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.core.tell(&Ask::Unjoin { ticket });
        }
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Queue<T> {
        Queue { core: self.core.clone(), element: PhantomData }
    }
}

/// Two handles are equal if they are of the same queue.
impl<T> PartialEq for Queue<T> {
    fn eq(&self, other: &Queue<T>) -> bool {
        self.core == other.core
    }
}

impl<T> Eq for Queue<T> {}

impl<T> std::fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({})", self.core.name())
    }
}
