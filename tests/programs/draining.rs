//! Programs and workers that SIGTERM asks to end.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use fiber_test_support::program::{Program, Setup};
use fiber_test_support::trial;
use rustix::process::Signal;
use tempfile::TempDir;

/// The exit code of a program that is to be continued.
const TO_BE_CONTINUED: i32 = 75;

#[trial]
fn a_worker_ends_after_its_grace_period_with_all_below_it() {
    let setup = Setup::new("endless task").env("FIBER_GRACE", "300ms");
    setup.run().code(0).says(&["ended after its grace period: true", "result: 1, deaths: 0"]);
}

#[trial]
fn sigterm_that_fiber_does_not_handle_counts_against_no_task() {
    let setup = Setup::new("endless task").env("FIBER_SIGNALS", "false");
    setup.run().code(0).says(&["result: 1, deaths: 0"]);
}

/// A death of the process would hold up its keys for an hour.
#[trial]
fn keys_leave_a_process_that_hangs_at_sigterm_after_its_grace_period() {
    let setup = Setup::new("entities that hang").env("FIBER_GRACE", "1s");
    setup.run().code(0).says(&["moved: true", "processes: 2"]);
}

#[trial]
fn a_successor_counts_also_if_the_only_process_of_entities_dies_before() {
    let setup = Setup::new("entities that die before their successor");
    setup.run().code(0).says(&["replaced: true", "processes: 1"]);
}

#[trial]
fn a_service_answers_an_open_request_to_an_entity_at_sigterm() {
    let setup = Setup::new("service of entities");
    let folder = setup.directory().to_path_buf();
    let program = setup.start();
    let mut stream = TcpStream::connect(program.line("listens at ")).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    program.wait_until("the request at its entity", || folder.join("asked").exists());
    program.signal(Signal::TERM);
    program.line("terminated");
    let_tasks_end(&folder);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("the answer"), "{answer}");
    program.end().code(0);
}

/// Starts a durable program, whose files are in this folder.
fn durable(scenario: &str, folder: &TempDir) -> Setup {
    Setup::new(scenario).env("FOLDER", folder.path())
}

/// Starts a durable program of which two tasks wait, and sends it SIGTERM.
fn terminated(folder: &TempDir, grace: &str) -> Program {
    let program = durable("durable map", folder).env("FIBER_GRACE", grace).start();
    program.line("two tasks run");
    program.signal(Signal::TERM);
    let waits = program.error("fiber: SIGTERM: 2 tasks are running: waiting up to ");
    assert!(waits.contains("a second SIGTERM ends at once"), "{waits}");
    program
}

/// Returns how often each task has run to its end.
fn runs(folder: &TempDir) -> BTreeMap<u64, usize> {
    let mut runs = BTreeMap::new();
    let file = folder.path().join("runs");
    let lines = std::fs::read_to_string(file).unwrap_or_default();
    lines.lines().for_each(|line| *runs.entry(line.parse().unwrap()).or_insert(0) += 1);
    runs
}

fn let_tasks_end(folder: &Path) {
    std::fs::write(folder.join("go"), "").unwrap();
}

#[trial]
fn sigterm_lets_a_durable_program_end_what_runs() {
    let folder = TempDir::new().unwrap();
    let program = terminated(&folder, "25s");
    let_tasks_end(folder.path());
    program.end().code(TO_BE_CONTINUED);
    assert_eq!(runs(&folder), BTreeMap::from([(0, 1), (1, 1)]), "no other task began");
    // Started again, it does the rest.
    durable("durable map", &folder).run().code(0).says(&["sum: 499500"]);
    assert_eq!(runs(&folder), (0..1000).map(|x| (x, 1)).collect());
}

#[trial]
fn a_second_signal_ends_a_durable_program_at_once() {
    for second in [Signal::TERM, Signal::INT] {
        let folder = TempDir::new().unwrap();
        let program = terminated(&folder, "1h");
        program.signal(second);
        program.end().signal(second);
        assert!(runs(&folder).is_empty());
    }
}

#[trial]
fn a_durable_program_ends_after_its_grace_period() {
    let folder = TempDir::new().unwrap();
    terminated(&folder, "200ms").end().code(TO_BE_CONTINUED);
    assert!(runs(&folder).is_empty());
    let_tasks_end(folder.path());
    durable("durable map", &folder).run().code(0).says(&["sum: 499500"]);
}

#[trial]
fn a_durable_program_ends_in_order_between_its_calls() {
    let folder = TempDir::new().unwrap();
    let_tasks_end(folder.path());
    let program = durable("durable calls", &folder).start();
    program.line("done: 0");
    program.signal(Signal::TERM);
    program.error("fiber: SIGTERM: no task is running: ending");
    program.end().code(TO_BE_CONTINUED);
}

#[trial]
fn calls_in_a_row_end_in_order() {
    let folder = TempDir::new().unwrap();
    let mut program = durable("durable calls", &folder).start();
    program.line("task runs: 0");
    program.signal(Signal::TERM);
    program.error("fiber: SIGTERM: 1 task is running");
    // The next call begins at once, and gets no worker.
    program.say("go on");
    let_tasks_end(folder.path());
    program.end().code(TO_BE_CONTINUED);
    assert_eq!(runs(&folder), BTreeMap::from([(0, 1)]));
}
