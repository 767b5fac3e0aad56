//! Counts the lines of files on a pool: tasks of very different size that may fail.
//!
//! ```text
//! cargo run -p fiber-examples --example line_count -- src/lib.rs README.md
//! ```
//!
//! An unreadable file fails only its own task. The program then exits with code 1.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::process::ExitCode;

use fiber::prelude::*;

fn count(path: String) -> io::Result<u64> {
    let mut lines = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    let mut count = 0;
    while lines.read_until(b'\n', &mut line)? > 0 {
        count += 1;
        line.clear();
    }
    Ok(count)
}

#[fiber::main]
fn main() -> fiber::Result<ExitCode> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let pool = Pool::builder().build()?;
    let mut total = 0;
    let mut code = ExitCode::SUCCESS;
    for (file, count) in files.iter().zip(pool.try_imap(count, files.clone()).wait()) {
        match count {
            Ok(count) => {
                println!("{count:>10} {file}");
                total += count;
            }
            Err(error) => {
                eprintln!("{file}: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    println!("{total:>10} total");
    Ok(code)
}
