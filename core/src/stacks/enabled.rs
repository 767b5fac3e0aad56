//! The capture of stacks, in a build that has it.

mod capture;
mod modules;
mod profile;
mod signal;
mod symbols;
mod threads;
mod unwind;

use super::{Frame, ProcessStack, Profile, ThreadStack, ThreadState, thread_id};

pub use self::capture::{capture, capture_thread, from_outside};
pub use self::profile::profile;
