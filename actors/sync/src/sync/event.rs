//! A flag that processes wait for.

use fiber_core::Result;
use serde::{Deserialize, Serialize};

use super::state::{ObjectState, StateHandle};
use fiber_runtime::mesh::{PeerId, Requester};
use fiber_runtime::objects::{ObjectRef, Ticket};
use fiber_runtime::reply::Reply;

/// A flag that processes set, clear, and wait for.
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
    handle: StateHandle<EventState>,
}

#[derive(Default)]
struct EventState {
    set: bool,
    waiting: Vec<(Ticket, Requester)>,
}

#[derive(Serialize, Deserialize)]
enum Operation {
    Set,
    Clear,
    IsSet,
    /// Answered when the event is set.
    Wait(Ticket),
    /// Not answered.
    Withdraw(Ticket),
}

impl ObjectState for EventState {
    type Operation = Operation;

    fn apply(&mut self, operation: Operation, requester: Requester) {
        match operation {
            Operation::Set => {
                self.set = true;
                std::mem::take(&mut self.waiting)
                    .into_iter()
                    .for_each(|(_, waiting)| waiting.answer(&()));
                requester.answer(&());
            }
            Operation::Clear => {
                self.set = false;
                requester.answer(&());
            }
            Operation::IsSet => requester.answer(&self.set),
            Operation::Wait(_) if self.set => requester.answer(&()),
            Operation::Wait(ticket) => self.waiting.push((ticket, requester)),
            Operation::Withdraw(ticket) => {
                self.waiting
                    .retain(|(other, waiting)| (waiting.peer, *other) != (requester.peer, ticket));
            }
        }
    }

    fn peer_lost(&mut self, peer: PeerId) {
        self.waiting.retain(|(_, waiting)| waiting.peer != peer);
    }
}

impl Event {
    /// Makes an event that is not set. It lives in this process. [`Event`] has an example.
    ///
    /// # Errors
    /// [`Error::NotInitialized`](fiber_core::Error::NotInitialized), a wrong configuration, or an
    /// error of the system.
    #[track_caller]
    pub fn new() -> Result<Event> {
        Ok(Event { handle: StateHandle::new("event", EventState::default())? })
    }

    /// Sets the event. All calls of [`wait_set`](Event::wait_set) succeed, those that wait already
    /// and those that follow, until it is cleared.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let ready = fiber::sync::Event::new()?;
    /// let waiting = ready.wait_set();
    /// ready.set().wait()?;
    /// waiting.wait()?;
    /// assert!(ready.is_set().wait()?);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn set(&self) -> Reply<()> {
        self.handle.call("setting", &Operation::Set)
    }

    /// Clears the event. Calls of [`wait_set`](Event::wait_set) that follow wait again.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let ready = fiber::sync::Event::new()?;
    /// ready.set().wait()?;
    /// ready.clear().wait()?;
    /// assert!(!ready.is_set().wait()?);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn clear(&self) -> Reply<()> {
        self.handle.call("clearing", &Operation::Clear)
    }

    /// Returns whether the event is set. [`set`](Event::set) has an example.
    pub fn is_set(&self) -> Reply<bool> {
        self.handle.call("asking", &Operation::IsSet)
    }

    /// Waits until the event is set. Dropping the reply withdraws the request.
    ///
    /// The process that should set it may die before: [`Reply::timeout`] limits the wait.
    /// [`set`](Event::set) has an example.
    pub fn wait_set(&self) -> Reply<()> {
        let what = self.handle.name().to_string();
        self.handle.call_withdrawable(what, Operation::Wait, Operation::Withdraw)
    }
}
