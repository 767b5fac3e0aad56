//! Permits that are handed out in the order in which they were asked for: what locks and semaphores
//! are made of.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use fiber_core::{Error, Result, codec};
use serde::{Deserialize, Serialize};

use super::shared::{Handle, Key, Machine, TakeBack};
use crate::mesh::{PeerId, Requester};
use crate::objects::{Ticket, Waiting};

/// How many permits a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Share {
    /// One that others may hold beside it, and that leaves nothing half done: a reader's.
    Reading,
    Some(u32),
    All,
}

#[derive(Serialize, Deserialize)]
pub(super) enum Ask {
    /// Answered by a [`Grant`] when it is granted.
    Acquire { ticket: Ticket, share: Share },
    /// Answered by a [`Grant`] or nothing, at once.
    TryAcquire { ticket: Ticket, share: Share },
    /// Not answered: it is given back, or no longer wanted.
    Release { ticket: Ticket },
    /// Answered by how many there are to be had.
    Free,
    /// More of them. Not answered.
    Add(u32),
}

/// What the holder of permits is told.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) enum Grant {
    Granted {
        /// Whether a holder has died since.
        abandoned: bool,
    },
    /// There are not that many, ever.
    TooMany { total: u32 },
}

pub(super) struct Permits {
    total: u32,
    free: u32,
    held: HashMap<Key, Share>,
    waiting: VecDeque<Request>,
    abandoned: bool,
}

struct Request {
    ticket: Ticket,
    share: Share,
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

    fn count(&self, share: Share) -> u32 {
        match share {
            Share::Reading => 1,
            Share::Some(count) => count,
            Share::All => self.total,
        }
    }

    /// Puts a request behind the others, and grants what can be granted.
    pub(super) fn acquire(&mut self, ticket: Ticket, share: Share, requester: Requester) {
        if self.count(share) > self.total {
            return requester.answer(&Grant::TooMany { total: self.total });
        }
        self.waiting.push_back(Request { ticket, share, requester });
        self.grant();
    }

    /// Gives back what was granted for this ticket, or takes its request back. Whether there was
    /// either.
    pub(super) fn release(&mut self, key: Key) -> bool {
        if let Some(share) = self.held.remove(&key) {
            self.free += self.count(share);
        } else if let Some(place) = self.waiting.iter().position(|request| request.key() == key) {
            self.waiting.remove(place);
        } else {
            return false;
        }
        self.grant();
        true
    }

    fn grant(&mut self) {
        while let Some(request) = self.waiting.pop_front_if(|request| {
            let count = match request.share {
                Share::Reading => 1,
                Share::Some(count) => count,
                Share::All => self.total,
            };
            count <= self.free
        }) {
            self.free -= self.count(request.share);
            self.held.insert(request.key(), request.share);
            // Readers pass the news on to the next who can put it right.
            let abandoned = self.abandoned;
            self.abandoned &= request.share == Share::Reading;
            request.requester.answer(&Grant::Granted { abandoned });
        }
    }
}

impl Request {
    fn key(&self) -> Key {
        (self.requester.peer, self.ticket)
    }
}

impl Machine for Permits {
    type Ask = Ask;

    fn ask(&mut self, ask: Ask, requester: Requester) {
        match ask {
            Ask::Acquire { ticket, share } => self.acquire(ticket, share, requester),
            Ask::TryAcquire { ticket, share } => {
                let count = self.count(share);
                if count <= self.total && (!self.waiting.is_empty() || count > self.free) {
                    return requester.answer(&None::<Grant>);
                }
                self.acquire(ticket, share, requester);
            }
            Ask::Release { ticket } => drop(self.release((requester.peer, ticket))),
            Ask::Free => requester.answer(&self.free),
            Ask::Add(count) => {
                self.total = self.total.saturating_add(count);
                self.free = self.free.saturating_add(count);
                self.grant();
            }
        }
    }

    fn lost(&mut self, peer: PeerId) {
        self.waiting.retain(|request| request.requester.peer != peer);
        let lost: Vec<_> = self.held.extract_if(|(holder, _), _| *holder == peer).collect();
        for (_, share) in lost {
            self.free += self.count(share);
            self.abandoned |= share != Share::Reading;
        }
        self.grant();
    }
}

/// Asks for permits; the guard gives them back.
pub(super) fn acquire(handle: &Handle<Permits>, doing: &str, share: Share) -> Waiting<Guard> {
    let ticket = Ticket::new();
    let asked = handle.ask(&Ask::Acquire { ticket, share });
    let permits = TakeBack::new(handle, Ask::Release { ticket });
    Waiting::new(format!("{doing} {}", handle.name()), async move {
        match codec::decode(&asked.await?)? {
            Grant::Granted { abandoned } => Ok(Guard { permits: Some(permits), abandoned }),
            Grant::TooMany { total } => {
                permits.keep();
                Err(Error::invalid(
                    "Semaphore::acquire_many",
                    format!("more permits were asked for than there are: {total}"),
                ))
            }
        }
    })
}

/// Asks for permits that are there at once.
pub(super) fn try_acquire(
    handle: &Handle<Permits>,
    doing: &str,
    share: Share,
) -> Waiting<Option<Guard>> {
    let ticket = Ticket::new();
    let asked = handle.ask(&Ask::TryAcquire { ticket, share });
    let permits = TakeBack::new(handle, Ask::Release { ticket });
    Waiting::new(format!("{doing} {}", handle.name()), async move {
        Ok(match codec::decode::<Option<Grant>>(&asked.await?)? {
            Some(Grant::Granted { abandoned }) => Some(Guard { permits: Some(permits), abandoned }),
            Some(Grant::TooMany { .. }) | None => {
                permits.keep();
                None
            }
        })
    })
}

/// A lock or permits that this process holds. Dropped, they are given back; when the process dies,
/// too.
#[must_use = "what it holds is given back when it is dropped"]
pub struct Guard {
    permits: Option<TakeBack<Permits>>,
    abandoned: bool,
}

impl Guard {
    /// Whether a process died while it held the same thing, and nobody has been told before: what
    /// it protects may be half done.
    ///
    /// The death of a reader counts for nothing. Readers are told, and so is the next writer.
    #[must_use]
    pub fn was_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Keeps what it holds for as long as this process lives.
    pub fn forget(mut self) {
        if let Some(permits) = self.permits.take() {
            permits.keep();
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("abandoned", &self.abandoned).finish_non_exhaustive()
    }
}

/// Makes an object of permits.
#[track_caller]
pub(super) fn permits(kind: &str, total: u32) -> Result<Handle<Permits>> {
    Handle::new(kind, Permits::new(total))
}
