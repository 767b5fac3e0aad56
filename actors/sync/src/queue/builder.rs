//! The options of a queue.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location as Place;

use fiber_core::{Error, Result};
use fiber_journal::Journal;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Queue;
use super::handle::QueueHandle;
use super::name::QueueName;
use super::store::Capacity;
use fiber_runtime::durable::{DurableState, ObjectKind};
use fiber_runtime::runtime::Runtime;

/// A builder that configures and makes a [`Queue`]. [`Queue::builder`] returns one.
///
/// # Examples
/// ```
/// # fiber::init();
/// # let directory = tempfile::tempdir().unwrap();
/// # let journal = || fiber::Journal::at(directory.path());
/// use fiber::Queue;
///
/// let jobs = || Queue::<String>::builder().name("jobs").capacity(1000).durable(journal()).build();
/// let first_run = jobs()?;
/// first_run.put("sweep".to_string()).wait()?; // it is on the disk now
/// drop(first_run);
///
/// let next_run = jobs()?;
/// let job = next_run.get_acknowledged().wait()?;
/// assert_eq!(*job, "sweep");
/// job.acknowledge().wait()?; // it is gone from the disk
/// # Ok::<(), fiber::Error>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct QueueBuilder<T> {
    name: Option<String>,
    capacity: Option<usize>,
    journal: Option<Journal>,
    element: PhantomData<fn(T) -> T>,
}

impl<T: Serialize + DeserializeOwned + Send + 'static> QueueBuilder<T> {
    pub(super) fn new() -> QueueBuilder<T> {
        QueueBuilder { name: None, capacity: None, journal: None, element: PhantomData }
    }

    /// Sets the name that errors, metrics and `fiber top` show, and by which a durable queue is
    /// found again. [`QueueBuilder`] has an example.
    pub fn name(mut self, name: impl Into<String>) -> QueueBuilder<T> {
        self.name = Some(name.into());
        self
    }

    /// Sets how many elements the queue holds, as [`Queue::bounded`]. [`QueueBuilder`] has an
    /// example.
    ///
    /// The default is any number.
    pub fn capacity(mut self, elements: usize) -> QueueBuilder<T> {
        self.capacity = Some(elements);
        self
    }

    /// Keeps the elements in a journal until they are acknowledged. A program that is started again
    /// finds those that it had put in, in their order. [`QueueBuilder`] has an example.
    ///
    /// - A [`put`](Queue::put) is ready when the element is on the disk. Puts of any processes that
    ///   wait at the same time share a sync of the disk: for throughput, put many before waiting
    ///   for them.
    /// - Elements are taken with [`get_acknowledged`](Queue::get_acknowledged). The reply of
    ///   [`acknowledge`](crate::queue::Delivery::acknowledge) is ready when the element is removed
    ///   from the disk. If the program ends before that, its next run delivers the element again.
    /// - The elements are in memory, too. Elements can't contain handles, which name objects of one
    ///   run of the program.
    /// - If the journal fails, as on a full disk, so do all operations that wait, and those that
    ///   follow, with [`Error::Journal`].
    ///
    /// The name and the journal's version identify the queue. Only the program's first process can
    /// make one; its handles work in all processes.
    pub fn durable(mut self, journal: impl Into<Journal>) -> QueueBuilder<T> {
        self.journal = Some(journal.into());
        self
    }

    /// Makes the queue. This process owns it. [`QueueBuilder`] has an example.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the capacity is 0, or if the queue can't be durable because of its
    /// name or process; [`Error::Journal`]; otherwise as [`Queue::new`].
    #[track_caller]
    pub fn build(self) -> Result<Queue<T>> {
        let name = match &self.name {
            Some(name) => QueueName::given(name),
            None => QueueName::made_at("queue", Place::caller()),
        };
        let capacity = match self.capacity {
            Some(0) => {
                let problem = "a queue for no elements can't hold one: choose 1 or more";
                return Err(Error::invalid("QueueBuilder::capacity", problem));
            }
            Some(elements) => Capacity::Elements(elements),
            None => Capacity::Unbounded,
        };
        let handle = match &self.journal {
            Some(journal) => {
                let (runtime, given_name) = (Runtime::get()?, self.name.as_deref());
                let durable = DurableState::open(runtime, journal, ObjectKind::Queue, given_name)?;
                QueueHandle::durable(runtime, name, capacity, durable)?
            }
            None => QueueHandle::new(name, capacity)?,
        };
        Ok(Queue { handle, marker: PhantomData })
    }
}

// Derived implementations would bound `T`.
impl<T> Clone for QueueBuilder<T> {
    fn clone(&self) -> QueueBuilder<T> {
        let QueueBuilder { name, capacity, journal, element } = self;
        let (name, journal) = (name.clone(), journal.clone());
        QueueBuilder { name, capacity: *capacity, journal, element: *element }
    }
}

impl<T> fmt::Debug for QueueBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueBuilder")
            .field("name", &self.name)
            .field("capacity", &self.capacity)
            .field("journal", &self.journal)
            .finish()
    }
}
