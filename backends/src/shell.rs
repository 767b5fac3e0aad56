//! Programs that a shell starts and watches on another machine, for backends with a command that
//! runs one there: `ssh`, and `qrsh` of Grid Engine.
//!
//! Each job is one [session](session) of such a command. A [script](script) starts the program. The
//! session's standard input keeps the job alive: all ends with it, also if this process is killed.

mod script;
mod session;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use self::script::{COMMAND, Script};
pub(crate) use self::session::{Remote, start};
