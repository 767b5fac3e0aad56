//! Commands as tasks: `fiber map` beside other programs that run a command for each item.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::REPOSITORY;
use crate::measure::{median, rate};
use crate::table::{Figure, Row, Table};

const COMMANDS: usize = 10_000;
const PROGRAM: &str = "/bin/true";
/// The row, which names both.
const ROW: &str = "`fiber map` of 10000 × /bin/true";
const REPEATS: usize = 3;
const XARGS: &str = "xargs";
const PARALLEL: &str = "parallel";

pub(super) fn commands(table: &mut Table) -> anyhow::Result<()> {
    let workers = std::thread::available_parallelism()?.to_string();
    let fiber = build_command()?;
    let items: String = (1..=COMMANDS).map(|item| format!("{item}\n")).collect();
    // Side by side, so that what else the machine does harms all.
    let (mut own, mut xargs, mut parallel) = (Vec::new(), Vec::new(), Ok(Vec::new()));
    for _ in 0..REPEATS {
        own.push(time(Command::new(&fiber).args(["map", "-p", &workers, "--", PROGRAM]), &items)?);
        xargs.push(time(Command::new(XARGS).args(["-P", &workers, "-n", "1", PROGRAM]), &items)?);
        let mut command = Command::new(PARALLEL);
        let once = time(command.args(["--will-cite", "-j", &workers, PROGRAM]), &items);
        parallel = parallel.and_then(|mut times: Vec<_>| {
            times.push(once?);
            anyhow::Ok(times)
        });
    }
    eprintln!("  fiber: {own:.1?}, xargs: {xargs:.1?}");
    let figure = |times| Figure::Rate(rate(COMMANDS, median(times)));
    let mut row = Row::new(ROW, figure(own))
        .beside(XARGS, figure(xargs))
        .at_least(0.9, XARGS)
        .at_least(4.0, "hyperqueue");
    match parallel {
        Ok(times) => row = row.beside(PARALLEL, figure(times)),
        Err(error) => row = row.note(format!("{PARALLEL} is left out: {error:#}")),
    }
    table.push(row.note("With the start of the program and its workers, one a core."));
    Ok(())
}

/// Builds the command `fiber`.
fn build_command() -> anyhow::Result<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("command");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "-p", "fiber-cli", "--target-dir"])
        .arg(&target)
        .current_dir(REPOSITORY)
        .status()?;
    ensure!(built.success(), "the command `fiber` can't be built");
    Ok(target.join("release/fiber"))
}

/// Returns how long a command takes that reads items from its standard input.
fn time(command: &mut Command, items: &str) -> anyhow::Result<Duration> {
    let shown = command.get_program().display().to_string();
    let start = Instant::now();
    let spawned = command.stdin(Stdio::piped()).spawn();
    let mut child = spawned.with_context(|| format!("{shown} can't be run"))?;
    child.stdin.take().context("it is a pipe")?.write_all(items.as_bytes())?;
    let status = child.wait()?;
    ensure!(status.success(), "{shown} has failed ({status})");
    Ok(start.elapsed())
}
