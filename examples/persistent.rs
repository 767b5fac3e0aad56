//! Files that outlive the program: each run adds a line to what earlier runs have left on a volume.
//!
//! ```text
//! docker volume create notes      # on Kubernetes: a persistent volume claim of this name
//! fiber run --backend docker -a -v notes target/release/examples/persistent
//! fiber run --backend docker -a -v notes target/release/examples/persistent
//! ```
//!
//! Without containers, name a directory: `cargo run --example persistent -- .`

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use fiber::Process;

/// Adds a line to the file, and says how many it has then.
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
    // Another process sees the volume in the same place.
    match Process::spawn(add_line, file.clone()).wait()? {
        Ok(lines) => println!("lines: {lines}"),
        Err(problem) => println!("error: {problem}"),
    }
    print!("{}", fs::read_to_string(file).unwrap_or_default());
    Ok(())
}

#[allow(dead_code, reason = "a test runs this example as one of its programs")]
fn main() -> fiber::Result<()> {
    fiber::init();
    run()
}
