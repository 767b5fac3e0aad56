//! Pipes between two processes.

use std::fmt;
use std::marker::PhantomData;

use fiber_core::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::queue::{End, Get, Put, QueueStream, Role};

/// One end of a duplex pipe: it sends `S` and receives `R`.
///
/// Both ends travel: as arguments of tasks, fields of messages, or through other pipes. An end may
/// be cloned; when all clones of one end are gone, because they were dropped or their processes
/// have ended, the other end learns it: what was sent can still be received, then
/// [`recv`](Pipe::recv) fails with [`Error::Closed`](fiber_core::Error::Closed), and so does
/// [`send`](Pipe::send). An end that was sent away counts as being there while it may still arrive.
///
/// QueueStream arrive in the order in which they were sent. The pipe itself lives in the process that
/// made it and ends with it: then both ends fail with
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

/// The end of a pipe that sends.
pub struct PipeSender<T> {
    end: End,
    element: PhantomData<fn(T)>,
}

/// The end of a pipe that receives.
pub struct PipeReceiver<T> {
    end: End,
    element: PhantomData<fn() -> T>,
}

impl<S, R> Pipe<S, R>
where
    S: Serialize + DeserializeOwned,
    R: Serialize + DeserializeOwned,
{
    /// The two ends of a pipe that goes both ways.
    ///
    /// # Errors
    /// If fiber can't work at all.
    #[track_caller]
    pub fn new() -> Result<(Pipe<S, R>, Pipe<R, S>)> {
        let (to, from) = (End::pair()?, End::pair()?);
        let one = Pipe { sender: PipeSender::new(to.0), receiver: PipeReceiver::new(from.1) };
        let other = Pipe { sender: PipeSender::new(from.0), receiver: PipeReceiver::new(to.1) };
        Ok((one, other))
    }

    /// Sends an element. It waits while much that was sent before has not been received.
    pub fn send(&self, element: S) -> Put {
        self.sender.send(element)
    }

    /// Receives the next element, when there is one.
    pub fn recv(&self) -> Get<R> {
        self.receiver.recv()
    }

    /// All elements, one after the other, until the other end is gone.
    pub fn stream(&self) -> QueueStream<R> {
        self.receiver.stream()
    }

    /// The two directions, each on its own.
    pub fn split(self) -> (PipeSender<S>, PipeReceiver<R>) {
        (self.sender, self.receiver)
    }
}

impl<T: Serialize + DeserializeOwned> Pipe<T> {
    /// The two ends of a pipe that goes one way.
    ///
    /// # Errors
    /// If fiber can't work at all.
    #[track_caller]
    pub fn one_way() -> Result<(PipeSender<T>, PipeReceiver<T>)> {
        let (writer, reader) = End::pair()?;
        Ok((PipeSender::new(writer), PipeReceiver::new(reader)))
    }
}

impl<T> PipeSender<T> {
    fn new(end: End) -> PipeSender<T> {
        PipeSender { end, element: PhantomData }
    }
}

impl<T: Serialize> PipeSender<T> {
    /// As [`Pipe::send`].
    pub fn send(&self, element: T) -> Put {
        Put::of(&self.end.core, &element)
    }
}

impl<T> PipeReceiver<T> {
    fn new(end: End) -> PipeReceiver<T> {
        PipeReceiver { end, element: PhantomData }
    }
}

impl<T: DeserializeOwned> PipeReceiver<T> {
    /// As [`Pipe::recv`].
    pub fn recv(&self) -> Get<T> {
        Get::new(&self.end.core)
    }

    /// As [`Pipe::stream`].
    pub fn stream(&self) -> QueueStream<T> {
        QueueStream::new(&self.end.core)
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
                write!(f, "{}({})", stringify!($name), self.end.core.name())
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
                Ok($name::new(End::deserialize(deserializer, $role)?))
            }
        }
    };
}

end!(PipeSender, Role::Writer);
end!(PipeReceiver, Role::Reader);

impl<S, R> Clone for Pipe<S, R> {
    fn clone(&self) -> Pipe<S, R> {
        Pipe { sender: self.sender.clone(), receiver: self.receiver.clone() }
    }
}

impl<S, R> fmt::Debug for Pipe<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pipe({})", self.sender.end.core.name())
    }
}
