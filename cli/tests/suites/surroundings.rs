//! The command, whatever it inherits.

use std::path::Path;

use fiber_test_support::program::{Setup, is_first, pid};
use fiber_test_support::surroundings::{FIRST, LIMITS, NON_BLOCKING, PLACES, SIGNALS, STREAMS};
use rustix::process::{Signal, geteuid, kill_process};

/// Returns the command with these arguments behind the words of another.
fn fiber(words: &[&str], arguments: &[&str]) -> Setup {
    let all = [words, &[env!("CARGO_BIN_EXE_fiber")], arguments].concat();
    Setup::with_executable("", Path::new(all[0])).args(&all[1..])
}

/// Returns a map that runs until it is ended. Its command makes the file `runs`.
fn endless(words: &[&str]) -> Setup {
    fiber(words, &["map", "--", "sh", "-c", "touch $0; exec sleep 600", ":::", "runs"])
}

fn maps(words: &[&str]) {
    let map = fiber(words, &["map", "--", "/bin/echo", "item", ":::", "1", "2"]);
    map.run().code(0).says(&["item 1\nitem 2"]);
}

/// Returns whether `fiber ps` behind the words of a command lists the session of this head.
fn lists(words: &[&str], head: u32) -> bool {
    let listed = fiber(words, &["ps"]).run().code(0).out;
    listed.lines().any(|line| line.trim_start().starts_with(&format!("pid {head} ")))
}

/// Runs a map and lists a session behind the words of each of these commands.
fn all_works(surroundings: &[&[&str]]) {
    let session = endless(&[]).start();
    session.wait_until("it is listed", || lists(&[], session.pid()));
    for words in surroundings {
        println!("{words:?}");
        maps(words);
        assert!(lists(words, session.pid()), "{words:?}");
    }
    session.signal(Signal::TERM);
    session.end().signal(Signal::TERM);
}

#[test]
fn all_works_whatever_signals_are_ignored_or_blocked() {
    all_works(SIGNALS);
}

#[test]
fn all_works_without_streams_or_a_terminal() {
    all_works(STREAMS);
}

#[test]
fn a_map_waits_for_items_of_a_stream_that_does_not_block() {
    let mut map = fiber(NON_BLOCKING, &["map", "--", "echo"]).start();
    for item in ["one", "two"] {
        map.say(item);
        map.line(item);
    }
    map.end().code(0);
}

#[test]
fn output_that_can_not_be_written_is_an_error() {
    let full = ["sh", "-c", "exec \"$0\" \"$@\" >/dev/full"];
    let fails = |arguments: &[&str], code: i32| {
        println!("{arguments:?}");
        let ended = fiber(&full, arguments).run().code(code);
        let problem = "standard output can't be written: No space left on device";
        assert!(ended.errors.contains(problem), "{}", ended.errors);
    };
    let session = endless(&[]).start();
    session.wait_until("it is listed", || lists(&[], session.pid()));
    let pid = session.pid().to_string();
    for command in [&["ps"][..], &["top", "--once"], &["top", "--json"], &["stack"]] {
        fails(&[command, &[&*pid]].concat(), 1);
    }
    fails(&["map", "echo", ":::", "a"], 125);
    fails(&["map", "--dry-run", "echo", ":::", "a"], 125);
    session.signal(Signal::TERM);
    session.end().signal(Signal::TERM);
}

#[test]
fn all_works_within_limits() {
    all_works(LIMITS);
}

#[test]
fn a_command_that_a_limit_ends_names_the_limit() {
    let spin = ["map", "--", "sh", "-c", "while :; do :; done", ":::", "a"];
    let ended = fiber(&["prlimit", "--cpu=2:60"], &spin).run().code(1);
    assert!(ended.errors.contains("killed by signal 24 (SIGXCPU"), "{}", ended.errors);
    assert!(ended.errors.contains("ulimit -t"), "{}", ended.errors);
}

#[test]
fn all_works_in_any_folder_with_any_variables() {
    all_works(PLACES);
}

#[test]
fn commands_of_a_map_fail_at_once_if_they_read_the_terminal() {
    let read = ["map", "--", "sh", "-c", "read x </dev/tty", ":::", "a"];
    fiber(&[], &read).in_a_terminal().run().code(1).says(&["No such device or address"]);
}

#[test]
fn the_commands_of_a_map_that_is_stopped_stop_and_go_on_with_it() {
    let setup = endless(&[]);
    let runs = setup.directory().join("runs");
    let map = setup.start();
    map.wait_until("a command", || runs.exists());
    map.signal(Signal::TSTP);
    map.wait_until("all are stopped", || map.are_stopped(true));
    map.signal(Signal::CONT);
    map.wait_until("none is stopped", || map.are_stopped(false));
    map.signal(Signal::TERM);
    map.end().signal(Signal::TERM);
}

#[test]
fn a_hang_up_ends_a_map_with_its_commands() {
    // The terminal is closed as its window is.
    let closed = (endless(&[]).in_a_terminal(), Signal::KILL);
    for (setup, signal) in [(endless(&[]), Signal::HUP), closed] {
        let runs = setup.directory().join("runs");
        let map = setup.start();
        map.wait_until("a command", || runs.exists());
        map.signal(signal);
        let ending = map.end().signal(signal);
        assert!(!ending.errors.contains("restarting"), "{}", ending.errors);
    }
}

#[test]
fn a_map_may_be_the_first_process_of_a_container() {
    if !geteuid().is_root() {
        return eprintln!("skipped: only root can make namespaces of processes everywhere");
    }
    maps(FIRST);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let setup = endless(FIRST);
        let runs = setup.directory().join("runs");
        let map = setup.start();
        map.wait_until("a command", || runs.exists());
        let head = map.processes().into_iter().find(|pid| is_first(*pid));
        kill_process(pid(head.expect("it runs")), signal).expect("it runs");
        map.end().code(128 + signal.as_raw());
    }
}
