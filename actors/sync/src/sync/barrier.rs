//! A barrier for a number of processes.

use fiber_core::Result;
use serde::{Deserialize, Serialize};

use super::state::{ObjectState, StateHandle};
use fiber_runtime::mesh::{PeerId, Requester};
use fiber_runtime::objects::{ObjectRef, Ticket};
use fiber_runtime::reply::Reply;

/// A barrier: a number of parties wait until all of them have arrived, as at
/// [`std::sync::Barrier`]. It then opens for them, and is closed again for the next round.
///
/// A party that dies or drops its reply while it waits no longer counts as arrived. A party that
/// dies before it arrives keeps the others waiting: [`Reply::timeout`] limits that.
///
/// # Examples
/// ```
/// # fiber::init();
/// use fiber::{Process, sync::Barrier};
///
/// let barrier = Barrier::new(2)?;
/// let meet = |barrier: Barrier| barrier.wait_all().wait();
/// let process = Process::builder().try_spawn(meet, barrier.clone());
/// let (here, there) = (barrier.wait_all().wait()?, process.wait()?);
/// assert_eq!(here + there, 1); // one was the first, which is 0, the other one the last
/// # Ok::<(), fiber::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Barrier {
    handle: StateHandle<BarrierState>,
}

struct BarrierState {
    parties: usize,
    waiting: Vec<(Ticket, Requester)>,
}

#[derive(Serialize, Deserialize)]
enum Operation {
    /// Answered with the order of arrival, when all parties have arrived.
    Arrive(Ticket),
    /// Not answered.
    Withdraw(Ticket),
    /// Answered with the number of parties that wait.
    Waiting,
}

impl ObjectState for BarrierState {
    type Operation = Operation;

    fn apply(&mut self, operation: Operation, requester: Requester) {
        match operation {
            Operation::Arrive(ticket) => {
                self.waiting.push((ticket, requester));
                if self.waiting.len() >= self.parties {
                    for (position, (_, waiting)) in self.waiting.drain(..).enumerate() {
                        waiting.answer(&position);
                    }
                }
            }
            Operation::Withdraw(ticket) => {
                self.waiting
                    .retain(|(other, waiting)| (waiting.peer, *other) != (requester.peer, ticket));
            }
            Operation::Waiting => requester.answer(&self.waiting.len()),
        }
    }

    fn peer_lost(&mut self, peer: PeerId) {
        self.waiting.retain(|(_, waiting)| waiting.peer != peer);
    }
}

impl Barrier {
    /// Makes a barrier for this number of parties. It lives in this process. [`Barrier`] has an
    /// example.
    ///
    /// # Errors
    /// [`Error::NotInitialized`](fiber_core::Error::NotInitialized), a wrong configuration, or an
    /// error of the system.
    #[track_caller]
    pub fn new(parties: usize) -> Result<Barrier> {
        let state = BarrierState { parties, waiting: Vec::new() };
        Ok(Barrier { handle: StateHandle::new("barrier", state)? })
    }

    /// Waits until all parties have arrived. Returns the position in which this one arrived: 0 is
    /// the first.
    ///
    /// Calling it counts as arriving, before the reply is awaited. Dropping the reply takes that
    /// back.
    ///
    /// # Examples
    /// ```
    /// # fiber::init();
    /// let barrier = fiber::sync::Barrier::new(2)?;
    /// let first = barrier.wait_all();
    /// assert_eq!(barrier.waiting().wait()?, 1);
    /// assert_eq!(barrier.wait_all().wait()?, 1);
    /// assert_eq!(first.wait()?, 0);
    /// # Ok::<(), fiber::Error>(())
    /// ```
    pub fn wait_all(&self) -> Reply<usize> {
        let what = format!("the meeting at {}", self.handle.name());
        self.handle.call_withdrawable(what, Operation::Arrive, Operation::Withdraw)
    }

    /// Returns how many parties wait. [`wait_all`](Barrier::wait_all) has an example.
    pub fn waiting(&self) -> Reply<usize> {
        self.handle.call("asking", &Operation::Waiting)
    }
}
