//! The promises of `fiber run` on batch systems, tested on each: [`System`] says what differs.

mod input;
mod runs;
mod scenarios;
pub(crate) mod session;
mod sessions;
mod system;

pub(crate) use self::system::{System, fiber, run, run_program};
