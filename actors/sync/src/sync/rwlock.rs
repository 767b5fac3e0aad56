//! A lock for many readers or one writer.

use fiber_core::Result;
use serde::{Deserialize, Serialize};

use super::permits::{Access, Guard, Permits, acquire, try_acquire};
use super::state::StateHandle;
use fiber_runtime::reply::Reply;

/// A lock that many readers or one writer hold at a time, in all processes of the program.
///
/// It is fair: later requests don't overtake a writer that waits.
///
/// # Examples
/// ```
/// # fiber::init();
/// let lock = fiber::sync::RwLock::new()?;
/// let (one, two) = (lock.read().wait()?, lock.read().wait()?);
/// assert!(lock.try_write().wait()?.is_none());
/// drop((one, two));
/// assert!(lock.try_write().wait()?.is_some());
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RwLock {
    handle: StateHandle<Permits>,
}

impl RwLock {
    /// Makes a lock that is free. It lives in this process. [`RwLock`] has an example.
    ///
    /// # Errors
    /// [`Error::NotInitialized`](fiber_core::Error::NotInitialized), a wrong configuration, or an
    /// error of the system.
    #[track_caller]
    pub fn new() -> Result<RwLock> {
        Ok(RwLock { handle: StateHandle::new("lock", Permits::new(u32::MAX))? })
    }

    /// Waits until no writer holds the lock or waits before this request, and takes it for reading.
    /// Dropping the reply withdraws the request. [`RwLock`] has an example.
    pub fn read(&self) -> Reply<Guard> {
        acquire(&self.handle, "reading under", Access::Read)
    }

    /// Waits until no process holds the lock, and takes it for writing. Dropping the reply
    /// withdraws the request.
    ///
    /// If a writer dies, [`Guard::was_abandoned`] returns `true` for its successors.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let lock = fiber::sync::RwLock::new()?;
    /// let held = lock.write().wait()?;
    /// assert!(!held.was_abandoned());
    /// assert!(lock.try_read().wait()?.is_none());
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn write(&self) -> Reply<Guard> {
        acquire(&self.handle, "writing under", Access::Exclusive)
    }

    /// Takes the lock for reading, if no writer holds it and no other request waits.
    /// [`write`](RwLock::write) has an example.
    pub fn try_read(&self) -> Reply<Option<Guard>> {
        try_acquire(&self.handle, "reading under", Access::Read)
    }

    /// Takes the lock for writing, if no process holds it and no other request waits. [`RwLock`]
    /// has an example.
    pub fn try_write(&self) -> Reply<Option<Guard>> {
        try_acquire(&self.handle, "writing under", Access::Exclusive)
    }
}
