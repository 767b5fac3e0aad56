//! A place where processes wait for each other.

use fiber_core::{Result, codec};
use serde::{Deserialize, Serialize};

use super::shared::{Handle, Machine, TakeBack};
use crate::mesh::{PeerId, Requester};
use crate::objects::{Ticket, Waiting};

/// A place where a number of parties wait until all of them are there; then it is free for the next
/// round.
///
/// A party that dies or gives up while it waits has not been there.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Process, sync::Barrier};
///
/// let barrier = Barrier::new(2)?;
/// let process = Process::builder().try_spawn(|barrier: Barrier| barrier.meet().wait(), barrier.clone());
/// let (here, there) = (barrier.meet().wait()?, process.wait()?);
/// assert_eq!(here + there, 1); // one was the first, which is 0, the other one the last
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Barrier {
    handle: Handle<Meeting>,
}

struct Meeting {
    parties: usize,
    waiting: Vec<(Ticket, Requester)>,
}

#[derive(Serialize, Deserialize)]
enum Ask {
    Meet { ticket: Ticket },
    Leave { ticket: Ticket },
    Waiting,
}

impl Machine for Meeting {
    type Ask = Ask;

    fn ask(&mut self, ask: Ask, requester: Requester) {
        match ask {
            Ask::Meet { ticket } => {
                self.waiting.push((ticket, requester));
                if self.waiting.len() >= self.parties {
                    for (place, (_, waiting)) in self.waiting.drain(..).enumerate() {
                        waiting.answer(&place);
                    }
                }
            }
            Ask::Leave { ticket } => {
                self.waiting
                    .retain(|(other, waiting)| (waiting.peer, *other) != (requester.peer, ticket));
            }
            Ask::Waiting => requester.answer(&self.waiting.len()),
        }
    }

    fn lost(&mut self, peer: PeerId) {
        self.waiting.retain(|(_, waiting)| waiting.peer != peer);
    }
}

impl Barrier {
    /// One for so many parties.
    ///
    /// # Errors
    /// If fiber can't work at all.
    #[track_caller]
    pub fn new(parties: usize) -> Result<Barrier> {
        Ok(Barrier { handle: Handle::new("barrier", Meeting { parties, waiting: Vec::new() })? })
    }

    /// Waits until all parties are there, and says in which place this one came: the first is 0.
    pub fn meet(&self) -> Waiting<usize> {
        let ticket = Ticket::new();
        let asked = self.handle.ask(&Ask::Meet { ticket });
        let place = TakeBack::new(&self.handle, Ask::Leave { ticket });
        Waiting::new(format!("the meeting at {}", self.handle.name()), async move {
            let position = codec::decode(&asked.await?)?;
            place.keep();
            Ok(position)
        })
    }

    /// How many parties wait.
    pub fn waiting(&self) -> Waiting<usize> {
        self.handle.call("asking", &Ask::Waiting)
    }
}
