//! A condition variable with its lock.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use fiber_core::Result;
use fiber_values::codec;
use futures_util::future::{Either, select};
use serde::{Deserialize, Serialize};

use super::permits::{self, Access, Acquired, Permits};
use super::state::{ObjectState, StateHandle};
use fiber_runtime::mesh::{Alarm, PeerId, Requester};
use fiber_runtime::objects::{ObjectRef, SendOnDrop, Ticket};
use fiber_runtime::reply::Reply;
use fiber_runtime::runtime::Runtime;

/// A condition variable with a lock of its own: holders of the lock wait for a change of what it
/// protects.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::Process;
/// use fiber::sync::{Condition, Value};
///
/// let (changed, ready) = (Condition::new()?, Value::new(false)?);
/// let announce = |changed: Condition, ready: Value<bool>| -> fiber::Result<()> {
///     let held = changed.lock().wait()?;
///     ready.set(true).wait()?;
///     held.notify_all();
///     Ok(())
/// };
/// let mut held = changed.lock().wait()?;
/// let process = Process::builder().try_spawn(announce, (changed.clone(), ready.clone()));
/// while !ready.get().wait()? {
///     held = held.wait_notified().wait()?;
/// }
/// # drop(held);
/// # process.wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Condition {
    handle: StateHandle<ConditionState>,
}

struct ConditionState {
    lock: Permits,
    asleep: VecDeque<(Ticket, Requester)>,
}

#[derive(Serialize, Deserialize)]
enum Operation {
    Lock(permits::Operation),
    /// Releases the lock and sleeps. When it is woken, this becomes a request for the lock and is
    /// answered as one.
    Sleep(Ticket),
    /// Wakes the request with this ticket. Not answered.
    Wake(Ticket),
    /// Wakes this many requests. Not answered.
    Notify(u64),
}

impl ConditionState {
    fn wake(&mut self, index: usize) {
        if let Some((ticket, requester)) = self.asleep.remove(index) {
            self.lock.acquire(ticket, Access::Exclusive, requester);
        }
    }
}

impl ObjectState for ConditionState {
    type Operation = Operation;

    fn apply(&mut self, operation: Operation, requester: Requester) {
        match operation {
            Operation::Lock(permits::Operation::Release(ticket)) => {
                let id = (requester.peer, ticket);
                if !self.lock.release(id) {
                    self.asleep.retain(|(ticket, requester)| (requester.peer, *ticket) != id);
                }
            }
            Operation::Lock(operation) => self.lock.apply(operation, requester),
            Operation::Sleep(ticket) => {
                self.lock.release((requester.peer, ticket));
                self.asleep.push_back((ticket, requester));
            }
            Operation::Wake(ticket) => {
                let id = (requester.peer, ticket);
                if let Some(index) = self
                    .asleep
                    .iter()
                    .position(|(ticket, requester)| (requester.peer, *ticket) == id)
                {
                    self.wake(index);
                }
            }
            Operation::Notify(count) => {
                for _ in 0..count.min(self.asleep.len() as u64) {
                    self.wake(0);
                }
            }
        }
    }

    fn peer_lost(&mut self, peer: PeerId) {
        self.asleep.retain(|(_, requester)| requester.peer != peer);
        self.lock.peer_lost(peer);
    }
}

impl Condition {
    /// Makes a condition whose lock is free. It lives in this process. [`Condition`] has an
    /// example.
    ///
    /// # Errors
    /// [`Error::NotInitialized`](fiber_core::Error::NotInitialized), a wrong configuration, or an
    /// error of the system.
    #[track_caller]
    pub fn new() -> Result<Condition> {
        let state = ConditionState { lock: Permits::new(1), asleep: VecDeque::new() };
        Ok(Condition { handle: StateHandle::new("condition", state)? })
    }

    /// Waits for the lock. Dropping the reply withdraws the request.
    ///
    /// The lock is released when the guard is dropped or its process dies. [`Condition`] has an
    /// example.
    pub fn lock(&self) -> Reply<ConditionGuard> {
        let ticket = self.handle.ticket();
        let acquire = permits::Operation::Acquire(ticket, Access::Exclusive);
        let response = self.handle.request(&Operation::Lock(acquire));
        let release = Operation::Lock(permits::Operation::Release(ticket));
        let lock = self.handle.send_on_drop(release);
        Reply::named(format!("taking the lock of {}", self.handle.name()), async move {
            Ok(ConditionGuard { abandoned: abandoned(&response.await?)?, ticket, lock })
        })
    }

    /// Wakes the request that sleeps longest. If none sleeps, the notification is lost. It sends
    /// one message and does not wait.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let changed = fiber::sync::Condition::new()?;
    /// let asleep = changed.lock().wait()?.wait_notified();
    /// changed.notify_one();
    /// let _held = asleep.wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn notify_one(&self) {
        self.handle.send(&Operation::Notify(1));
    }

    /// Wakes all requests that sleep. They take the lock one after the other. It sends one message
    /// and does not wait.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let changed = fiber::sync::Condition::new()?;
    /// let first = changed.lock().wait()?.wait_notified();
    /// let second = changed.lock().wait()?.wait_notified();
    /// changed.notify_all();
    /// drop(first.wait()?);
    /// drop(second.wait()?);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn notify_all(&self) {
        self.handle.send(&Operation::Notify(u64::MAX));
    }
}

fn abandoned(answer: &[u8]) -> Result<bool> {
    Ok(match codec::decode(answer)? {
        Acquired::Granted(abandoned) => abandoned,
        Acquired::TooMany(_) => false,
    })
}

/// The lock of a [`Condition`], held. It is released when this is dropped or the process dies.
#[must_use = "the lock is released when the guard is dropped"]
pub struct ConditionGuard {
    lock: SendOnDrop<StateHandle<ConditionState>>,
    ticket: Ticket,
    abandoned: bool,
}

impl ConditionGuard {
    /// Returns whether a holder of the lock died, as
    /// [`Guard::was_abandoned`](super::Guard::was_abandoned), which has an example.
    #[must_use]
    pub fn was_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Releases the lock, sleeps until it is notified, and takes the lock again. Another process
    /// may have changed the protected value before that: check it again, and sleep again if needed.
    ///
    /// The lock is released when this method is called. If the reply is dropped or [times
    /// out](Reply::timeout), the lock is no longer held.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let changed = fiber::sync::Condition::new()?;
    /// let asleep = changed.lock().wait()?.wait_notified();
    /// changed.lock().wait()?.notify_one(); // the lock is free meanwhile
    /// let _held = asleep.wait()?;
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait_notified(self) -> Reply<ConditionGuard> {
        let what = format!("a notification of {}", self.condition().name());
        let response = self.condition().request(&Operation::Sleep(self.ticket));
        Reply::named(what, async move {
            Ok(ConditionGuard { abandoned: abandoned(&response.await?)?, ..self })
        })
    }

    /// Sleeps as [`wait_notified`](ConditionGuard::wait_notified), for at most `limit`, and then
    /// takes the lock again in any case: it may wait longer while another process holds it. Returns
    /// `true` with the guard if it was notified before the limit.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use std::time::Duration;
    ///
    /// let changed = fiber::sync::Condition::new()?;
    /// let held = changed.lock().wait()?;
    /// let (_held, notified) = held.wait_notified_for(Duration::from_millis(1)).wait()?;
    /// assert!(!notified);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait_notified_for(self, limit: Duration) -> Reply<(ConditionGuard, bool)> {
        let what = format!("a notification of {}", self.condition().name());
        let mut response = self.condition().request(&Operation::Sleep(self.ticket));
        let alarm = Runtime::get().map(|runtime| Alarm::after(runtime.mesh(), limit));
        Reply::named(what, async move {
            let (answer, notified) = match select(&mut response, alarm?).await {
                Either::Left((answer, _)) => (answer?, true),
                Either::Right(_) => {
                    self.condition().send(&Operation::Wake(self.ticket));
                    (response.await?, false)
                }
            };
            Ok((ConditionGuard { abandoned: abandoned(&answer)?, ..self }, notified))
        })
    }

    /// Wakes the request that sleeps longest, as [`Condition::notify_one`]. It gets the lock after
    /// this guard is dropped. [`wait_notified`](ConditionGuard::wait_notified) has an example.
    pub fn notify_one(&self) {
        self.condition().send(&Operation::Notify(1));
    }

    /// Wakes all requests that sleep, as [`Condition::notify_all`]. They get the lock after this
    /// guard is dropped. [`Condition`] has an example.
    pub fn notify_all(&self) {
        self.condition().send(&Operation::Notify(u64::MAX));
    }

    fn condition(&self) -> &StateHandle<ConditionState> {
        self.lock.object()
    }
}

impl fmt::Debug for ConditionGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConditionGuard").field("abandoned", &self.abandoned).finish_non_exhaustive()
    }
}
