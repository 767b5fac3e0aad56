//! Programs that a shell starts and watches on another machine, for backends with a command that
//! runs one there, as `ssh` does.
//!
//! Each job is one session of such a command, which a [`Remote`] describes. A [`Script`] starts the
//! program. The session's standard input keeps the job alive: all ends with it, also if this process
//! is killed.

mod script;
mod session;
#[cfg(test)]
pub(crate) mod testing;

pub use self::script::{COMMAND, Script};
pub use self::session::{Remote, start};
