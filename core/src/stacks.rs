//! Stacks of a process as values: its threads, their frames, and profiles. `fiber-stacks` takes
//! them.

mod display;
mod idle;
mod types;

pub use self::idle::is_of_fiber;
pub use self::types::{
    Frame, ProcessStack, Profile, ProgramNames, Sample, ThreadStack, ThreadState, Unnamed,
};

/// Why there is no stack of the thread that takes them.
pub const TAKES_STACKS: &str = "it takes the stacks";

/// Returns the calling thread's id in the kernel.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}
