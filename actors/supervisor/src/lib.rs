//! Fiber's supervisors, the processes of one function that they supervise, and the options that all
//! builders of processes share.
//!
//! Users name the crate `fiber`, which re-exports what they need from here.

// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The macro `builder_options` names this crate as its other users do.
extern crate self as fiber_supervisor;

pub mod options;
pub mod process;
pub mod supervisor;

pub use supervisor::actor_loop::{ActorCommand, current_actor, own_addr};
#[doc(hidden)]
pub use supervisor::alone::{Alone, Life};
#[doc(hidden)]
pub use supervisor::incarnation::Incarnation;
