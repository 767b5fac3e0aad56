//! A limited number of permits.

use fiber_core::Result;
use serde::{Deserialize, Serialize};

use super::permits::{Ask, Guard, Permits, Share, acquire, permits, try_acquire};
use super::shared::Handle;
use crate::objects::Waiting;

/// Permits of which a limited number is out at a time, in all processes of the program, in the
/// order in which they were asked for.
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
    handle: Handle<Permits>,
}

impl Semaphore {
    /// One with so many permits.
    ///
    /// # Errors
    /// If fiber can't work at all.
    #[track_caller]
    pub fn new(permits: u32) -> Result<Semaphore> {
        Ok(Semaphore { handle: self::permits("semaphore", permits)? })
    }

    /// Waits for a permit.
    pub fn acquire(&self) -> Waiting<Guard> {
        self.acquire_many(1)
    }

    /// Waits for so many permits at once.
    ///
    /// # Errors
    /// If there are fewer in all.
    pub fn acquire_many(&self, permits: u32) -> Waiting<Guard> {
        acquire(&self.handle, "acquiring", Share::Some(permits))
    }

    /// A permit, if there is one and nobody waits for it.
    pub fn try_acquire(&self) -> Waiting<Option<Guard>> {
        try_acquire(&self.handle, "acquiring", Share::Some(1))
    }

    /// Adds permits.
    pub fn add_permits(&self, permits: u32) {
        self.handle.tell(&Ask::Add(permits));
    }

    /// How many permits are not out.
    pub fn available(&self) -> Waiting<u32> {
        self.handle.call("asking", &Ask::Free)
    }
}
