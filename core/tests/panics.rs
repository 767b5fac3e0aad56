//! The output of panics that abort their process.

use std::path::Path;
use std::process::Command;

/// Compiles `tests/panics/program.rs` with this panic strategy, runs this `case` of it, and returns
/// its standard error.
fn run(strategy: &str, case: &str) -> String {
    let directory = tempfile::TempDir::new().unwrap();
    let program = directory.path().join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/panics/program.rs");
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc
        .args(["--edition=2024", "-C"])
        .arg(format!("panic={strategy}"))
        .arg("-o")
        .arg(&program)
        .arg(source);
    let compiled = rustc.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ended = Command::new(program).arg(case).env_remove("RUST_BACKTRACE").output().unwrap();
    String::from_utf8(ended.stderr).unwrap()
}

#[test]
fn a_panic_that_aborts_prints_its_message_and_place() {
    let printed = run("abort", "panic");
    let last = printed.lines().last().unwrap();
    assert!(
        last.contains("a task panicked: the cause 7 (at ") && last.contains("program.rs:"),
        "{printed}"
    );
}

#[test]
fn a_panic_that_is_caught_prints_nothing() {
    assert_eq!(run("unwind", "panic"), "");
}

#[test]
fn a_panic_that_can_not_unwind_prints_its_cause_also_where_others_are_caught() {
    let printed = run("unwind", "foreign");
    // The standard library has the last word.
    let last = printed.lines().rev().nth(1).unwrap();
    assert!(
        last.contains("a task panicked: the cause 7 (at ") && last.contains("program.rs:"),
        "{printed}"
    );
}
