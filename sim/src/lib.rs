//! Scenarios of fiber for simulated worlds: sessions with their programs, faults and checks.
//!
//! `ground`: sessions, drawn numbers and common checks; `restarts`: heads that die and start again;
//! `scenarios`: programs with their checks.

mod ground;
mod restarts;
pub mod scenarios;

pub use ground::{Ground, Limits, Report, Storm, folder, play};
pub use restarts::Death;
