//! The programs that the tests start.

mod failing;
mod forms;
mod graphs;
mod other_build;
mod refused;
mod sweeping;
mod values;

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use fiber::{Journal, Pool};

use crate::sweep::{JOURNAL, RAN};

pub(crate) use sweeping::{SEEN, simulate};

/// Returns a variable of the environment, or an empty text.
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn journal() -> Journal {
    Journal::at(PathBuf::from(variable(JOURNAL)))
}

fn durable_pool() -> fiber::Result<Pool> {
    Ok(Pool::new(2)?.durable(journal()))
}

/// Notes that a task has run.
fn note(what: impl std::fmt::Display) {
    let file = File::options().create(true).append(true).open(variable(RAN));
    // In one write, so that the lines of several workers do not mix.
    file.expect("it can be written").write_all(format!("{what}\n").as_bytes()).unwrap();
}

/// The numbers in the variable `ITEMS`.
fn items() -> Vec<u64> {
    let items = variable("ITEMS");
    items.split(',').filter(|item| !item.is_empty()).map(|item| item.parse().unwrap()).collect()
}

fn square(x: u64) -> u64 {
    note(x);
    x * x
}
