//! Rings: what nodes do together, and what happens when one of them does not.

mod checkpoints;
mod collectives;
mod deaths;
mod disagreement;
mod frameworks;
mod runs;
#[path = "../tricky/mod.rs"]
mod tricky;
mod values;

use std::path::Path;

use rustix::process::{Signal, getpid, kill_process};

fiber::test_harness!();

/// Longer than a circle of shared memory, and than a message of nng.
const LONG: usize = 700_001;

fn die() -> ! {
    kill_process(getpid(), Signal::KILL).unwrap();
    unreachable!("nobody survives that")
}

/// Dies the first time only: a file remembers it.
fn die_once(file: &Path) {
    if std::fs::OpenOptions::new().write(true).create_new(true).open(file).is_ok() {
        die()
    }
}
