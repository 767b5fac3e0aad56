//! A lock between processes.

use fiber_core::Result;
use serde::{Deserialize, Serialize};

use super::permits::{Access, Guard, Permits, acquire, try_acquire};
use super::state::StateHandle;
use fiber_runtime::reply::Reply;

/// A lock that one holder in all processes of the program has at a time, in the order of the
/// requests.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::Process;
/// use fiber::sync::{Lock, Value};
///
/// let lock = Lock::new()?;
/// let count = Value::new(0)?;
/// let add = |lock: Lock, count: Value<u32>| -> fiber::Result<()> {
///     for _ in 0..10 {
///         let _held = lock.lock().wait()?;
///         let current = count.get().wait()?;
///         count.set(current + 1).wait()?;
///     }
///     Ok(())
/// };
/// let spawn = |()| Process::builder().try_spawn(add, (lock.clone(), count.clone()));
/// for process in [(); 2].map(spawn) {
///     process.wait()?;
/// }
/// assert_eq!(count.get().wait()?, 20);
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lock {
    handle: StateHandle<Permits>,
}

impl Lock {
    /// Makes a lock that is free. It lives in this process. [`Lock`] has an example.
    ///
    /// # Errors
    /// [`Error::NotInitialized`](fiber_core::Error::NotInitialized), a wrong configuration, or an
    /// error of the system.
    #[track_caller]
    pub fn new() -> Result<Lock> {
        Ok(Lock { handle: StateHandle::new("lock", Permits::new(1))? })
    }

    /// Waits for the lock. It is not reentrant: a holder that asks again waits for itself.
    ///
    /// The [`Guard`] releases the lock when it is dropped. If its process dies, the next request
    /// gets the lock. Dropping the reply withdraws the request.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let lock = fiber::sync::Lock::new()?;
    /// let held = lock.lock().wait()?;
    /// let next = lock.lock(); // waits for its turn from now on
    /// drop(held);
    /// let _held = next.wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn lock(&self) -> Reply<Guard> {
        acquire(&self.handle, "taking", Access::Exclusive)
    }

    /// Takes the lock if it is free and no other request waits for it. The reply waits for the
    /// owner's answer, not for the lock.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let lock = fiber::sync::Lock::new()?;
    /// let held = lock.try_lock().wait()?;
    /// assert!(held.is_some());
    /// assert!(lock.try_lock().wait()?.is_none());
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn try_lock(&self) -> Reply<Option<Guard>> {
        try_acquire(&self.handle, "taking", Access::Exclusive)
    }
}
