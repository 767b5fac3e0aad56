//! Programs and workers inherit terminals and other surroundings from those that start them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fiber_test_support::program::{Setup, command_line, copy_executable, is_first, is_guard, pid};
use fiber_test_support::surroundings::{FIRST, LIMITS, NO_MEMORY_FILES, PLACES, SIGNALS, STREAMS};
use fiber_test_support::{TOGETHER, trial};
use rustix::process::{Signal, kill_process};

#[trial]
fn workers_can_not_read_the_terminal_and_are_not_stopped_by_it() {
    let setup = Setup::new("reads the terminal").in_a_terminal();
    setup.run().code(0).says(&["program: Ok(())", "worker: Err(\"No such device or address"]);
}

#[trial]
fn a_program_that_listens_for_a_signal_itself_ends_itself() {
    for when in ["first", "later"] {
        let program = Setup::new("listens for Ctrl-C itself").args(&[when]).start();
        program.line("ready");
        program.press_ctrl_c();
        program.end().code(0).says(&["cleaned up: 7"]);
    }
}

#[trial]
fn the_children_of_a_program_that_is_stopped_stop_and_go_on_with_it() {
    let program = Setup::new("family").start();
    program.line("all at work");
    program.signal(Signal::TSTP);
    program.wait_until("all are stopped", || program.are_stopped(true));
    program.signal(Signal::CONT);
    program.wait_until("none is stopped", || program.are_stopped(false));
    program.press_ctrl_c();
    program.end().signal(Signal::INT);
}

/// Returns a scenario behind the words of a command.
fn behind(words: &[&str], scenario: &str, executable: &Path) -> Setup {
    let [first, more @ ..] = words else { return Setup::with_executable(scenario, executable) };
    let executable = executable.to_str().expect("it is text");
    Setup::with_executable(scenario, Path::new(first)).args(more).args(&[executable])
}

/// Runs a program with all kinds of children behind the words of a command.
fn all_works(words: &[&str], executable: &Path) {
    println!("{words:?}");
    behind(words, "together", executable).run().code(0).says(&TOGETHER);
}

fn own() -> PathBuf {
    std::env::current_exe().expect("this binary is somewhere")
}

#[trial]
fn all_works_whatever_signals_are_ignored_or_blocked() {
    SIGNALS.iter().for_each(|words| all_works(words, &own()));
}

#[trial]
fn all_works_without_streams_or_a_terminal() {
    STREAMS.iter().for_each(|words| all_works(words, &own()));
}

#[trial]
fn all_works_within_limits() {
    LIMITS.iter().for_each(|words| all_works(words, &own()));
}

/// Returns a program behind a limit in the syntax of `prlimit`.
fn limited(limit: &str, scenario: &str) -> Setup {
    behind(&["prlimit", limit], scenario, &own())
}

#[trial]
fn guards_work_without_memory_files() {
    let mut program = behind(NO_MEMORY_FILES, "starters", &own()).start();
    program.say("hang");
    program.line("hang: done");
    let is = |what: fn(u32) -> bool| {
        let count = || program.processes().into_iter().filter(|pid| what(*pid)).count() == 2;
        program.wait_until("two of them", count);
    };
    is(|pid| command_line(pid) == b"sleep\x00600\x00");
    is(is_guard);
    program.signal(Signal::KILL);
    program.end().signal(Signal::KILL);
}

#[trial]
fn a_hang_up_ends_a_program_with_all_its_processes() {
    let program = Setup::new("family").in_a_terminal().start();
    program.line("all at work");
    // The terminal is closed as its window is.
    program.signal(Signal::KILL);
    program.end().signal(Signal::KILL);
}

#[trial]
fn arguments_that_leave_no_room_for_those_of_a_worker_are_named() {
    let long = "x".repeat(100_000);
    let ended = Setup::new("long arguments").args(&[&long, &long]).run().code(0);
    ended.says(&["a worker has this program's arguments and variables", "getconf ARG_MAX"]);
}

#[trial]
fn a_file_that_grows_beyond_its_limit_is_an_error_of_the_task_that_writes() {
    let ended = limited("--fsize=1048576", "writes a large file").run().code(0);
    ended.says(&[
        "program: Err(\"File too large",
        "worker: Err(\"File too large",
        // As without fiber.
        "command: Some(25)",
    ]);
}

#[trial]
fn the_end_of_cpu_time_is_named() {
    let ended = limited("--cpu=2", "works without end").run().code(0);
    ended.says(&["was killed by signal 24", "ulimit -t"]);
}

#[trial]
fn all_threads_that_run_code_of_the_program_have_the_stack_of_a_main_thread() {
    for (limit, used) in [("8388608", "7"), ("33554432", "31"), ("unlimited", "7")] {
        let program = limited(&format!("--stack={limit}"), "uses its stack");
        program.env("USED", used).run().code(0).says(&["all have room"]);
    }
}

#[trial]
fn all_works_in_any_folder_with_any_variables() {
    PLACES.iter().for_each(|words| all_works(words, &own()));
}

#[trial]
fn a_loader_that_is_not_there_is_named() {
    let place = tempfile::tempdir().expect("a directory can be created");
    let program = place.path().join("program");
    copy_executable(&program);
    let file = File::options().read(true).write(true).open(&program).expect("it is there");
    // The first text in the file is the name of its loader.
    let mut head = [0; 4096];
    file.read_exact_at(&mut head, 0).expect("it is longer");
    let start = head.windows(4).position(|part| part == b"/lib").expect("it has a loader");
    let loader = head[start..].split(|byte| *byte == 0).next().unwrap_or_default();
    file.write_all_at(b"?", start as u64 + 1).expect("there is room");
    drop(file);
    let loader = std::str::from_utf8(loader).expect("it is text");
    let ended = behind(&[loader], "one task", &program).run().code(0);
    ended.says(&["error: ", "this system has no such loader"]);
}

#[trial]
fn all_works_under_any_name() {
    let place = tempfile::tempdir().expect("a directory can be created");
    // The kernel cuts the name of a process after 15 bytes, here within a letter.
    let name = place.path().join("площадьповерхности");
    copy_executable(&name);
    all_works(&[], &name);
}

#[trial]
fn the_first_process_of_a_container_reaps_orphans_and_ends_by_the_codes_of_signals() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can make namespaces of processes everywhere");
    }
    all_works(FIRST, &own());
    let first = |scenario| behind(FIRST, scenario, &own()).start();
    first("leaves orphans").end().code(0).says(&["all are reaped"]);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let program = first("family");
        program.line("all at work");
        let head = program.processes().into_iter().find(|pid| is_first(*pid));
        kill_process(pid(head.expect("it runs")), signal).expect("it runs");
        program.end().code(128 + signal.as_raw());
    }
}
