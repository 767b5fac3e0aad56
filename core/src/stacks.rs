//! Stacks of a process as values: its threads, their frames, and profiles. `fiber-stacks` takes
//! them.

mod display;
mod idle;
mod types;
mod user_code;

pub use self::idle::is_of_fiber;
pub use self::types::{
    Frame, ProcessStack, Profile, ProgramNames, Sample, ThreadStack, ThreadState, Unnamed,
};
pub use self::user_code::__rust_begin_short_backtrace as user_code;
pub(crate) use self::user_code::{inside_border, is_border_of_fiber};

/// Why there is no stack of the thread that takes them.
pub const TAKES_STACKS: &str = "it takes the stacks";

/// Returns the calling thread's id in the kernel.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}
