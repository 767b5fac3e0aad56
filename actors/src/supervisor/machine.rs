//! The state machine of a supervisor.
//!
//! Read it in this order:
//! 1. [`state`]: the supervisor with its phase, and [`child`]: a child with its phase.
//! 2. [`event`]: events from the supervisor's own tasks (a child has started or exited, a timer
//!    has expired), and commands from references.
//! 3. [`input`]: the actor that receives both. Each event and each command is one transition of a
//!    child, or of the supervisor; then the sequence advances as far as it can.
//! 4. [`transitions`]: what an event does to a child: pending, starting, running, stopping and,
//!    after its end, pending again, backing off, finished or removed.
//! 5. [`sequence`]: the order in which pending children start and running ones stop, when they do
//!    so one after the other.

mod child;
mod event;
mod input;
mod sequence;
mod state;
mod transitions;

pub(super) use event::{Command, StopMethod};
pub(super) use state::Options;
pub use state::Supervisor;
