//! Permits that are granted in the order of the requests: the state of locks and semaphores.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use fiber_core::Error;
use fiber_values::codec;
use serde::{Deserialize, Serialize};

use super::state::{ObjectState, RequestId, StateHandle};
use fiber_runtime::mesh::{PeerId, Requester};
use fiber_runtime::objects::{ObjectRef, SendOnDrop, Ticket};
use fiber_runtime::reply::Reply;

/// The permits that a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Access {
    /// One permit of a reader. Its death abandons nothing.
    Read,
    Permits(u32),
    /// All permits.
    Exclusive,
}

#[derive(Serialize, Deserialize)]
pub(super) enum Operation {
    /// Answered with an [`Acquired`] when the permits are granted.
    Acquire(Ticket, Access),
    /// Answered at once, with `None` if the permits are not free.
    TryAcquire(Ticket, Access),
    /// Releases the permits, or withdraws their request. Not answered.
    Release(Ticket),
    /// Answered with the number of free permits.
    Available,
    /// Adds permits. Not answered.
    Add(u32),
}

/// The answer to a request for permits.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) enum Acquired {
    /// The permits, and whether a holder has died since the last grant.
    Granted(bool),
    /// More permits were requested than exist, which are this many.
    TooMany(u32),
}

pub(super) struct Permits {
    total: u32,
    free: u32,
    held: HashMap<RequestId, Access>,
    waiting: VecDeque<WaitingRequest>,
    abandoned: bool,
}

struct WaitingRequest {
    ticket: Ticket,
    access: Access,
    requester: Requester,
}

impl Permits {
    pub(super) fn new(total: u32) -> Permits {
        Permits {
            total,
            free: total,
            held: HashMap::new(),
            waiting: VecDeque::new(),
            abandoned: false,
        }
    }

    fn count(&self, access: Access) -> u32 {
        match access {
            Access::Read => 1,
            Access::Permits(count) => count,
            Access::Exclusive => self.total,
        }
    }

    /// Queues a request behind the others, and grants requests while permits are free.
    pub(super) fn acquire(&mut self, ticket: Ticket, access: Access, requester: Requester) {
        if self.count(access) > self.total {
            return requester.answer(&Acquired::TooMany(self.total));
        }
        self.waiting.push_back(WaitingRequest { ticket, access, requester });
        self.grant();
    }

    /// Releases the permits of a request, or withdraws it. Returns whether it existed.
    pub(super) fn release(&mut self, id: RequestId) -> bool {
        if let Some(access) = self.held.remove(&id) {
            self.free += self.count(access);
        } else if let Some(index) = self.waiting.iter().position(|request| request.id() == id) {
            self.waiting.remove(index);
        } else {
            return false;
        }
        self.grant();
        true
    }

    fn grant(&mut self) {
        while let Some(request) = self.waiting.front()
            && self.count(request.access) <= self.free
            && let Some(request) = self.waiting.pop_front()
        {
            self.free -= self.count(request.access);
            self.held.insert(request.id(), request.access);
            // A reader can't repair the value, so the next writer learns of the death, too.
            let abandoned = self.abandoned;
            self.abandoned &= request.access == Access::Read;
            request.requester.answer(&Acquired::Granted(abandoned));
        }
    }
}

impl WaitingRequest {
    fn id(&self) -> RequestId {
        (self.requester.peer, self.ticket)
    }
}

impl ObjectState for Permits {
    type Operation = Operation;

    fn apply(&mut self, operation: Operation, requester: Requester) {
        match operation {
            Operation::Acquire(ticket, access) => self.acquire(ticket, access, requester),
            Operation::TryAcquire(ticket, access) => {
                let count = self.count(access);
                if count <= self.total && (!self.waiting.is_empty() || count > self.free) {
                    return requester.answer(&None::<Acquired>);
                }
                self.acquire(ticket, access, requester);
            }
            Operation::Release(ticket) => drop(self.release((requester.peer, ticket))),
            Operation::Available => requester.answer(&self.free),
            Operation::Add(count) => {
                // The free permits and the held ones are at most `u32::MAX`.
                let count = count.min(u32::MAX - self.total);
                (self.total, self.free) = (self.total + count, self.free + count);
                self.grant();
            }
        }
    }

    fn peer_lost(&mut self, peer: PeerId) {
        self.waiting.retain(|request| request.requester.peer != peer);
        let lost: Vec<_> = self.held.extract_if(|(holder, _), _| *holder == peer).collect();
        for (_, access) in lost {
            self.free += self.count(access);
            self.abandoned |= access != Access::Read;
        }
        self.grant();
    }
}

/// Requests permits. The guard releases them.
pub(super) fn acquire(handle: &StateHandle<Permits>, doing: &str, access: Access) -> Reply<Guard> {
    let ticket = handle.ticket();
    let response = handle.request(&Operation::Acquire(ticket, access));
    let permits = handle.send_on_drop(Operation::Release(ticket));
    Reply::named(format!("{doing} {}", handle.name()), async move {
        match codec::decode(&response.await?)? {
            Acquired::Granted(abandoned) => Ok(Guard { permits: Some(permits), abandoned }),
            Acquired::TooMany(total) => {
                permits.disarm();
                let problem = format!("more permits were requested than exist: {total}");
                Err(Error::invalid("Semaphore::acquire_many", problem))
            }
        }
    })
}

/// Requests permits that are free now.
pub(super) fn try_acquire(
    handle: &StateHandle<Permits>,
    doing: &str,
    access: Access,
) -> Reply<Option<Guard>> {
    let ticket = handle.ticket();
    let response = handle.request(&Operation::TryAcquire(ticket, access));
    let permits = handle.send_on_drop(Operation::Release(ticket));
    Reply::named(format!("{doing} {}", handle.name()), async move {
        Ok(match codec::decode::<Option<Acquired>>(&response.await?)? {
            Some(Acquired::Granted(abandoned)) => Some(Guard { permits: Some(permits), abandoned }),
            Some(Acquired::TooMany(_)) | None => {
                permits.disarm();
                None
            }
        })
    })
}

/// A lock, or permits, that this process holds. They are released when the guard is dropped or the
/// process dies.
///
/// Dropping it sends one message and does not wait.
#[must_use = "the lock or the permits are released when the guard is dropped"]
pub struct Guard {
    permits: Option<SendOnDrop<StateHandle<Permits>>>,
    abandoned: bool,
}

impl Guard {
    /// Returns whether a process died while it held the same lock or permits: the value that they
    /// protect may be half changed. It returns `true` for the next holder, once.
    ///
    /// The death of a reader does not count. After the death of a writer it returns `true` for all
    /// readers up to the next writer, and for that writer.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// use fiber::{Process, sync::Lock};
    ///
    /// let lock = Lock::new()?;
    /// let die = |lock: Lock| {
    ///     let _held = lock.lock().wait();
    ///     std::process::abort();
    /// };
    /// assert!(Process::spawn(die, lock.clone()).wait().is_err());
    /// assert!(lock.lock().wait()?.was_abandoned());
    /// assert!(!lock.lock().wait()?.was_abandoned());
    /// # Ok::<(), fiber::Error>(())
    /// ```
    #[must_use]
    pub fn was_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Keeps the lock or the permits for as long as this process lives.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let lock = fiber::sync::Lock::new()?;
    /// lock.lock().wait()?.forget();
    /// assert!(lock.try_lock().wait()?.is_none());
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn forget(mut self) {
        if let Some(permits) = self.permits.take() {
            permits.disarm();
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("abandoned", &self.abandoned).finish_non_exhaustive()
    }
}
