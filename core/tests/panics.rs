//! The output of panics that abort their process.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// The program `tests/panics/program.rs`.
struct Program {
    strategy: &'static str,
    directory: TempDir,
}

impl Program {
    /// Compiles it with this panic strategy.
    fn compile(strategy: &'static str) -> Program {
        let directory = TempDir::new().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/panics/program.rs");
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.args(["--edition=2024", "-C"]).arg(format!("panic={strategy}"));
        rustc.arg("-o").arg(directory.path().join("program")).arg(source);
        let compiled = rustc.output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        Program { strategy, directory }
    }

    /// Runs a case of it with this `RUST_BACKTRACE`, and returns its standard error.
    fn run(&self, case: &str, backtrace: &str) -> String {
        let mut program = Command::new(self.directory.path().join("program"));
        let ended = program.arg(case).env("RUST_BACKTRACE", backtrace).output().unwrap();
        let errors = String::from_utf8(ended.stderr).unwrap();
        let may_abort = self.strategy == "abort" || case == "foreign";
        assert!(may_abort || ended.status.success(), "{errors}");
        errors
    }
}

/// The program itself checks that the panic reads no symbols, which takes its time.
#[test]
fn a_caught_panic_prints_nothing_and_has_a_backtrace_as_short_as_that_of_the_standard_library() {
    let program = Program::compile("unwind");
    assert_eq!(program.run("panic", "0"), "");
    let short = program.run("panic", "1");
    let calls: Vec<&str> = short.lines().filter(|line| !line.trim().starts_with("at ")).collect();
    assert!(calls.len() <= 5 && calls[calls.len() - 3].ends_with("program::work"), "{short}");
    assert!(calls[calls.len() - 2].contains("main::{"), "{short}");
    assert!(calls.last().unwrap().contains("RUST_BACKTRACE=full"), "{short}");
    let full = program.run("panic", "full");
    assert!(full.contains("program::main\n") && full.lines().count() > 20, "{full}");
}

#[test]
fn a_panic_that_aborts_prints_its_message_and_place() {
    let printed = Program::compile("abort").run("panic", "0");
    let last = printed.lines().last().unwrap();
    assert!(
        last.contains("a task panicked: the cause 7 (at ") && last.contains("program.rs:"),
        "{printed}"
    );
}

#[test]
fn a_panic_that_can_not_unwind_prints_its_cause_also_where_others_are_caught() {
    let printed = Program::compile("unwind").run("foreign", "0");
    // The standard library has the last word.
    let last = printed.lines().rev().nth(1).unwrap();
    assert!(
        last.contains("a task panicked: the cause 7 (at ") && last.contains("program.rs:"),
        "{printed}"
    );
}
