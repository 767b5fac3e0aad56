//! Workers on the machines of other systems: how long until they are ready, beside the least that
//! the system itself needs to run something there.
//!
//! `SLURM_CONF` leads to a Slurm cluster, and `BENCH_SSH_CONFIG` to a configuration of ssh with a
//! machine `c`: `make cluster-up` starts both.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::print;
use crate::libraries;
use crate::measure::{median, ready_pool, seconds};
use crate::table::{Row, Table};

/// Asks this binary for a pool of so many workers as this variable says.
pub(super) const READY: &str = "ready-workers";
const WORKERS: &str = "BENCH_WORKERS";

/// Asks this binary to measure in the allocation in which it runs.
pub(super) const IN_ALLOCATION: &str = "in-an-allocation";

const REPEATS: usize = 7;
const MACHINE: &str = "c";
const ON_MACHINE: usize = 4;
/// The cores of a node of the cluster.
const ON_NODE: usize = 2;

/// Prints a line when the workers are ready, and ends at once.
pub(super) fn answer_ready() -> anyhow::Result<()> {
    let pool = ready_pool(env::var(WORKERS)?.parse()?)?;
    println!("ready");
    pool.kill();
    Ok(())
}

pub(super) fn ssh(table: &mut Table) -> anyhow::Result<()> {
    let Some(config) = env::var_os("BENCH_SSH_CONFIG") else {
        eprintln!("  skipped: BENCH_SSH_CONFIG names no configuration of ssh (make cluster-up)");
        return Ok(());
    };
    let mut fiber = Command::new(env::current_exe()?);
    fiber.arg(READY).env(WORKERS, ON_MACHINE.to_string());
    fiber.envs([("FIBER_BACKEND", "ssh"), ("FIBER_SSH_HOSTS", &format!("{MACHINE}:{ON_MACHINE}"))]);
    fiber.env("FIBER_SSH_CONFIG", &config);
    let mut bare = Command::new("ssh");
    bare.arg("-F").arg(config).args(["-o", "BatchMode=yes", MACHINE, "true"]);
    let times = times(&mut fiber, &mut bare)?;
    table.push(times.row(format!("{ON_MACHINE} workers ready over ssh"), "ssh true", 1.2));
    Ok(())
}

pub(super) fn slurm(table: &mut Table) -> anyhow::Result<()> {
    let control = |argument| Command::new("scontrol").arg(argument).output();
    if !control("ping").is_ok_and(|answer| answer.status.success()) {
        eprintln!("  skipped: no Slurm cluster answers (make cluster-up)");
        return Ok(());
    }
    let version = String::from_utf8(control("--version")?.stdout)?;
    let version = version.split_whitespace().last().unwrap_or_default();
    libraries::note_version(table, "Slurm", version);
    let cores = format!("--cpus-per-task={ON_NODE}");
    let output = Command::new("salloc")
        .args(["--quiet", "--nodes=1", &cores, "--time=10"])
        .arg(env::current_exe()?)
        .arg(IN_ALLOCATION)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "measuring in an allocation failed ({})", output.status);
    let times: Times = serde_json::from_slice(&output.stdout).context("it printed no result")?;
    table.push(times.row(format!("{ON_NODE} workers ready on a Slurm node"), "srun", 1.1));
    Ok(())
}

/// Is in an allocation, and prints the times there.
pub(super) fn answer_in_allocation() -> anyhow::Result<()> {
    let mut fiber = Command::new(env::current_exe()?);
    fiber.arg(READY).env(WORKERS, ON_NODE.to_string()).env("FIBER_BACKEND", "slurm");
    let mut bare = Command::new("srun");
    let tasks = format!("--ntasks={ON_NODE}");
    bare.args(["--overlap", "--cpus-per-task=1", &tasks, "true"]);
    print(&times(&mut fiber, &mut bare)?)
}

/// How long fiber took, and the bare program.
#[derive(Serialize, Deserialize)]
struct Times {
    fiber: Duration,
    bare: Duration,
}

impl Times {
    fn row(&self, name: String, bare: &str, most: f64) -> Row {
        let row = Row::new(name, seconds(self.fiber)).beside(bare, seconds(self.bare));
        row.at_most(most, bare)
    }
}

/// Measures in turns: whatever else the machine does meanwhile, it does to both.
fn times(fiber: &mut Command, bare: &mut Command) -> anyhow::Result<Times> {
    // The first one may have to copy the program.
    until_ready(fiber)?;
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        own.push(until_ready(fiber)?);
        let start = Instant::now();
        let ended = bare.stdin(Stdio::null()).output()?;
        others.push(start.elapsed());
        ensure!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
    eprintln!("  fiber: {own:.1?}, bare: {others:.1?}");
    Ok(Times { fiber: median(own), bare: median(others) })
}

/// Returns the time from the start of a program until its workers are ready.
fn until_ready(program: &mut Command) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let mut child = program.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("it is piped")?;
    let first = BufReader::new(output).lines().next();
    let time = start.elapsed();
    child.wait()?;
    ensure!(matches!(first, Some(Ok(_))), "the workers did not start");
    Ok(time)
}
