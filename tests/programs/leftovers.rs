//! The end of a process, for any reason, ends the programs that its tasks have started, directly or
//! not.

use std::collections::HashSet;
use std::path::Path;

use fiber_test_support::program::{Program, Setup, command_line, is_guard, pid};
use fiber_test_support::trial;
use rustix::process::{Signal, kill_process};

/// Returns the running programs that tasks have started.
fn started(program: &Program) -> HashSet<u32> {
    program
        .processes()
        .into_iter()
        .filter(|pid| command_line(*pid) == b"sleep\x00600\x00")
        .collect()
}

fn guards(program: &Program) -> HashSet<u32> {
    program.processes().into_iter().filter(|pid| is_guard(*pid)).collect()
}

/// Starts a program with a worker and a nested process. Each has started another program, and has
/// a guard.
fn at_work() -> Program {
    let mut program = Setup::new("starters").start();
    program.say("hang");
    program.line("hang: done");
    program.wait_until("two programs that were started", || started(&program).len() == 2);
    program.wait_until("guards", || guards(&program).len() == 2);
    program
}

/// Returns the open files of a process.
fn held(process: u32) -> impl Iterator<Item = String> {
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).expect("it runs");
    let targets = files.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
    targets.map(|target| target.to_string_lossy().into_owned())
}

#[trial]
fn programs_of_tasks_end_with_a_parent_that_is_killed() {
    for signal in [Signal::KILL, Signal::QUIT, Signal::ABORT] {
        let program = at_work();
        program.signal(signal);
        program.end().signal(signal);
    }
}

#[trial]
fn programs_of_tasks_end_with_the_program() {
    at_work().end().code(0);
}

#[trial]
fn programs_of_tasks_end_with_their_worker() {
    let mut program = Setup::new("starters").start();
    for way in ["time out", "cancel", "kill"] {
        program.say(way);
        program.line(&format!("{way}: done"));
        program.wait_until(&format!("the end of the programs ({way})"), || {
            started(&program).is_empty()
        });
    }
    program.end().code(0);
}

#[trial]
fn programs_of_stopped_workers_end_too() {
    let program = at_work();
    for process in program.processes() {
        if process != program.pid() && !is_guard(process) {
            let _ = kill_process(pid(process), Signal::STOP);
        }
    }
    program.signal(Signal::KILL);
    program.end().signal(Signal::KILL);
}

#[trial]
fn a_guard_that_is_killed_is_replaced() {
    let program = at_work();
    let first = guards(&program);
    for guard in &first {
        kill_process(pid(*guard), Signal::KILL).expect("it runs");
    }
    program.wait_until("new guards", || {
        let now = guards(&program);
        now.len() == 2 && now.is_disjoint(&first)
    });
    program.signal(Signal::KILL);
    program.end().signal(Signal::KILL);
}

#[trial]
fn a_stopped_guard_works_when_it_is_needed() {
    let program = at_work();
    for guard in guards(&program) {
        kill_process(pid(guard), Signal::STOP).expect("it runs");
    }
    program.signal(Signal::KILL);
    program.end().signal(Signal::KILL);
}

#[trial]
fn a_guard_keeps_no_files_of_its_parent() {
    let program = at_work();
    for guard in guards(&program) {
        let link =
            |name: &str| std::fs::read_link(format!("/proc/{guard}/{name}")).unwrap_or_default();
        assert_eq!(link("cwd"), Path::new("/"));
        program.wait_until("a guard that watches", || {
            held(guard).any(|file| file.ends_with("[pidfd]"))
        });
        let mut held: Vec<_> = held(guard).collect();
        held.sort();
        assert_eq!(
            held,
            ["/dev/null", "/dev/null", "/memfd:fiber-groups (deleted)", "anon_inode:[pidfd]"]
        );
        for signal in
            [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::ALARM]
        {
            kill_process(pid(guard), signal).expect("it runs");
        }
    }
    program.signal(Signal::KILL);
    program.end().signal(Signal::KILL);
}

#[trial]
fn a_hundred_workers_leave_nothing() {
    let program = Setup::new("many starters").start();
    program.wait_until("a hundred programs that were started", || started(&program).len() == 100);
    program.signal(Signal::KILL);
    program.end().signal(Signal::KILL);
}
