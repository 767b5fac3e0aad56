//! The benchmarks: fiber beside what the machine gives by itself and beside Python's libraries, on
//! the same work, in the same run.
//!
//! ```text
//! make bench                              # all cases: prints a table and writes docs/benchmarks.md
//! cargo bench --bench suite -- noop map   # some cases: prints a table
//! ```
//!
//! `BENCH_PAGE` names a file for the page, also of some cases. `BENCH_SECONDS` sets how long the
//! endless iterator goes on (60). For `BENCH_PEERS` and `BENCH_PYTHON` see `peers.rs`.

mod bare;
mod cases;
mod measure;
mod peers;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cases::{CASES, Case};
use table::{Machine, Table};

fn main() -> ExitCode {
    // Before `init`: these processes are not fiber's.
    bare::serve_if_asked();
    cases::be_bare_if_asked();
    cases::serve_if_asked();
    cases::be_plain_if_asked();
    fiber::init();

    // Cargo adds `--bench`.
    let names: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let done = match names.as_slice() {
        [name] if name == cases::OVER_NNG => cases::answer_over_nng(),
        [name] if name == cases::WITH_BACKEND => cases::answer_with_backend(),
        [name] if name == cases::ARRAYS_OVER_NNG => cases::answer_arrays_over_nng(),
        [name] if name == cases::CALL_OVER_NNG => cases::answer_call_over_nng(),
        [name] if name == cases::DURABLE_PROGRAM => cases::answer_durable(),
        [name] if name == cases::THROUGH_HOST => cases::answer_through_host(),
        [name] if name == cases::AT_SCALE => cases::be_at_scale(),
        [name] if name == cases::ENTITIES => cases::be_entities(),
        [name] if name == cases::SESSION => cases::be_session(),
        [name] if name == cases::IN_ALLOCATION => cases::answer_in_allocation(),
        [name] if name.starts_with(cases::READY_WORKERS) => cases::answer_ready(name),
        names => run(names),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the cases of these names, or all, and prints the table. A case that fails does not stop the
/// others.
fn run(names: &[String]) -> anyhow::Result<()> {
    if let Some(unknown) = names.iter().find(|name| !CASES.iter().any(|case| case.name == **name)) {
        let known: Vec<_> = CASES.iter().map(|case| case.name).collect();
        anyhow::bail!("no case named {unknown}: there are {}", known.join(", "));
    }
    let mut table = Table::new(Machine::here());
    let mut failed = Vec::new();
    for Case { name, measure } in
        CASES.iter().filter(|case| names.is_empty() || names.iter().any(|name| name == case.name))
    {
        eprintln!("{name}");
        if let Err(error) = measure(&mut table) {
            eprintln!("  failed: {error:#}");
            failed.push(*name);
        }
    }
    println!();
    table.print();
    if !failed.is_empty() {
        anyhow::bail!("these cases failed: {}", failed.join(", "));
    }
    let whole = || Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/benchmarks.md");
    let page = std::env::var_os("BENCH_PAGE").map(PathBuf::from);
    if let Some(page) = page.or_else(|| names.is_empty().then(whole)) {
        table.write_markdown(&page)?;
        eprintln!("written to {}", page.display());
    }
    Ok(())
}
