//! Mutual exclusion between processes.

use fiber_core::Result;
use serde::{Deserialize, Serialize};

use super::permits::{Guard, Permits, Share, acquire, permits, try_acquire};
use super::shared::Handle;
use crate::objects::Waiting;

/// A lock that one holder in all processes of the program has at a time, in the order in which they
/// asked.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::Process;
/// use fiber::sync::{Lock, Value};
///
/// let lock = Lock::new()?;
/// let count = Value::new(&0)?;
/// let add = |lock: Lock, count: Value<u32>| -> fiber::Result<()> {
///     for _ in 0..10 {
///         let _held = lock.lock().wait()?;
///         let current = count.get().wait()?;
///         count.set(&(current + 1)).wait()?;
///     }
///     Ok(())
/// };
/// let processes = [(); 2].map(|()| Process::builder().try_spawn(add, (lock.clone(), count.clone())));
/// for process in processes {
///     process.wait()?;
/// }
/// assert_eq!(count.get().wait()?, 20);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lock {
    handle: Handle<Permits>,
}

impl Lock {
    /// A lock that nobody holds.
    ///
    /// # Errors
    /// If fiber can't work at all.
    #[track_caller]
    pub fn new() -> Result<Lock> {
        Ok(Lock { handle: permits("lock", 1)? })
    }

    /// Waits for the lock. It is not reentrant: who holds it and asks again waits for itself.
    pub fn lock(&self) -> Waiting<Guard> {
        acquire(&self.handle, "taking", Share::All)
    }

    /// The lock, if nobody holds it or waits for it.
    pub fn try_lock(&self) -> Waiting<Option<Guard>> {
        try_acquire(&self.handle, "taking", Share::All)
    }
}
