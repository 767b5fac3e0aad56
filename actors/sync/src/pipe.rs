//! Pipes between two processes.

use std::fmt;
use std::marker::PhantomData;

use fiber_core::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::queue::{Get, PipeEnd, PipeRole, Put, QueueStream};
use fiber_runtime::objects::ObjectRef;

/// One end of a duplex pipe: it sends `S` and receives `R`.
///
/// Both ends can be sent to other processes: as arguments of tasks, fields of messages, or through
/// other pipes. An end can be cloned. When all clones of one end are gone, because they were
/// dropped or their processes have ended, [`send`](Pipe::send) at the other end fails with
/// [`Error::Closed`](fiber_core::Error::Closed), and so does [`recv`](Pipe::recv) after the
/// elements that were sent before. An end on its way to another process counts.
///
/// Elements arrive in the order in which they were sent. The pipe lives in the process that made it
/// and ends with it: then both ends fail with
/// [`Error::OwnerEnded`](fiber_core::Error::OwnerEnded).
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Pipe, Process};
///
/// let (here, there) = Pipe::<u32, String>::new()?;
/// let describe = |pipe: Pipe<String, u32>| {
///     for n in pipe.stream().wait() {
///         pipe.send(format!("{:b}", n.unwrap())).wait().unwrap();
///     }
/// };
/// let process = Process::spawn(describe, there);
/// here.send(5).wait()?;
/// assert_eq!(here.recv().wait()?, "101");
/// drop(here);
/// process.wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Pipe<S, R = S> {
    sender: PipeSender<S>,
    receiver: PipeReceiver<R>,
}

/// The sending end of a pipe. [`Pipe::one_way`] and [`Pipe::split`] return one.
pub struct PipeSender<T> {
    pub(crate) end: PipeEnd,
    element: PhantomData<fn(T)>,
}

/// The receiving end of a pipe. [`Pipe::one_way`] and [`Pipe::split`] return one.
pub struct PipeReceiver<T> {
    pub(crate) end: PipeEnd,
    element: PhantomData<fn() -> T>,
}

impl<S, R> Pipe<S, R>
where
    S: Serialize + DeserializeOwned,
    R: Serialize + DeserializeOwned,
{
    /// Makes a duplex pipe. Returns its two ends.
    ///
    /// It is made of two queues of this process: one for each direction. It starts no process.
    ///
    /// # Errors
    /// [`Error::NotInitialized`](fiber_core::Error::NotInitialized), a wrong configuration, or an
    /// error of the system.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let (here, there) = fiber::Pipe::<u32, String>::new()?;
    /// here.send(5).wait()?;
    /// assert_eq!(there.recv().wait()?, 5);
    /// there.send("five".to_string()).wait()?;
    /// assert_eq!(here.recv().wait()?, "five");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn new() -> Result<(Pipe<S, R>, Pipe<R, S>)> {
        let (to, from) = (PipeEnd::pair()?, PipeEnd::pair()?);
        let one = Pipe { sender: PipeSender::new(to.0), receiver: PipeReceiver::new(from.1) };
        let other = Pipe { sender: PipeSender::new(from.0), receiver: PipeReceiver::new(to.1) };
        Ok((one, other))
    }

    /// Sends an element. Waits while more than 4 MiB of earlier elements have not been received.
    ///
    /// The element is encoded and sent when this method is called, as by
    /// [`Queue::put`](crate::queue::Queue::put). The future fails with
    /// [`Error::Closed`](fiber_core::Error::Closed) if the other end is gone. Elements that were
    /// sent but not received are then lost.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let (here, there) = fiber::Pipe::<u32>::new()?;
    /// here.send(1).wait()?;
    /// drop(there);
    /// assert!(matches!(here.send(2).wait(), Err(fiber::Error::Closed { .. })));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn send(&self, element: S) -> Put {
        self.sender.send(element)
    }

    /// Receives the next element, when there is one.
    ///
    /// After the last element of an end that is gone, also because its process died, the future
    /// fails with [`Error::Closed`](fiber_core::Error::Closed).
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let (here, there) = fiber::Pipe::<u32>::new()?;
    /// there.send(1).wait()?;
    /// drop(there);
    /// assert_eq!(here.recv().wait()?, 1);
    /// assert!(matches!(here.recv().wait(), Err(fiber::Error::Closed { .. })));
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn recv(&self) -> Get<R> {
        self.receiver.recv()
    }

    /// Returns a stream of the elements, until the other end is gone. In a `for` loop it blocks
    /// this thread.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let (here, there) = fiber::Pipe::<u32>::new()?;
    /// for n in 1..=3 {
    ///     there.send(n).wait()?;
    /// }
    /// drop(there);
    /// for (n, received) in (1..).zip(here.stream()) {
    ///     assert_eq!(received?, n);
    /// }
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn stream(&self) -> QueueStream<R> {
        self.receiver.stream()
    }

    /// Splits this end into its two directions, which can go to different processes. Sends nothing.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let (here, there) = fiber::Pipe::<u32>::new()?;
    /// let (sender, receiver) = here.split();
    /// sender.send(1).wait()?;
    /// let received = there.recv().wait()?;
    /// there.send(received + 1).wait()?;
    /// assert_eq!(receiver.recv().wait()?, 2);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn split(self) -> (PipeSender<S>, PipeReceiver<R>) {
        (self.sender, self.receiver)
    }
}

impl<T: Serialize + DeserializeOwned> Pipe<T> {
    /// Makes a pipe for one direction. Returns its two ends. It is made of one queue of this
    /// process.
    ///
    /// # Errors
    /// [`Error::NotInitialized`](fiber_core::Error::NotInitialized), a wrong configuration, or an
    /// error of the system.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Pipe, Process, pipe::PipeSender};
    ///
    /// let (sender, receiver) = Pipe::one_way()?;
    /// let count = |sender: PipeSender<u32>| (1..=3).try_for_each(|n| sender.send(n).wait());
    /// let process = Process::builder().try_spawn(count, sender);
    /// assert_eq!(receiver.stream().wait().sum::<fiber::Result<u32>>()?, 6);
    /// process.wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[track_caller]
    pub fn one_way() -> Result<(PipeSender<T>, PipeReceiver<T>)> {
        let (writer, reader) = PipeEnd::pair()?;
        Ok((PipeSender::new(writer), PipeReceiver::new(reader)))
    }
}

impl<T> PipeSender<T> {
    pub(crate) fn new(end: PipeEnd) -> PipeSender<T> {
        PipeSender { end, element: PhantomData }
    }
}

impl<T: Serialize> PipeSender<T> {
    /// Sends an element, as [`Pipe::send`]. [`Pipe::one_way`] has an example.
    pub fn send(&self, element: T) -> Put {
        Put::new(&self.end.queue, &element)
    }
}

impl<T> PipeReceiver<T> {
    pub(crate) fn new(end: PipeEnd) -> PipeReceiver<T> {
        PipeReceiver { end, element: PhantomData }
    }
}

impl<T: DeserializeOwned> PipeReceiver<T> {
    /// Receives the next element, as [`Pipe::recv`].
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let (sender, receiver) = fiber::Pipe::one_way()?;
    /// sender.send("hello".to_string()).wait()?;
    /// assert_eq!(receiver.recv().wait()?, "hello");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn recv(&self) -> Get<T> {
        Get::new(&self.end.queue)
    }

    /// Returns a stream of the elements, as [`Pipe::stream`]. [`Pipe::one_way`] has an example.
    pub fn stream(&self) -> QueueStream<T> {
        QueueStream::new(&self.end.queue)
    }
}

macro_rules! end {
    ($name:ident, $role:expr) => {
        impl<T> Clone for $name<T> {
            fn clone(&self) -> $name<T> {
                $name { end: self.end.clone(), element: PhantomData }
            }
        }

        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.end.queue.name())
            }
        }

        impl<T> Serialize for $name<T> {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.end.serialize(serializer)
            }
        }

        impl<'de, T> Deserialize<'de> for $name<T> {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$name<T>, D::Error> {
                Ok($name::new(PipeEnd::deserialize(deserializer, $role)?))
            }
        }
    };
}

end!(PipeSender, PipeRole::Writer);
end!(PipeReceiver, PipeRole::Reader);

impl<S, R> Clone for Pipe<S, R> {
    fn clone(&self) -> Pipe<S, R> {
        Pipe { sender: self.sender.clone(), receiver: self.receiver.clone() }
    }
}

impl<S, R> fmt::Debug for Pipe<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pipe({})", self.sender.end.queue.name())
    }
}
