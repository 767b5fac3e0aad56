//! Actors, rings and queues that a program finds again when it is started again.
//!
//! Most tests start programs: this binary again, with the name of one of the [`programs`] in its
//! environment. They kill some of them at random.

#[path = "durable_state/actors.rs"]
mod actors;
#[path = "durable_state/programs.rs"]
mod programs;
#[path = "durable_state/queues.rs"]
mod queues;
#[path = "durable_state/rings.rs"]
mod rings;

fiber::test_harness!();

/// Runs a program if this process was started for one. In a test run, it has nothing to do.
#[test]
fn program() {
    programs::run_named();
}
