//! The session's key is in no environment and on no command line.

use std::path::Path;

use fiber_test_support::program::{Program, Setup, command_line};
use fiber_test_support::trial;

fn at_work() -> Program {
    let mut program = Setup::new("starters").start();
    program.say("hang");
    program.line("hang: done");
    program
}

/// Returns whether these bytes contain something that could be a key.
fn could_hold_key(bytes: &[u8]) -> bool {
    bytes.split(|byte| !byte.is_ascii_hexdigit()).any(|digits| digits.len() >= 64)
}

#[trial]
fn the_key_is_in_no_environment_and_on_no_command_line() {
    assert!(could_hold_key("FIBER_KEY=".bytes().chain([b'7'; 64]).collect::<Vec<_>>().as_slice()));
    let program = at_work();
    for process in program.processes() {
        let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        for bytes in environment.split(|byte| *byte == 0).chain([&*command_line(process)]) {
            assert!(!could_hold_key(bytes), "{process}: {}", String::from_utf8_lossy(bytes));
        }
    }
    program.end().code(0);
}

#[trial]
fn children_have_no_standard_input() {
    let program = at_work();
    let mut seen = 0;
    for process in program.processes() {
        let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let is_child = environment
            .split(|byte| *byte == 0)
            .any(|variable| variable.starts_with(b"FIBER_PARENT="));
        if is_child {
            let input = std::fs::read_link(format!("/proc/{process}/fd/0")).unwrap_or_default();
            assert_eq!(input, Path::new("/dev/null"));
            seen += 1;
        }
    }
    assert_eq!(seen, 2);
    program.end().code(0);
}
