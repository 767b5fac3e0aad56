//! What supervisors promise.

mod actors;
mod backoff;
mod dynamic;
mod ending;
mod nesting;
mod restarting;
mod script;
mod telling;
