//! Compile errors: which programs are rejected, and with which messages.
//!
//! Each file of `tests/ui` is a test. rustc compiles it with the crates of this binary, which cargo
//! has built already. A program with a `.stderr` file fails to compile, with these messages; others
//! compile, and run. `OVERWRITE=1` writes the `.stderr` files.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

/// The arguments of rustc for the crates that this binary is linked with.
const CRATES: &[&str] = fiber_test_support::crates!();

fn main() -> ExitCode {
    // The link does not change what compiles.
    let programs = if std::env::var_os("FIBER_LINK").is_some() { Vec::new() } else { programs() };
    let trials = programs.into_iter().map(|program| {
        let name = program.file_stem().expect("it is a file").to_string_lossy().into_owned();
        Trial::test(name, move || check(&program))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// Returns the programs, relative to the root of the repository, as rustc names them.
fn programs() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui");
    let entries = std::fs::read_dir(directory).expect("the repository has programs");
    let names = entries.map(|entry| entry.expect("it can be listed").file_name());
    let mut programs: Vec<_> = names.map(|name| Path::new("tests/ui").join(name)).collect();
    programs.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    programs.sort();
    programs
}

/// Compiles a program, and compares the errors with its `.stderr` file or else runs it.
fn check(program: &Path) -> Result<(), Failed> {
    let directory = tempfile::TempDir::new()?;
    let executable = directory.path().join("program");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let compiled = Command::new(rustc)
        .args(["--edition=2024", "--crate-type=bin", "--verbose"])
        .args(CRATES)
        .arg("-o")
        .arg(&executable)
        .arg(program)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    let errors = normalized(&String::from_utf8(compiled.stderr)?);
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join(program).with_extension("stderr");
    if !compiled.status.success() && std::env::var_os("OVERWRITE").is_some() {
        std::fs::write(&recorded, &errors)?;
    }
    let expected = std::fs::read_to_string(&recorded).unwrap_or_default();
    if errors != expected {
        let remedy = "if the new messages are right, OVERWRITE=1 records them";
        return Err(format!("expected:\n{expected}\nrustc prints:\n{errors}\n{remedy}").into());
    }
    if compiled.status.success() {
        let ended = Command::new(executable).output()?;
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
    Ok(())
}

/// Leaves out what changes with each edit of fiber, which are the lines of its files, and the count
/// of errors.
fn normalized(errors: &str) -> String {
    let blocks = errors.trim_end().split("\n\n").filter(|block| {
        !block.is_empty()
            && !block.starts_with("error: aborting due to")
            && !block.starts_with("For more information about this error")
            && !block.starts_with("Some errors have detailed explanations")
    });
    blocks.map(without_lines_of_fiber).collect::<Vec<_>>().join("\n")
}

/// Returns a message without numbers of lines in other files than that of the program. Its lines
/// begin with a margin, which is as wide as the largest number.
fn without_lines_of_fiber(message: &str) -> String {
    let Some(width) = message.lines().find_map(|line| line.find("--> ")) else {
        return format!("{message}\n");
    };
    let mut is_here = false;
    let mut lines = Vec::new();
    for line in message.lines() {
        let is_margin = |margin: &&str| margin.bytes().all(|byte| b" 0123456789".contains(&byte));
        let Some(margin) = line.get(..width).filter(is_margin) else {
            lines.push((None, line));
            continue;
        };
        let mut rest = &line[width..];
        if let Some(place) = rest.strip_prefix("--> ").or(rest.strip_prefix("::: ")) {
            is_here = place.starts_with("tests/ui/");
            let end = if is_here { rest.len() } else { rest.find(':').unwrap_or(rest.len()) };
            rest = &rest[..end];
        }
        lines.push((Some(if is_here { margin.trim() } else { "" }), rest));
    }
    let numbers = lines.iter().filter_map(|(number, _)| *number);
    let width = numbers.map(str::len).max().unwrap_or(0).max(1);
    let line = |(number, rest): &(Option<&str>, &str)| match number {
        Some(number) => format!("{number:<width$}{rest}\n"),
        None => format!("{rest}\n"),
    };
    lines.iter().map(line).collect()
}
