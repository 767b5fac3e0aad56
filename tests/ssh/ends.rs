//! Programs that end, by themselves and otherwise: nothing is left on the machines but the cache.

use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use rustix::process::Signal;

use crate::machines::{Cut, builds, processes_on, program};

#[trial]
fn a_killed_program_leaves_nothing() {
    let program = program("ready", "a,b").start();
    program.line("ready: 2");
    assert!(!processes_on(&program, "a").is_empty() && !processes_on(&program, "b").is_empty());
    program.signal(Signal::KILL);
    // This checks for processes and files, also of ssh.
    program.end().signal(Signal::KILL);
    for machine in ["a", "b"] {
        for build in std::fs::read_dir(builds(machine)).expect("it is there").flatten() {
            let files = std::fs::read_dir(build.path()).expect("it is there").flatten();
            let names: Vec<_> = files.map(|file| file.file_name()).collect();
            assert!(names.len() == 1 && !names[0].to_string_lossy().starts_with('.'), "{names:?}");
        }
    }
}

#[trial]
fn a_killed_program_leaves_nothing_where_its_wire_is_cut() {
    let program = program("ready", "a,b").start();
    program.line("ready: 2");
    let cut = Cut::of("b");
    program.signal(Signal::KILL);
    program.end().signal(Signal::KILL);
    drop(cut);
}

/// The program is stopped, so it can't end them.
#[trial]
fn machines_that_lose_a_stopped_program_end_by_themselves() {
    let mut program = program("ready", "a,b").env("FIBER_HEARTBEAT_TIMEOUT", "3s").start();
    program.line("ready: 2");
    program.signal(Signal::STOP);
    let cut = Cut::of("b");
    wait_until("they have ended", || processes_on(&program, "b").is_empty());
    drop(cut);
    program.signal(Signal::CONT);
    program.say("go on");
    program.end().code(0).says(&["sum: 55"]);
}

#[trial]
fn ctrl_c_ends_a_program_in_order() {
    let program = program("ready", "a,b").start();
    program.line("ready: 2");
    program.press_ctrl_c();
    program.end().signal(Signal::INT);
}
