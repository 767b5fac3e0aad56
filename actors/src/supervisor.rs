//! Supervisors, as in Erlang/OTP: they start children, restart those that fail, and end them all in
//! order.
//!
//! A child is an actix actor, an OS process (anything that implements [`Start`]), or another
//! supervisor. A [`ChildSpec`] says how to start it, when to restart it ([`Restart`]) and how to
//! end it ([`Shutdown`]). The [`Strategy`] says which siblings are restarted together with a child
//! that failed.
//!
//! # What is promised
//! - The builder's children are started one after the other, in order; if one can't be started,
//!   those before it are ended and the start fails. Children that are [added](SupervisorRef::add_child)
//!   later start at the same time as others.
//! - Children are ended in the reverse order of their start, each within its deadline, after which
//!   it is killed. Only added children of a [one-for-one](Strategy::OneForOne) supervisor, which
//!   don't depend on each other, end together.
//! - A child is restarted at once the first time, then after a growing pause ([`Backoff`]). When
//!   more restarts are needed than the [intensity](SupervisorBuilder::intensity) allows, the supervisor ends
//!   all its children and then itself, with
//!   [`ExitReason::IntensityReached`](fiber_core::ExitReason::IntensityReached); its own supervisor
//!   decides what then.
//! - Ends that were asked for are no failures. What an earlier incarnation still reports is
//!   ignored.
//! - A panic of an actor's handler fails the call with the panic's message; the actor is made anew
//!   by its factory.
//! - Whoever [watches](SupervisorRef::watch) a child or a supervisor is told of the end of each
//!   incarnation exactly once.
//! - Dropping the last [`SupervisorRef`] ends nothing.

mod actor;
mod backoff;
mod builder;
mod care;
mod child;
mod child_ref;
mod directory;
mod drive;
mod event;
mod identity;
mod intensity;
mod machine;
mod mailbox;
mod nested;
mod slot;
mod spec;
mod start;
mod strategy;
mod supervisor_ref;
mod tree;
mod turns;

pub(crate) use actor::Lifecycle;
pub use backoff::Backoff;
pub use builder::SupervisorBuilder;
pub use child_ref::ChildRef;
pub(crate) use drive::current_actor;
pub use identity::Down;
pub use machine::Supervisor;
pub(crate) use spec::check_name;
pub use spec::{ChildSpec, Counts, Restart, Shutdown};
pub use start::{ChildContext, Control, Running, Start};
pub use strategy::Strategy;
pub use supervisor_ref::SupervisorRef;
pub use tree::{Branch, ChildKind, State, Tree, tree};

#[cfg(test)]
mod tests;
