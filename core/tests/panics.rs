//! The output of panics that abort their process.

use std::path::Path;
use std::process::Command;

/// Compiles `tests/panics/program.rs` with this panic strategy, runs this `case` of it, and returns
/// its standard error.
fn run(strategy: &str, case: &str) -> String {
    run_with(strategy, case, "0")
}

/// Works as [`run`], with this `RUST_BACKTRACE`.
fn run_with(strategy: &str, case: &str, backtrace: &str) -> String {
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
    let ended = Command::new(program).arg(case).env("RUST_BACKTRACE", backtrace).output().unwrap();
    let errors = String::from_utf8(ended.stderr).unwrap();
    assert!(strategy == "abort" || case == "foreign" || ended.status.success(), "{errors}");
    errors
}

/// The program itself checks that the panic reads no symbols, which takes its time.
#[test]
fn a_backtrace_is_read_when_it_is_shown_and_is_as_short_as_that_of_the_standard_library() {
    let short = run_with("unwind", "panic", "1");
    let calls: Vec<&str> = short.lines().filter(|line| !line.trim().starts_with("at ")).collect();
    assert!(calls.len() <= 5 && calls[calls.len() - 3].ends_with("program::work"), "{short}");
    assert!(calls[calls.len() - 2].contains("main::{"), "{short}");
    assert!(calls.last().unwrap().contains("RUST_BACKTRACE=full"), "{short}");
    let full = run_with("unwind", "panic", "full");
    assert!(full.contains("program::main\n") && full.lines().count() > 20, "{full}");
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
