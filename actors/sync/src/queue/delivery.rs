//! Elements that the consumer acknowledges.

use std::fmt;
use std::ops::{Deref, DerefMut};

use fiber_core::Result;
use fiber_values::transfer::Uncommitted;

use super::handle::QueueHandle;
use super::wire::Operation;
use fiber_runtime::objects::ObjectRef;
use fiber_runtime::reply::Reply;

/// An element that this process has to [acknowledge](Delivery::acknowledge). If the process dies
/// before, or the delivery is dropped, the queue delivers the element to another consumer.
///
/// It derefs to the element. [`Queue::get_acknowledged`](super::Queue::get_acknowledged) returns
/// one.
#[must_use = "dropped without `acknowledge`, the element goes back into the queue"]
pub struct Delivery<T> {
    queue: QueueHandle,
    number: Option<u64>,
    element: Option<T>,
    /// The handles in the element, which another process may decode until it is acknowledged.
    uncommitted: Uncommitted,
}

impl<T> Delivery<T> {
    pub(super) fn new(queue: QueueHandle, number: u64, uncommitted: Uncommitted) -> Delivery<T> {
        Delivery { queue, number: Some(number), element: None, uncommitted }
    }

    pub(super) fn with(mut self, element: Result<T>) -> Result<Delivery<T>> {
        match element {
            Ok(element) => {
                self.element = Some(element);
                Ok(self)
            }
            Err(error) => {
                // No consumer can decode it: without this it would be delivered for ever.
                drop(self.acknowledge_number());
                Err(error.recorded(self.queue.journal()))
            }
        }
    }

    fn acknowledge_number(&mut self) -> Reply<()> {
        let delivery = self.number.take().expect("a delivery is acknowledged once");
        self.queue.call("acknowledging an element of", &Operation::Acknowledge(delivery))
    }

    /// Acknowledges the element and returns it: the queue does not deliver it again. This counts as
    /// [`task_done`](super::Queue::task_done).
    ///
    /// The request is sent at once, also if the reply is dropped. The reply is ready when it has
    /// arrived: one round trip. If the process dies before, the element is delivered again.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let jobs = fiber::Queue::new()?;
    /// jobs.put("sweep".to_string()).wait()?;
    /// let job = jobs.get_acknowledged().wait()?;
    /// println!("{} first, then acknowledge", *job);
    /// assert_eq!(job.acknowledge().wait()?, "sweep");
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn acknowledge(mut self) -> Reply<T>
    where
        T: Send + 'static,
    {
        let element = self.element.take().expect("a delivery has an element");
        let acknowledged = self.acknowledge_number();
        let settled = CommitOnDrop(std::mem::take(&mut self.uncommitted));
        let what = format!("acknowledging an element of {}", self.queue.name());
        Reply::named(what, async move {
            let _settled = settled;
            acknowledged.await?;
            Ok(element)
        })
    }
}

/// Settles a uncommitted when it is dropped.
struct CommitOnDrop(Uncommitted);

impl Drop for CommitOnDrop {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).commit();
    }
}

impl<T> Deref for Delivery<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.element.as_ref().expect("a delivery has an element")
    }
}

impl<T> DerefMut for Delivery<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.element.as_mut().expect("a delivery has an element")
    }
}

impl<T> Drop for Delivery<T> {
    fn drop(&mut self) {
        if let Some(delivery) = self.number.take() {
            self.queue.send(&Operation::Requeue(delivery));
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Delivery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Delivery").field(&self.element).finish()
    }
}
