//! The capture of stacks, in a build that has it.

mod capture;
mod libraries;
mod modules;
mod profile;
mod program;
mod signal;
mod threads;
mod unwind;

use fiber_core::stacks::{
    Frame, ProcessStack, Profile, ProgramNames, Sample, TAKES_STACKS, ThreadStack, ThreadState,
    is_of_fiber, thread_id,
};

pub use self::capture::{capture, capture_thread, from_outside};
pub use self::profile::profile;
pub use self::program::program_names;
