//! Waiting for a change of what a lock protects.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use fiber_core::{Result, codec};
use futures_util::future::{Either, select};
use serde::{Deserialize, Serialize};

use super::permits::{self, Grant, Permits, Share};
use super::shared::{Handle, Machine, TakeBack};
use crate::mesh::{Alarm, PeerId, Requester};
use crate::objects::{Ticket, Waiting};
use crate::runtime::Runtime;

/// A lock, and a place to wait for a change of what it protects.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::Process;
/// use fiber::sync::{Condition, Value};
///
/// let (changed, ready) = (Condition::new()?, Value::new(&false)?);
/// let announce = |changed: Condition, ready: Value<bool>| -> fiber::Result<()> {
///     let held = changed.lock().wait()?;
///     ready.set(&true).wait()?;
///     held.notify_all();
///     Ok(())
/// };
/// let mut held = changed.lock().wait()?;
/// let process = Process::builder().try_spawn(announce, (changed.clone(), ready.clone()));
/// while !ready.get().wait()? {
///     held = held.sleep().wait()?;
/// }
/// # drop(held);
/// # process.wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Condition {
    handle: Handle<Conditional>,
}

struct Conditional {
    lock: Permits,
    asleep: VecDeque<(Ticket, Requester)>,
}

#[derive(Serialize, Deserialize)]
enum Ask {
    Lock(permits::Ask),
    /// Gives the lock back and sleeps; answered as a request for the lock, which it is when it is
    /// woken.
    Sleep {
        ticket: Ticket,
    },
    /// Not answered: wakes this one.
    Wake {
        ticket: Ticket,
    },
    /// Not answered: wakes so many.
    Notify {
        count: u64,
    },
}

impl Conditional {
    fn wake(&mut self, place: usize) {
        if let Some((ticket, requester)) = self.asleep.remove(place) {
            self.lock.acquire(ticket, Share::All, requester);
        }
    }
}

impl Machine for Conditional {
    type Ask = Ask;

    fn ask(&mut self, ask: Ask, requester: Requester) {
        match ask {
            Ask::Lock(permits::Ask::Release { ticket }) => {
                let key = (requester.peer, ticket);
                if !self.lock.release(key) {
                    self.asleep.retain(|(ticket, requester)| (requester.peer, *ticket) != key);
                }
            }
            Ask::Lock(ask) => self.lock.ask(ask, requester),
            Ask::Sleep { ticket } => {
                self.lock.release((requester.peer, ticket));
                self.asleep.push_back((ticket, requester));
            }
            Ask::Wake { ticket } => {
                let key = (requester.peer, ticket);
                if let Some(place) = self
                    .asleep
                    .iter()
                    .position(|(ticket, requester)| (requester.peer, *ticket) == key)
                {
                    self.wake(place);
                }
            }
            Ask::Notify { count } => {
                for _ in 0..count.min(self.asleep.len() as u64) {
                    self.wake(0);
                }
            }
        }
    }

    fn lost(&mut self, peer: PeerId) {
        self.asleep.retain(|(_, requester)| requester.peer != peer);
        self.lock.lost(peer);
    }
}

impl Condition {
    /// One whose lock nobody holds.
    ///
    /// # Errors
    /// If fiber can't work at all.
    #[track_caller]
    pub fn new() -> Result<Condition> {
        let state = Conditional { lock: Permits::new(1), asleep: VecDeque::new() };
        Ok(Condition { handle: Handle::new("condition", state)? })
    }

    /// Waits for the lock.
    pub fn lock(&self) -> Waiting<ConditionGuard> {
        let ticket = Ticket::new();
        let asked =
            self.handle.ask(&Ask::Lock(permits::Ask::Acquire { ticket, share: Share::All }));
        let lock = TakeBack::new(&self.handle, Ask::Lock(permits::Ask::Release { ticket }));
        Waiting::new(format!("taking the lock of {}", self.handle.name()), async move {
            Ok(ConditionGuard { abandoned: abandoned(&asked.await?)?, ticket, lock })
        })
    }

    /// Wakes the one that sleeps longest, if any.
    pub fn notify_one(&self) {
        self.handle.tell(&Ask::Notify { count: 1 });
    }

    /// Wakes all that sleep.
    pub fn notify_all(&self) {
        self.handle.tell(&Ask::Notify { count: u64::MAX });
    }
}

fn abandoned(answer: &[u8]) -> Result<bool> {
    Ok(match codec::decode(answer)? {
        Grant::Granted { abandoned } => abandoned,
        Grant::TooMany { .. } => false,
    })
}

/// The lock of a [`Condition`], held. Dropped, it is given back; when the process dies, too.
#[must_use = "the lock is given back when it is dropped"]
pub struct ConditionGuard {
    lock: TakeBack<Conditional>,
    ticket: Ticket,
    abandoned: bool,
}

impl ConditionGuard {
    /// As [`Guard::was_abandoned`](super::Guard::was_abandoned).
    #[must_use]
    pub fn was_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Gives the lock back, sleeps until it is woken, and takes the lock again. What was waited for
    /// may have changed again by then: look, and sleep again.
    ///
    /// If this is dropped or runs into its [`timeout`](Waiting::timeout), the lock is not held any
    /// more.
    pub fn sleep(self) -> Waiting<ConditionGuard> {
        let what = format!("a notification of {}", self.lock.handle.name());
        let asked = self.lock.handle.ask(&Ask::Sleep { ticket: self.ticket });
        Waiting::new(what, async move {
            Ok(ConditionGuard { abandoned: abandoned(&asked.await?)?, ..self })
        })
    }

    /// As [`sleep`](ConditionGuard::sleep), for at most `limit`; then it takes the lock again all
    /// the same. `true` if it was woken before.
    pub fn sleep_for(self, limit: Duration) -> Waiting<(ConditionGuard, bool)> {
        let what = format!("a notification of {}", self.lock.handle.name());
        let mut asked = self.lock.handle.ask(&Ask::Sleep { ticket: self.ticket });
        let alarm = Runtime::get().map(|runtime| Alarm::after(runtime.mesh(), limit));
        Waiting::new(what, async move {
            let (answer, woken) = match select(&mut asked, alarm?).await {
                Either::Left((answer, _)) => (answer?, true),
                Either::Right(_) => {
                    self.lock.handle.tell(&Ask::Wake { ticket: self.ticket });
                    (asked.await?, false)
                }
            };
            Ok((ConditionGuard { abandoned: abandoned(&answer)?, ..self }, woken))
        })
    }

    /// As [`Condition::notify_one`].
    pub fn notify_one(&self) {
        self.lock.handle.tell(&Ask::Notify { count: 1 });
    }

    /// As [`Condition::notify_all`].
    pub fn notify_all(&self) {
        self.lock.handle.tell(&Ask::Notify { count: u64::MAX });
    }
}

impl fmt::Debug for ConditionGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConditionGuard").field("abandoned", &self.abandoned).finish_non_exhaustive()
    }
}
