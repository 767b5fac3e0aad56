//! `fiber::sim`: simulated worlds for the tests of programs.

mod bank;
mod faults;
mod mails;
mod naive_mails;
mod plays;
mod surroundings;

use std::process::Command;

/// A reader of the page copies these programs.
#[test]
fn the_page_has_the_examples() {
    let page = include_str!("../../../docs/simulation.md");
    assert!(page.contains(&format!("```rust\n{}```", include_str!("mails.rs"))));
    assert!(page.contains(&format!("```rust\n{}```", include_str!("bank.rs"))));
}

/// Runs an ignored test of this file in a process of its own, with variables. Returns whether it
/// has passed, and its output.
fn run_test(name: &str, variables: &[(&str, &str)]) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command.args([name, "--exact", "--ignored", "--nocapture"]);
    command.env_remove("RUST_BACKTRACE").envs(variables.iter().copied());
    let output = command.output().expect("it can be started");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Runs an ignored test that fails. Returns its output, which has the given texts.
fn fails(name: &str, variables: &[(&str, &str)], texts: &[&str]) -> String {
    let (has_passed, output) = run_test(name, variables);
    assert!(!has_passed, "{name} passes: {output}");
    for text in texts {
        assert!(output.contains(text), "{name} does not say `{text}`: {output}");
    }
    output
}
