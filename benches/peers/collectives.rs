//! All-reduce with Open MPI and PyTorch's gloo.
//!
//! Open MPI comes from Debian (`apt-get install openmpi-bin libopenmpi-dev`), gloo with PyTorch
//! (`apt-get install python3-torch`, or from PyPI). A note names what is not there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::libraries::{HERE, note_version};
use crate::suite::rings::{NODES, SAMPLES, SIZES};
use crate::table::{Figure, Table};

const GLOO: &str = "gloo";
const MPI: &str = "Open MPI";

/// Adds what both measure in the cases of rings.
pub(crate) fn measure(table: &mut Table) {
    let is_of_rings = table.rows.iter().any(|row| row.case.starts_with("all-reduce of "));
    if !is_of_rings {
        return;
    }
    let mpi = build_mpi().map_err(|error| format!("{MPI} is left out: {error:#}"));
    for nodes in NODES {
        for (bytes, size, each) in SIZES {
            let name = format!("all-reduce of {size} over {nodes} nodes");
            let Some(place) = table.rows.iter().position(|row| row.case == name) else { continue };
            let mpi = mpi.as_ref().map_err(Clone::clone);
            let of_mpi = mpi.and_then(|program| run_mpi(program, nodes, bytes, each));
            for (library, measured) in [(MPI, of_mpi), (GLOO, run_gloo(nodes, bytes, each))] {
                match measured {
                    Ok(peer) => {
                        eprintln!("  {name}: {library}: {:.6} s", peer.seconds);
                        note_version(table, library, &peer.version);
                        let figure = Figure::Seconds(peer.seconds);
                        table.rows[place].others.push((library.into(), figure));
                    }
                    Err(problem) => table.rows[place].notes.push(problem),
                }
            }
        }
    }
}

/// The output of a peer's program.
#[derive(Deserialize)]
struct Peer {
    seconds: f64,
    version: String,
}

fn build_mpi() -> anyhow::Result<PathBuf> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("all_reduce_mpi");
    let compiled = Command::new("mpicc")
        .args(["-O3", "-o"])
        .arg(&program)
        .arg(Path::new(HERE).join("all_reduce_mpi.c"))
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
    result_of(MPI, command.args([bytes, each, SAMPLES].map(|number| number.to_string())))
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
    command.arg(Path::new(HERE).join("gloo_bench.py"));
    result_of(GLOO, command.args([nodes, bytes, each, SAMPLES].map(|number| number.to_string())))
}

fn result_of(name: &str, command: &mut Command) -> Result<Peer, String> {
    let failed = |problem: String| format!("{name} is left out: {problem}");
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    match printed.lines().rev().find(|line| line.starts_with('{')) {
        Some(line) => serde_json::from_str(line).map_err(|error| failed(error.to_string())),
        None => Err(failed(String::from_utf8_lossy(&output.stderr).trim_end().to_string())),
    }
}
