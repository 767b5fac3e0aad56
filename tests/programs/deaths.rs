//! The end of a program ends its children and theirs. [`Program::end`] checks for every program
//! that nothing is left.

use std::path::Path;

use fiber_test_support::program::{Program, Setup, is_guard};
use fiber_test_support::trial;
use rustix::process::Signal;

/// The output of children. That of grandchildren goes through them, and may be lost with them.
const CHILD_OUTPUT: [&str; 3] = ["0 was here", "1 was here", "2 was here"];

fn family() -> Program {
    let program = Setup::new("family").start();
    program.line("all at work");
    // Each process that has children has a guard.
    program.wait_until("guards", || {
        program.processes().into_iter().filter(|pid| is_guard(*pid)).count() == 4
    });
    assert_eq!(program.processes().len(), 10 + 4);
    program
}

#[trial]
fn the_kill_of_a_parent_ends_its_family() {
    let program = family();
    program.signal(Signal::KILL);
    program.end().signal(Signal::KILL);
}

#[trial]
fn ctrl_c_ends_a_family_with_the_usual_code() {
    let program = family();
    program.press_ctrl_c();
    program.end().signal(Signal::INT).says(&CHILD_OUTPUT);
}

#[trial]
fn ctrl_c_in_a_terminal_ends_a_family_with_the_usual_code() {
    let mut program = Setup::new("family").in_a_terminal().start();
    program.line("all at work");
    program.say("\x03");
    // As shells report it.
    program.end().code(128 + Signal::INT.as_raw()).says(&CHILD_OUTPUT);
}

#[trial]
fn sigterm_and_sighup_end_a_family() {
    for signal in [Signal::TERM, Signal::HUP] {
        let program = family();
        program.signal(signal);
        program.end().signal(signal).says(&CHILD_OUTPUT);
    }
}

#[trial]
fn a_family_ends_by_signals_that_fiber_does_not_handle() {
    let program = Setup::new("family").env("FIBER_SIGNALS", "false").start();
    program.line("all at work");
    program.press_ctrl_c();
    program.end().signal(Signal::INT);
}

#[trial]
fn an_ignored_signal_stays_ignored() {
    let executable = std::env::current_exe().unwrap();
    let nohup = Setup::with_executable("work on demand", Path::new("nohup"));
    let mut program = nohup.args(&[executable.to_str().unwrap()]).start();
    for _ in 0..2 {
        program.say("map");
        program.line("sum ");
        program.signal(Signal::HUP);
    }
    program.end().code(0);
}

#[trial]
fn ctrl_c_ends_a_family_of_stopped_processes() {
    let program = family();
    for pid in program.processes() {
        if pid != program.pid() {
            let _ =
                rustix::process::kill_process(fiber_test_support::program::pid(pid), Signal::STOP);
        }
    }
    program.press_ctrl_c();
    program.end().signal(Signal::INT);
}

#[trial]
fn the_return_of_main_ends_a_family_and_forwards_its_output() {
    Setup::new("family, main returns").run().code(0).says(&CHILD_OUTPUT);
}

#[trial]
fn an_exit_ends_a_family_and_forwards_its_output() {
    for how in ["family, main exits", "family, a thread exits"] {
        Setup::new(how).run().code(5).says(&CHILD_OUTPUT);
    }
}

#[trial]
fn a_panic_of_main_ends_a_family() {
    let ending = Setup::new("family, main panics").run().code(101);
    assert!(ending.errors.contains("main has had enough"), "{}", ending.errors);
}

#[trial]
fn stopped_children_are_replaced() {
    let setup = Setup::new("stopped children").env("FIBER_HEARTBEAT", "200ms");
    setup.env("FIBER_HEARTBEAT_TIMEOUT", "2s").run().code(0).says(&[
        "process: process `process-1` sent no heartbeat for 2s",
        "replaced: true",
        "2 of its workers died while they ran it; the last one sent no heartbeat for 2s",
        "could not be started: it sent no heartbeat for 2s",
    ]);
}

#[trial]
fn a_backtrace_is_there_if_enabled_and_not_part_of_the_message() {
    for (asked_for, calls) in [("0", 0..=0), ("1", 1..=6), ("full", 30..=10_000)] {
        let ending = Setup::new("panic").env("RUST_BACKTRACE", asked_for).run().code(0);
        let message =
            ending.out.lines().find(|line| line.starts_with("message: ")).expect("it is printed");
        assert!(
            message.contains("the cause 7 (at ") && message.contains("scenarios.rs:"),
            "{message}"
        );
        assert_eq!(
            ending.out.lines().nth(1).map(|line| line.contains("the cause 7")),
            Some(true),
            "{}",
            ending.out
        );
        let (_, backtrace) = ending.out.split_once("backtrace of the panic:\n").unwrap_or_default();
        let mut places = backtrace.lines().filter(|line| line.trim().starts_with("at "));
        assert!(calls.contains(&places.clone().count()), "{}", ending.out);
        // The last call is the user's.
        let last = places.next_back().filter(|_| asked_for == "1");
        assert!(last.is_none_or(|last| last.contains("scenarios.rs:")), "{}", ending.out);
        assert_eq!(ending.errors, "");
    }
}

#[trial]
fn the_backtrace_of_a_handler_is_printed_although_its_session_ends() {
    for handler in ["at once", "later"] {
        let setup = Setup::new("handler that panics").args(&[handler]);
        let ending = setup.env("RUST_BACKTRACE", "1").run().code(0);
        assert!(!ending.out.contains("backtrace"), "nobody waits for it: {}", ending.out);
        let backtrace = "the backtrace of the panic `the cause 7 (at tests/programs/scenarios/";
        assert_eq!(ending.errors.matches(backtrace).count(), 1, "{}", ending.errors);
        assert!(ending.errors.contains("scenarios/managed.rs:"), "{}", ending.errors);
        assert!(ending.errors.ends_with("for a verbose backtrace."), "{}", ending.errors);
    }
}

/// A backtrace is longer than the lines that fiber keeps of a worker's output.
#[trial]
fn the_message_of_a_panic_that_aborts_is_in_the_error() {
    for backtrace in ["0", "1"] {
        let ending = Setup::new("panic that aborts").env("RUST_BACKTRACE", backtrace).run().code(0);
        ending.says(&["SIGABRT", "a task panicked: the cause 7 (at tests/programs/scenarios.rs:"]);
    }
}
