//! Actors, rings and queues that a program finds again when it is started again.
//!
//! Most tests start programs: this binary again, with the name of one of the [`programs`] in its
//! environment. They kill some of them at random.

mod actors;
mod programs;
mod queues;
mod rings;

/// Runs a program if this process was started for one. In a test run, it has nothing to do.
#[test]
fn program() {
    programs::run_named();
}
