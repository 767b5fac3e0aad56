//! Ten measurements, each of which guards a promise. Each case adds its rows to the table.

mod actors;
mod large;
mod managers;
mod noop;
mod queues;
mod replies;
pub(crate) mod rings;
mod starting;
mod streams;
pub(crate) mod topics;

use anyhow::ensure;

use crate::table::Table;

/// A case by its name on the command line.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) measure: fn(&mut Table) -> anyhow::Result<()>,
}

/// The cases, in the order of the table.
pub(crate) const CASES: [Case; 10] = [
    Case { name: "noop", measure: noop::noop },
    Case { name: "call", measure: actors::call },
    Case { name: "managers", measure: managers::managers },
    Case { name: "replies", measure: replies::replies },
    Case { name: "queue", measure: queues::queue },
    Case { name: "large", measure: large::large },
    Case { name: "streams", measure: streams::streams },
    Case { name: "topics", measure: topics::topics },
    Case { name: "ring", measure: rings::rings },
    Case { name: "ready", measure: starting::ready },
];

/// Runs the cases that the command line names, or all. A case that fails does not stop the others.
///
/// # Errors
/// With names that no case has.
pub(crate) fn run<'a>(cases: impl IntoIterator<Item = &'a Case>) -> anyhow::Result<Run> {
    let cases: Vec<_> = cases.into_iter().collect();
    // Cargo adds `--bench`.
    let mut names: Vec<_> = std::env::args().skip(1).filter(|name| name != "--bench").collect();
    let known: Vec<_> = cases.iter().map(|case| case.name).collect();
    if names.is_empty() {
        names = known.iter().copied().map(String::from).collect();
    }
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        anyhow::bail!("no case named {unknown}: there are {}", known.join(", "));
    }
    let mut run = Run { table: Table::new(), failed: Vec::new() };
    for case in cases.into_iter().filter(|case| names.iter().any(|name| name == case.name)) {
        eprintln!("{}", case.name);
        if let Err(error) = (case.measure)(&mut run.table) {
            eprintln!("  failed: {error:#}");
            run.failed.push(case.name);
        }
    }
    Ok(run)
}

/// What was measured, and the cases that failed.
pub(crate) struct Run {
    pub(crate) table: Table,
    failed: Vec<&'static str>,
}

impl Run {
    /// Prints the table.
    ///
    /// # Errors
    /// If a case has failed.
    pub(crate) fn print(&self) -> anyhow::Result<()> {
        println!("{}", self.table);
        ensure!(self.failed.is_empty(), "these cases failed: {}", self.failed.join(", "));
        Ok(())
    }
}
