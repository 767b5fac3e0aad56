//! Processes that wait for room on machines, in a program that shows no log.

use fiber_test_support::program::Setup;
use fiber_test_support::trial;

/// Both hosts say that they have none before a process starts there.
#[trial]
fn a_request_that_no_machine_can_grant_is_refused_when_their_hosts_know_it() {
    let ended = Setup::new("no GPUs").run().code(0);
    let problem = "no machine is large enough for a process of 1 GPU: the largest have ";
    let out = ended.says(&[problem, " cores and 0 GPUs"]).out;
    assert!(!out.contains("but this host has none"), "{out}");
}

#[trial]
fn what_waits_for_room_and_machines_that_fail_are_said_and_shown() {
    let mut program = Setup::new("one slot").start();
    let off = program.error("fiber: warning: `off` can't be used for now: ");
    assert!(off.contains("before it was ready"), "{off}");
    let waits = "`n1` has no room for another process: `first` has it";
    program.error(&format!("fiber: warning: `second/worker-1` waits: {waits}"));
    program.line(&format!("second/worker-1: {waits}"));
    program.line(&format!("host-off: it can't be used: {off}"));
    program.say("go on");
    let ending = program.end().code(0).says(&["second: 7"]);
    // Each of them once, though the machine is tried again; none of a pool that works.
    assert!(!ending.errors.contains("waits: "), "{}", ending.errors);
    assert!(!ending.errors.contains("for now"), "{}", ending.errors);
}

#[trial]
fn a_machine_that_fails_again_is_warned_of_once() {
    let mut program = Setup::new("one slot, with a log").start();
    let attempts = [(); 2].map(|()| program.line_with("no host could be started on `off`: "));
    program.say("go on");
    program.end().code(0);
    let is_warning = attempts.each_ref().map(|line| line.contains("WARN fiber_runtime"));
    assert_eq!(is_warning, [true, false], "{attempts:?}");
}
