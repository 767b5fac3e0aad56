//! A limited number of permits.

use fiber_core::Result;
use serde::{Deserialize, Serialize};

use super::permits::{Access, Guard, Operation, Permits, acquire, try_acquire};
use super::state::StateHandle;
use fiber_runtime::objects::ObjectRef;
use fiber_runtime::reply::Reply;

/// A limited number of permits for all processes of the program, granted in the order of the
/// requests.
///
/// # Examples
/// ```
/// # fiber::init();
/// let connections = fiber::sync::Semaphore::new(2)?;
/// let (one, two) = (connections.acquire().wait()?, connections.acquire().wait()?);
/// assert!(connections.try_acquire().wait()?.is_none());
/// drop(one);
/// assert_eq!(connections.available().wait()?, 1);
/// # drop(two);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Semaphore {
    handle: StateHandle<Permits>,
}

impl Semaphore {
    /// Makes a semaphore with this number of permits. It lives in this process. [`Semaphore`] has
    /// an example.
    ///
    /// # Errors
    /// [`Error::NotInitialized`](fiber_core::Error::NotInitialized), a wrong configuration, or an
    /// error of the system.
    #[track_caller]
    pub fn new(permits: u32) -> Result<Semaphore> {
        Ok(Semaphore { handle: StateHandle::new("semaphore", Permits::new(permits))? })
    }

    /// Waits for a permit. Dropping the reply withdraws the request. [`Semaphore`] has an example.
    ///
    /// The [`Guard`] gives the permit back when it is dropped or its process dies.
    ///
    /// # Errors
    /// [`Error::Invalid`](fiber_core::Error::Invalid) if the semaphore has no permits at all.
    pub fn acquire(&self) -> Reply<Guard> {
        self.acquire_many(1)
    }

    /// Waits for several permits, which are granted together. Later requests wait behind this one,
    /// also for fewer permits.
    ///
    /// # Errors
    /// [`Error::Invalid`](fiber_core::Error::Invalid) if the semaphore has fewer permits in all.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let memory = fiber::sync::Semaphore::new(4)?;
    /// let _three = memory.acquire_many(3).wait()?;
    /// assert_eq!(memory.available().wait()?, 1);
    /// assert!(memory.acquire_many(5).wait().is_err());
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn acquire_many(&self, permits: u32) -> Reply<Guard> {
        acquire(&self.handle, "acquiring", Access::Permits(permits))
    }

    /// Takes a permit if one is free and no other request waits. [`Semaphore`] has an example.
    pub fn try_acquire(&self) -> Reply<Option<Guard>> {
        try_acquire(&self.handle, "acquiring", Access::Permits(1))
    }

    /// Adds permits, up to `u32::MAX` in all. It sends one message and does not wait.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let slots = fiber::sync::Semaphore::new(1)?;
    /// slots.add_permits(2);
    /// assert_eq!(slots.available().wait()?, 3);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn add_permits(&self, permits: u32) {
        self.handle.send(&Operation::Add(permits));
    }

    /// Returns the number of free permits. [`add_permits`](Semaphore::add_permits) has an example.
    pub fn available(&self) -> Reply<u32> {
        self.handle.call("asking", &Operation::Available)
    }
}
