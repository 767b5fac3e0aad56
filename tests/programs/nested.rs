//! The number of processes that the children of a program start.

use fiber_test_support::program::{Setup, is_guard, pid};
use fiber_test_support::trial;
use rustix::process::{Signal, kill_process};

const NAME: &str = "FIBER_MAX_NESTED_PROCESSES";

#[trial]
fn a_pool_in_a_static_makes_no_more_processes_than_are_allowed() {
    let mut program = Setup::new("a pool in a static").env(NAME, "5").start();
    program.line_with(NAME);
    let processes = program.processes().into_iter().filter(|pid| !is_guard(*pid)).count();
    // The program itself, its two workers, and those below them.
    assert!(processes <= 1 + 2 + 5, "{processes} processes");
    program.say("end");
    let ended = program.end().code(0);
    let warnings = ended.errors.matches("fiber: warning: 5 processes run below").count();
    assert_eq!(warnings, 1, "{}", ended.errors);
}

#[trial]
fn what_nested_processes_had_is_free_when_the_process_that_started_them_is_killed() {
    for levels in ["1", "2"] {
        let mut program =
            Setup::new("a holder of seats dies").env(NAME, levels).args(&[levels]).start();
        let holder = program.line("holder ").parse().expect("it is a number");
        program.say("go on");
        program.line_with(NAME);
        kill_process(pid(holder), Signal::KILL).expect("it runs");
        program.end().code(0).says(&["works again"]);
    }
}

#[trial]
fn a_nested_pool_that_gets_fewer_workers_works_with_them() {
    Setup::new("fewer nested workers").env(NAME, "1").run().code(0).says(&["sum 285"]);
}
