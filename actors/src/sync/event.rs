//! Something that happens once, or until it is cleared.

use fiber_core::{Result, codec};
use serde::{Deserialize, Serialize};

use super::shared::{Handle, Machine, TakeBack};
use crate::mesh::{PeerId, Requester};
use crate::objects::{Ticket, Waiting};

/// A flag that processes can wait for.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Process, sync::Event};
///
/// let go = Event::new()?;
/// let process = Process::builder().try_spawn(|go: Event| go.wait_set().wait(), go.clone());
/// go.set().wait()?;
/// process.wait()?;
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Event {
    handle: Handle<Flag>,
}

#[derive(Default)]
struct Flag {
    set: bool,
    waiting: Vec<(Ticket, Requester)>,
}

#[derive(Serialize, Deserialize)]
enum Ask {
    Set,
    Clear,
    IsSet,
    Wait { ticket: Ticket },
    StopWaiting { ticket: Ticket },
}

impl Machine for Flag {
    type Ask = Ask;

    fn ask(&mut self, ask: Ask, requester: Requester) {
        match ask {
            Ask::Set => {
                self.set = true;
                std::mem::take(&mut self.waiting)
                    .into_iter()
                    .for_each(|(_, waiting)| waiting.answer(&()));
                requester.answer(&());
            }
            Ask::Clear => {
                self.set = false;
                requester.answer(&());
            }
            Ask::IsSet => requester.answer(&self.set),
            Ask::Wait { .. } if self.set => requester.answer(&()),
            Ask::Wait { ticket } => self.waiting.push((ticket, requester)),
            Ask::StopWaiting { ticket } => {
                self.waiting
                    .retain(|(other, waiting)| (waiting.peer, *other) != (requester.peer, ticket));
            }
        }
    }

    fn lost(&mut self, peer: PeerId) {
        self.waiting.retain(|(_, waiting)| waiting.peer != peer);
    }
}

impl Event {
    /// One that is not set.
    ///
    /// # Errors
    /// If fiber can't work at all.
    #[track_caller]
    pub fn new() -> Result<Event> {
        Ok(Event { handle: Handle::new("event", Flag::default())? })
    }

    /// Sets it: all who wait go on, and who waits from now on does not have to, until it is
    /// cleared.
    pub fn set(&self) -> Waiting<()> {
        self.handle.call("setting", &Ask::Set)
    }

    /// Clears it.
    pub fn clear(&self) -> Waiting<()> {
        self.handle.call("clearing", &Ask::Clear)
    }

    /// Whether it is set.
    pub fn is_set(&self) -> Waiting<bool> {
        self.handle.call("asking", &Ask::IsSet)
    }

    /// Waits until it is set.
    pub fn wait_set(&self) -> Waiting<()> {
        let ticket = Ticket::new();
        let asked = self.handle.ask(&Ask::Wait { ticket });
        let place = TakeBack::new(&self.handle, Ask::StopWaiting { ticket });
        Waiting::new(self.handle.name().to_string(), async move {
            codec::decode::<()>(&asked.await?)?;
            place.keep();
            Ok(())
        })
    }
}
