//! The state machine of a supervisor: events go in, effects come out.
//!
//! It decides when children start, restart and stop. It has no clock, no tasks and no children of
//! its own: the [`driver`](super::driver) feeds it, carries its effects out, and asks it for the
//! next [deadline](Supervision::deadline). The time and random numbers come with each event.
//!
//! Read it in this order:
//! 1. [`event`]: the events and effects.
//! 2. [`state`]: the supervision with its phase, and [`child`]: a child with its phase.
//! 3. [`input`]: each event is one transition of a child, or of the supervision; then the sequence
//!    advances as far as it can.
//! 4. [`transitions`]: what an event does to a child: pending, starting, running, stopping and,
//!    after its end, pending again, backing off, finished or removed.
//! 5. [`sequence`]: the order in which pending children start and running ones stop, when they do
//!    so one after the other.

mod child;
mod event;
mod input;
mod sequence;
mod state;
mod timers;
mod transitions;

pub(super) use child::{Origin, Rules};
pub(super) use event::{Effect, Event, Key, Request, StopMethod, Turn};
pub(super) use state::{Options, Supervision};

#[cfg(test)]
mod tests;
