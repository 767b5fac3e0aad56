//! Supervisors, as in Erlang/OTP: they start children, restart those that fail, and stop them all
//! in order.
//!
//! A child is an actix actor, a process, another supervisor, or anything else that implements
//! [`Start`]. A [`ChildSpec`] says how to start it, when to restart it ([`Restart`]) and how to
//! stop it ([`Shutdown`]). The [`Strategy`] says which siblings are restarted together with a child
//! that failed.
//!
//! # Promises
//! - The builder's children start one after the other, in order. If one can't be started, the
//!   supervisor stops those before it, and its own start fails. Children that are
//!   [added](SupervisorRef::add_child) later start concurrently.
//! - Children stop in the reverse order of their start. Each has a deadline, after which it is
//!   killed. Only the added children of a [one-for-one](Strategy::OneForOne) supervisor, which
//!   don't depend on each other, stop concurrently.
//! - The first restart of a child comes at once, each further one after a longer pause
//!   ([`Backoff`]). If a child fails more often than the
//!   [intensity](SupervisorBuilder::intensity) allows, the supervisor stops its children and then
//!   itself, with [`ExitReason::IntensityReached`](fiber_core::ExitReason::IntensityReached). For
//!   its own supervisor that is the failure of a child.
//! - An end that was asked for is no failure. The supervisor ignores late reports of an earlier
//!   incarnation.
//! - A panic in an actor's handler fails the call with the panic's message, and is a failure of
//!   the child. Its next incarnation is a new actor, made by the factory.
//! - An actor that [watches](SupervisorRef::watch) a child or a supervisor gets exactly one
//!   [`Down`] for the end of each incarnation.
//! - Dropping the last [`SupervisorRef`] stops nothing.
//!
//! # Reading order
//! The public parts stand by themselves: `spec`, `strategy`, `backoff`, `builder`,
//! `supervisor_ref`, `child_ref`, `tree`, and `start` with the trait of all children. Actors and
//! nested supervisors implement it in `actor` and `nested`; `incarnation` leads calls to the
//! current incarnation of an actor. All decisions of a supervisor are one state machine without
//! clock and tasks, `machine`; the supervisor itself, an actor, drives it: `driver`.

mod actor;
pub(crate) mod actor_loop;
pub(crate) mod alone;
mod backoff;
mod builder;
mod child_ref;
mod directory;
mod driver;
mod identity;
pub(crate) mod incarnation;
mod inside;
mod intensity;
mod machine;
mod nested;
mod spec;
mod start;
mod supervisor_ref;
mod tree;

pub use backoff::Backoff;
pub use builder::SupervisorBuilder;
pub use child_ref::ChildRef;
pub use driver::Supervisor;
pub use fiber_core::stats::Strategy;
pub use identity::{ChildEnd, Down};
#[doc(hidden)]
pub use inside::{Inside, TreePlace};
#[doc(hidden)]
pub use intensity::{Intensity, RestartLimits};
#[doc(hidden)]
pub use spec::check_name;
pub use spec::{ChildSpec, Counts, Restart, Shutdown};
#[doc(hidden)]
pub use start::Within;
pub use start::{ChildContext, Control, Running, Start};
pub use supervisor_ref::SupervisorRef;
pub use tree::{Branch, ChildKind, ChildState, Tree, tree};

#[cfg(test)]
mod tests;
