//! `fiber run --restarts` without containers, and `fiber wait`.

use std::path::Path;
use std::process::ExitCode;

use fiber_test_support::program::{Program, Setup, pid};
use fiber_test_support::{scenario, trial};
use rustix::process::{Signal, getpid, kill_process};

use crate::{fiber, start};

/// Is killed, then to be continued, and then ends with the exit code 3.
#[scenario("lost twice")]
fn lost_twice() -> ExitCode {
    let report = fiber::stats().expect("it is the head").report;
    match report.processes[0].restarts {
        0 => {
            println!("the first start");
            kill_process(getpid(), Signal::KILL).expect("it is this process");
            unreachable!("it was killed")
        }
        1 => {
            println!("the second start");
            ExitCode::from(75)
        }
        _ => {
            println!("the third start");
            ExitCode::from(3)
        }
    }
}

fn run(restarts: &str, scenario: &str) -> Setup {
    let own = std::env::current_exe().expect("this binary is somewhere").display().to_string();
    let setup = Setup::with_executable(scenario, Path::new(env!("CARGO_BIN_EXE_fiber")));
    setup.args(&["run", "--restarts", restarts, &own])
}

#[trial]
fn a_program_that_was_lost_is_started_again() {
    let ending = run("5", "lost twice").run().code(3);
    let ending = ending.says(&["the first start", "the second start", "the third start"]);
    for words in
        ["was killed by signal 9 (SIGKILL): starting it again (1 of 5)", "is to be continued"]
    {
        assert!(ending.errors.contains(words), "`{words}` is missing in: {}", ending.errors);
    }
    let ending = run("1", "lost twice").run().code(75);
    assert!(!ending.out.contains("the third start"), "{}", ending.out);
}

#[trial]
fn signals_end_the_program_for_good() {
    for signal in [Signal::TERM, Signal::INT] {
        let running: Program = run("5", "busy").start();
        running.line("ready");
        running.signal(signal);
        let ending = running.end().code(128 + signal.as_raw());
        assert!(!ending.errors.contains("starting it again"), "{}", ending.errors);
    }
}

#[trial]
fn waiting_for_a_program_of_this_host_ends_with_it() {
    let program = start();
    let name = program.pid().to_string();
    let wait = |arguments: &[&str]| {
        let output = fiber(&[&["wait"], arguments].concat()).output().expect("it can be started");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, errors) = wait(&["--timeout", "100ms", &name]);
    assert!(code == Some(124) && errors.contains("no end within 100ms"), "{errors}");
    let waiting = std::thread::spawn(move || wait(&[&name]));
    kill_process(pid(program.pid()), Signal::KILL).expect("it runs");
    let (code, errors) = waiting.join().expect("it does not panic");
    // The command may look for the program when that has ended already.
    let known = ["its exit code is known where it was started", "there is no session"];
    assert!(code == Some(1) && known.iter().any(|words| errors.contains(words)), "{errors}");
}
