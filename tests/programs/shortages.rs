//! Pools and managed actors survive a temporary shortage of descriptors.

use crate::program::{Program, Setup};

crate::tests![
    a_pool_works_with_fewer_workers_during_a_shortage_and_recovers,
    a_pool_that_is_scaled_up_during_a_shortage_grows_after_it,
    a_pool_that_lost_all_workers_during_a_shortage_recovers,
    a_pool_that_can_start_no_worker_gives_up_with_the_reason,
    a_managed_actor_survives_a_shortage,
];

/// The system's error message.
const SHORTAGE: &str = "Too many open files";

/// Waits until `count` starts of workers have failed.
fn await_failed_starts(program: &Program, count: usize) {
    (0..count).for_each(|_| drop(program.line_with("could not be started")));
}

fn a_pool_works_with_fewer_workers_during_a_shortage_and_recovers() {
    let mut program = Setup::new("shortage of some").start();
    let warning = program.line_with("works with 2 of 3 workers");
    assert!(
        warning.contains("WARN") && warning.contains("pool `short`") && warning.contains(SHORTAGE),
        "{warning}"
    );
    program.say("go on");
    assert_eq!(program.line("meanwhile "), "42");
    assert_eq!(program.line("ready "), "2");
    program.line("all right");
    let ending = program.end().code(0).says(&["pool `short` has all its 3 workers again"]);
    assert!(!ending.out.contains("works with"), "the warning appears once: {}", ending.out);
}

fn a_pool_that_is_scaled_up_during_a_shortage_grows_after_it() {
    let mut program = Setup::new("shortage while growing").start();
    assert_eq!(program.line("ready "), "1");
    await_failed_starts(&program, 12);
    program.say("go on");
    assert_eq!(program.line("ready "), "1");
    program.end().code(0);
}

fn a_pool_that_lost_all_workers_during_a_shortage_recovers() {
    let mut program = Setup::new("shortage of all").start();
    await_failed_starts(&program, 16);
    program.say("go on");
    program.end().code(0).says(&["done 42"]);
}

fn a_pool_that_can_start_no_worker_gives_up_with_the_reason() {
    let program = Setup::new("shortage of all").env("FIBER_START_TIMEOUT", "10s").start();
    let error = program.line("failed ");
    assert!(
        error.starts_with("pool `short` failed: ") && error.contains("starts of workers in a row"),
        "{error}"
    );
    assert!(error.contains(SHORTAGE), "{error}");
    program.end().code(0);
}

fn a_managed_actor_survives_a_shortage() {
    let mut program = Setup::new("shortage of a managed actor").start();
    (0..6).for_each(|_| drop(program.line_with(SHORTAGE)));
    program.say("go on");
    program.end().code(0).says(&["doubled 42"]);
}
