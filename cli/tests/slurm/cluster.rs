//! The cluster, seen through Slurm's own commands, and the command under test on it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use fiber_test_support::command;
use fiber_test_support::program::Setup;
use tempfile::TempDir;

use crate::batch::System;

pub(crate) const SYSTEM: System = System {
    backend: "slurm",
    command: || Setup::with_executable("", Path::new(env!("CARGO_BIN_EXE_fiber"))),
    // Nodes have two cores.
    size: &["--cpu", "2"],
    wide: &["--nodes", "2", "--cpu", "2"],
    hold: "--slurm=--hold",
    held: "JobHeldUser: `scontrol release` lets it start",
    missing: "set `slurm.copy = true`",
    described: (
        &["--nodes", "2", "--time", "90m", "--slurm=--mail-type=END"],
        &[
            "#SBATCH --nodes=2",
            "#SBATCH --time=0-01:30:00",
            "#SBATCH --mail-type=END",
            "export FIBER_BACKEND=slurm",
        ],
    ),
    verify: |script| {
        drop(command::output("sbatch", &["--test-only"], script).expect("it is valid"))
    },
    refused: &[
        (&["--partition", "nope"], &["no partition `nope`", "main"]),
        (&["--nodes", "99"], &["--nodes 99 is more than the", "--partition"]),
        (&["--time", "5s"], &["too short", "--time 1m"]),
        (&["--partition", "brief", "--time", "2m"], &["--time 2m is more than the 1m"]),
        (&["--partition", "staff"], &["account", "--account"]),
        (&["--cpu", "999"], &["nodes"]),
        (&["--gpu", "99"], &["configuration is not available"]),
        (&["--slurm=--bogus=1"], &["unrecognized option '--bogus=1'"]),
        (&["--slurm=--array=1-3"], &["one head"]),
        (&["--slurm=-a1-3"], &["one head"]),
        (&["--slurm=-Qa1-3"], &["one head"]),
    ],
    foreign: &[
        (&["--image", "x"], &["--image is for containers"]),
        (&["-v", "x"], &["--volume is for containers"]),
        (&["--pe", "x"], &["--pe is for Grid Engine", "--backend gridengine"]),
    ],
    own: (&["--nodes", "2"], &["--nodes is for Slurm", "--backend slurm"]),
    no_commands: &["there is no command `s", "` in PATH", "module load slurm"],
    job,
    release: |job| drop(slurm("scontrol", &["release", job])),
    // Slurm lets jobs that are queued again wait for two minutes, from the end of their nodes' work
    // on.
    hurry: |job| {
        let begin = [&format!("JobId={job}"), "StartTime=now"];
        let _ = command::output("scontrol", &["update", begin[0], begin[1]], "");
    },
    cancel: |job| drop(command::output("scancel", &[job], "")),
    lose: |job| drop(slurm("scancel", &["--signal=KILL", "--batch", job])),
};

/// Runs a command of Slurm.
pub(crate) fn slurm(name: &str, arguments: &[&str]) -> String {
    command::output(name, arguments, "")
        .unwrap_or_else(|problem| panic!("{name} {arguments:?}: {problem}"))
}

/// Returns a folder with a `squeue` that runs `line` before the real one, which is `$real`, and the
/// PATH in which it is the first.
pub(crate) fn squeue_with(line: &str) -> (TempDir, String) {
    let folder = TempDir::new().expect("there is room");
    let real = command::output("sh", &["-c", "command -v squeue"], "").expect("it is in PATH");
    let squeue = folder.path().join("squeue");
    fs::write(&squeue, format!("#!/bin/sh\nreal={real}\n{line}\n")).expect("there is room");
    fs::set_permissions(&squeue, Permissions::from_mode(0o755)).expect("it is there");
    let path = std::env::var("PATH").expect("it is set");
    let path = format!("{}:{path}", folder.path().display());
    (folder, path)
}

/// Returns the id of the live job of a session.
fn job(name: &str) -> Option<String> {
    let listed = slurm("squeue", &["--noheader", "--name", name, "--format", "%i"]);
    listed.lines().next().map(String::from)
}
