//! The command, whatever it inherits.

use std::process::{Command, Stdio};

use fiber_test_support::surroundings::{LIMITS, PLACES, SIGNALS, STREAMS};

use crate::command::text;

/// Runs a map and a list of sessions behind the words of a command.
fn all_works(words: &[&str]) {
    let run = |arguments: &[&str], expected: &str| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(env!("CARGO_BIN_EXE_fiber")).args(arguments);
        // The test's own variables go; those that the words set stay.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FIBER_") {
                command.env_remove(name);
            }
        }
        command.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
        let output = command.output().expect("it can be started");
        let (said, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{words:?} {arguments:?}: {said}{errors}");
        assert!(said.contains(expected), "{words:?} {arguments:?}: {said}{errors}");
    };
    run(&["map", "--", "/bin/echo", "item", ":::", "1", "2"], "item 1\nitem 2\n");
    run(&["ps"], "");
}

#[test]
fn all_works_whatever_signals_are_ignored_or_blocked() {
    SIGNALS.iter().for_each(|words| all_works(words));
}

#[test]
fn all_works_without_streams_or_a_terminal() {
    STREAMS.iter().for_each(|words| all_works(words));
}

#[test]
fn all_works_within_limits() {
    LIMITS.iter().for_each(|words| all_works(words));
}

#[test]
fn all_works_in_any_folder_with_any_variables() {
    PLACES.iter().for_each(|words| all_works(words));
}
