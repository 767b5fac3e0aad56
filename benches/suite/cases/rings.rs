//! All-reduce of `f32` on a ring, beside Open MPI and PyTorch's gloo on the same machine.
//!
//! Open MPI comes from Debian (`apt-get install openmpi-bin libopenmpi-dev`), gloo with PyTorch
//! (`apt-get install python3-torch`, or from PyPI). What is not there is left out, and the table
//! says so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fiber::{Reduction, Ring, RingNode};
use serde::Deserialize;

use crate::bare;
use crate::measure::{median, seconds};
use crate::table::{Row, Table, Target};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const SAMPLES: usize = 9;
const GLOO: &str = "gloo";
const MPI: &str = "Open MPI";

/// The arrays: bytes, name, and how many all-reduces make one sample.
const SIZES: [(usize, &str, usize); 3] =
    [(KIB, "1 KiB", 500), (MIB, "1 MiB", 20), (64 * MIB, "64 MiB", 1)];

/// Seconds of one all-reduce, for each sample.
fn all_reduce(mut node: RingNode, bytes: usize, each: usize) -> fiber::Result<Vec<f64>> {
    let mut data = vec![1.0f32; bytes / size_of::<f32>()];
    let mut samples = Vec::with_capacity(SAMPLES);
    for sample in 0..=SAMPLES {
        data.fill(1.0);
        node.barrier()?;
        let start = Instant::now();
        for _ in 0..each {
            node.all_reduce(&mut data, Reduction::Max)?;
        }
        let time = start.elapsed().as_secs_f64() / each as f64;
        // The first one warms up.
        if sample > 0 {
            samples.push(time);
        }
    }
    Ok(samples)
}

pub(super) fn rings(table: &mut Table) -> anyhow::Result<()> {
    let (ping, stream) = (bare::unix_ping()?, bare::unix_stream(MIB, 512, 1)?);
    let mpi = build_mpi().map_err(|error| format!("{MPI} is left out: {error:#}"));
    for nodes in [2, 4] {
        for (bytes, size, each) in SIZES {
            let samples = Ring::builder().size(nodes).try_run(all_reduce, (bytes, each)).wait()?;
            let samples =
                samples[0].iter().map(|seconds| Duration::from_secs_f64(*seconds)).collect();
            let time = median(samples);
            let mut row =
                Row::new(format!("all-reduce of {size} over {nodes} nodes"), seconds(time));
            eprintln!("  {size} over {nodes}: {time:?}");
            let peers = [
                (
                    MPI,
                    mpi.as_ref()
                        .map_err(Clone::clone)
                        .and_then(|program| run_mpi(program, nodes, bytes, each)),
                ),
                (GLOO, run_gloo(nodes, bytes, each)),
            ];
            for (name, measured) in peers {
                match measured {
                    Ok(peer) => {
                        eprintln!("    {name}: {:?}", Duration::from_secs_f64(peer.seconds));
                        table.machine().version(name, &peer.version);
                        row = row.beside(name, seconds(Duration::from_secs_f64(peer.seconds)));
                        if bytes >= MIB {
                            row = row.target(Target::at_most(1.0, name));
                        }
                    }
                    Err(problem) => {
                        eprintln!("    {problem}");
                        row = row.note(problem);
                    }
                }
            }
            if bytes < MIB {
                // Small arrays take one step.
                row = row.beside("bare", seconds(ping)).target(Target::at_most(2.0, "bare"));
            } else {
                let moved = 2 * (nodes - 1) * bytes;
                let limit = Duration::from_secs_f64(moved as f64 / stream);
                let times = time.as_secs_f64() / limit.as_secs_f64();
                row = row.note(format!(
                    "{} MiB are moved in all, which takes a bare Unix socket {limit:.1?}: this \
                     took {times:.2} times that",
                    moved / MIB
                ));
            }
            table.push(row);
        }
    }
    Ok(())
}

/// The output of a peer's program.
#[derive(Deserialize)]
struct Peer {
    seconds: f64,
    version: String,
}

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers")
}

fn build_mpi() -> anyhow::Result<PathBuf> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("all_reduce_mpi");
    let compiled = Command::new("mpicc")
        .args(["-O3", "-o"])
        .arg(&program)
        .arg(peers().join("all_reduce_mpi.c"))
        .output()
        .context("mpicc can't be run")?;
    ensure!(
        compiled.status.success(),
        "mpicc: {}",
        String::from_utf8_lossy(&compiled.stderr).trim_end()
    );
    Ok(program)
}

fn run_mpi(program: &Path, nodes: usize, bytes: usize, each: usize) -> Result<Peer, String> {
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", &nodes.to_string()]).arg(program);
    measure(MPI, command.args([bytes, each, SAMPLES].map(|number| number.to_string())))
}

/// With the first Python that has PyTorch.
fn run_gloo(nodes: usize, bytes: usize, each: usize) -> Result<Peer, String> {
    let given = std::env::var("BENCH_PYTHON").ok();
    let has_torch = |python: &&str| {
        Command::new(python)
            .args(["-c", "import torch.distributed"])
            .output()
            .is_ok_and(|done| done.status.success())
    };
    let pythons = [given.as_deref().unwrap_or("python3"), "python3", "/usr/bin/python3"];
    let Some(python) = pythons.iter().find(|python| has_torch(python)) else {
        return Err(format!("{GLOO} is left out: no Python here has PyTorch"));
    };
    let mut command = Command::new(python);
    command.arg(peers().join("gloo_bench.py"));
    measure(GLOO, command.args([nodes, bytes, each, SAMPLES].map(|number| number.to_string())))
}

fn measure(name: &str, command: &mut Command) -> Result<Peer, String> {
    let failed = |problem: String| format!("{name} is left out: {problem}");
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    match printed.lines().rev().find(|line| line.starts_with('{')) {
        Some(line) => serde_json::from_str(line).map_err(|error| failed(error.to_string())),
        None => Err(failed(String::from_utf8_lossy(&output.stderr).trim_end().to_string())),
    }
}
