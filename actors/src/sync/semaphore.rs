//! A limited number of permits.

use fiber_core::Result;
use serde::{Deserialize, Serialize};

use super::permits::{Access, Guard, Operation, Permits, acquire, permits, try_acquire};
use super::state::StateHandle;
use crate::objects::ObjectRef;
use crate::reply::Reply;

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
    /// Makes a semaphore with this number of permits. It lives in this process.
    ///
    /// # Errors
    /// [`Error::NotInitialised`](fiber_core::Error::NotInitialised), a wrong configuration, or an
    /// error of the system.
    #[track_caller]
    pub fn new(permits: u32) -> Result<Semaphore> {
        Ok(Semaphore { handle: self::permits("semaphore", permits)? })
    }

    /// Waits for a permit. Dropping the reply withdraws the request.
    pub fn acquire(&self) -> Reply<Guard> {
        self.acquire_many(1)
    }

    /// Waits for several permits, which are granted together.
    ///
    /// # Errors
    /// [`Error::Invalid`](fiber_core::Error::Invalid) if the semaphore has fewer permits in all.
    pub fn acquire_many(&self, permits: u32) -> Reply<Guard> {
        acquire(&self.handle, "acquiring", Access::Permits(permits))
    }

    /// Takes a permit if one is free and no other request waits.
    pub fn try_acquire(&self) -> Reply<Option<Guard>> {
        try_acquire(&self.handle, "acquiring", Access::Permits(1))
    }

    /// Adds permits. Does not wait.
    pub fn add_permits(&self, permits: u32) {
        self.handle.send(&Operation::Add(permits));
    }

    /// Returns the number of free permits.
    pub fn available(&self) -> Reply<u32> {
        self.handle.call("asking", &Operation::Available)
    }
}
