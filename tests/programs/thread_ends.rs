//! Handles may be dropped anywhere: also when a thread ends, and has lost other values of its own.

use fiber_test_support::program::Setup;
use fiber_test_support::trial;

#[trial]
fn handles_are_dropped_quietly_when_their_thread_ends() {
    let ended = Setup::new("handles in threads that end").run().code(0);
    assert!(ended.says(&["ended with pool", "ended with array"]).errors.is_empty());
}

#[trial]
fn handles_are_dropped_quietly_when_the_program_ends() {
    let ended = Setup::new("handles in the main thread that ends").run().code(0);
    assert!(ended.says(&["keeps all"]).errors.is_empty());
}

#[trial]
fn calls_of_a_late_exit_hook_are_errors() {
    let ended = Setup::new("calls when the program has ended").run().code(0);
    ended.says(&["apply: pool `", "map: pool `", "imap: pool `", "the program is about to end"]);
}

#[trial]
fn handles_may_end_with_threads_that_have_not_used_them() {
    let ended = Setup::new("handles from other threads").run().code(0);
    assert!(ended.says(&["put 7"]).errors.is_empty());
}
