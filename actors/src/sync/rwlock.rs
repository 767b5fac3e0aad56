//! Many readers or one writer.

use fiber_core::Result;
use serde::{Deserialize, Serialize};

use super::permits::{Guard, Permits, Share, acquire, permits, try_acquire};
use super::shared::Handle;
use crate::objects::Waiting;

/// A lock that many readers or one writer have at a time, in all processes of the program.
///
/// It is fair: who asks later does not overtake a writer that waits.
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
    handle: Handle<Permits>,
}

impl RwLock {
    /// A lock that nobody holds.
    ///
    /// # Errors
    /// If fiber can't work at all.
    #[track_caller]
    pub fn new() -> Result<RwLock> {
        Ok(RwLock { handle: permits("lock", u32::MAX)? })
    }

    /// Waits until no writer holds it.
    pub fn read(&self) -> Waiting<Guard> {
        acquire(&self.handle, "reading under", Share::Reading)
    }

    /// Waits until nobody holds it.
    pub fn write(&self) -> Waiting<Guard> {
        acquire(&self.handle, "writing under", Share::All)
    }

    /// Reads, if no writer holds it or waits for it.
    pub fn try_read(&self) -> Waiting<Option<Guard>> {
        try_acquire(&self.handle, "reading under", Share::Reading)
    }

    /// Writes, if nobody holds it or waits for it.
    pub fn try_write(&self) -> Waiting<Option<Guard>> {
        try_acquire(&self.handle, "writing under", Share::All)
    }
}
