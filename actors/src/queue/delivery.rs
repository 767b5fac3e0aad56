//! QueueStream that are to be acknowledged.

use std::fmt;
use std::ops::{Deref, DerefMut};

use fiber_core::Result;
use fiber_core::transfer::Uncommitted;

use super::core::Core;
use super::wire::Ask;
use crate::objects::Waiting;

/// An element that goes to another consumer if this process dies before it is acknowledged, or if
/// this is dropped.
#[must_use = "dropped without `acknowledge`, the element goes back into the queue"]
pub struct Delivery<T> {
    core: Core,
    number: Option<u64>,
    element: Option<T>,
    /// Handles in the element, which may be decoded again until it is acknowledged.
    uncommitted: Uncommitted,
}

impl<T> Delivery<T> {
    pub(super) fn new(core: Core, number: u64, uncommitted: Uncommitted) -> Delivery<T> {
        Delivery { core, number: Some(number), element: None, uncommitted }
    }

    pub(super) fn with(mut self, element: Result<T>) -> Result<Delivery<T>> {
        match element {
            Ok(element) => {
                self.element = Some(element);
                Ok(self)
            }
            Err(error) => {
                // Nobody could read it: it would come back for ever.
                drop(self.acknowledge_number());
                Err(error)
            }
        }
    }

    fn acknowledge_number(&mut self) -> Waiting<()> {
        let delivery = self.number.take().expect("it is taken once");
        self.core.call("acknowledging an element of", &Ask::Acknowledge { delivery })
    }

    /// Says that the work on it is done: nobody will be given it again. It counts as done for
    /// [`join`](super::Queue::join), too.
    ///
    /// The request is sent at once; wait for it to be sure that it has arrived.
    pub fn acknowledge(mut self) -> Waiting<T>
    where
        T: Send + 'static,
    {
        let element = self.element.take().expect("a delivery has an element");
        let acknowledged = self.acknowledge_number();
        let settled = Settled(std::mem::take(&mut self.uncommitted));
        Waiting::new(format!("acknowledging an element of {}", self.core.name()), async move {
            let _settled = settled;
            acknowledged.await?;
            Ok(element)
        })
    }
}

/// Commits when it is dropped.
struct Settled(Uncommitted);

impl Drop for Settled {
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
            self.core.tell(&Ask::Return { delivery });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Delivery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Delivery").field(&self.element).finish()
    }
}
