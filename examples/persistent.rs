//! Files that outlive the program: each run appends a line to a file on a volume.
//!
//! ```text
//! cargo build --release -p fiber-examples --features docker --example persistent
//! docker volume create notes      # on Kubernetes: a PersistentVolumeClaim of this name
//! fiber run --backend docker -a -v notes target/release/examples/persistent
//! fiber run --backend docker -a -v notes target/release/examples/persistent
//! ```
//!
//! Without containers, pass a directory: `cargo run -p fiber-examples --example persistent -- .`

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use fiber::Process;

/// Appends a line to the file and returns its number of lines.
fn add_line(file: PathBuf) -> Result<usize, String> {
    let add = || -> std::io::Result<usize> {
        let mut notes = OpenOptions::new().create(true).append(true).open(&file)?;
        let lines = fs::read_to_string(&file)?.lines().count();
        writeln!(notes, "this is run {}", lines + 1)?;
        Ok(lines + 1)
    };
    add().map_err(|error| format!("{}: {error}", file.display()))
}

pub(crate) fn run() -> fiber::Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "/persistent".into());
    let file = Path::new(&directory).join("notes.txt");
    // The child process sees the volume at the same path.
    match Process::spawn(add_line, file.clone()).wait()? {
        Ok(lines) => println!("lines: {lines}"),
        Err(problem) => println!("error: {problem}"),
    }
    print!("{}", fs::read_to_string(file).unwrap_or_default());
    Ok(())
}

#[allow(dead_code, reason = "a test includes this file and calls `run`")]
fn main() -> fiber::Result<()> {
    fiber::init();
    run()
}
