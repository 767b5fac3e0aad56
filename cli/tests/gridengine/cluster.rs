//! The cluster, seen through Grid Engine's own commands, and the command under test on it.

use std::path::Path;

use fiber_test_support::command;
use fiber_test_support::program::Setup;

use crate::batch::System;
use crate::batch::session::found;

pub(crate) const SYSTEM: System = System {
    backend: "gridengine",
    // On the host `head`.
    command: || {
        let setup = Setup::with_executable("", Path::new(&enter()));
        setup.args(&["head", env!("CARGO_BIN_EXE_fiber")])
    },
    // The parallel environment gives two slots on each host.
    size: &["--pe", "fiber", "--slots", "2"],
    wide: &["--pe", "fiber", "--slots", "4"],
    hold: "--gridengine=-h",
    held: "held: `qrls JOB` lets it start",
    missing: "that all hosts share",
    described: (
        &["--pe", "fiber", "--slots", "2", "--time", "90s", "--queue", "main.q"],
        &["#$ -pe fiber 2", "#$ -l h_rt=90", "#$ -q main.q", "#$ -notify", "#$ -r n"],
    ),
    verify,
    refused: &[
        (&[], &["name a parallel environment with --pe: one of brief, fiber, first, loose, wide"]),
        (&["--pe", "nope"], &["no parallel environment `nope`", "one of brief, fiber, first"]),
        (&["--pe", "fiber", "--slots", "3"], &["--slots 3 never starts", "2 slots on each host"]),
        (&["--pe", "fiber", "--slots", "400"], &["no suitable queues", "--slots"]),
        (&["--pe", "wide", "--slots", "16", "--queue", "nope"], &["unknown queue", "qconf -sql"]),
        (&["--pe", "loose", "--project", "nope"], &["project", "qconf -sprjl"]),
        (&["--pe", "loose", "--time", "0s"], &["too short"]),
        (&["--pe", "loose", "--gridengine=-l nope=1"], &["unknown resource", "qconf -sc"]),
        (&["--pe", "loose", "--gridengine=-bogus"], &["-bogus"]),
        (&["--pe", "loose", "--gridengine=h_vmem=1G"], &["is no option of qsub"]),
        (&["--pe", "loose", "--gridengine=-t 1-3"], &["one head"]),
        (&["--pe", "loose", "--gridengine=-N x"], &["--name"]),
        (&["--pe", "loose", "--gridengine=-sync y"], &["--attach"]),
        (&["--pe", "loose", "--gridengine=-now y"], &["fiber kill"]),
        (&["--pe", "loose", "--name", "1x"], &["cannot start with a digit", "--name"]),
    ],
    foreign: &[
        (&["--image", "x"], &["--image is for containers"]),
        (&["--cpu", "2"], &["--cpu is for containers", "--slots"]),
        (&["--nodes", "2"], &["--nodes is for Slurm", "--backend slurm"]),
    ],
    own: (&["--pe", "x"], &["--pe is for Grid Engine", "--backend gridengine"]),
    no_commands: &["there is no command `q", "settings.sh"],
    job,
    release: |job| drop(grid("qrls", &[job])),
    hurry: |_| {},
    cancel,
    lose,
};

/// Returns the script that runs a command on a host.
pub(crate) fn enter() -> String {
    std::env::var("TEST_GRIDENGINE").expect("TEST_GRIDENGINE names the script that enters hosts")
}

/// Runs a command of Grid Engine on the host `head`.
///
/// # Errors
/// Its output.
pub(crate) fn try_grid(name: &str, arguments: &[&str]) -> Result<String, String> {
    command::output(&enter(), &[&["head", name], arguments].concat(), "")
}

/// Works as [`try_grid`] for a command that has to succeed.
#[track_caller]
pub(crate) fn grid(name: &str, arguments: &[&str]) -> String {
    try_grid(name, arguments).unwrap_or_else(|problem| panic!("{name} {arguments:?}: {problem}"))
}

/// Fails if `qsub` does not take a script as [`SYSTEM`] describes it.
fn verify(script: &str) {
    let folder = tempfile::tempdir().expect("there is room");
    let file = folder.path().join("script");
    std::fs::write(&file, script).expect("there is room");
    let verified = grid("qsub", &["-verify", &file.display().to_string()]);
    for words in ["h_rt=90", "fiber range: 2", "hard_queue_list:            main.q"] {
        assert!(verified.contains(words), "`{words}` is missing in:\n{verified}");
    }
}

/// Returns the id of the live job of a session.
fn job(name: &str) -> Option<String> {
    let listed = grid("qstat", &["-xml", "-u", "*"]);
    let job = listed.split("<job_list").find(|job| job.contains(&format!("<JB_name>{name}<")))?;
    let (_, id) = job.split_once("<JB_job_number>")?;
    id.split('<').next().map(String::from)
}

/// Ends a job at once, if it still runs.
fn cancel(job: &str) {
    for file in grace_files(job) {
        let _ = std::fs::write(file, "0\n");
    }
    let _ = try_grid("qdel", &[job]);
}

/// Returns the file by which the script of a job knows how long its head has to end.
fn grace_files(job: &str) -> Vec<String> {
    let outputs = found(&format!("*.{job}.out"));
    outputs.iter().map(|output| output.trim_end_matches("out").to_string() + "grace").collect()
}

/// Kills all processes of a job on its first host, not through fiber.
fn lose(job: &str) {
    let id = format!("JOB_ID={job}");
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").expect("it is mounted").flatten();
    for process in processes.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
        let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let is_of_job = environment.split(|byte| *byte == 0).any(|entry| entry == id.as_bytes());
        if is_of_job && process != own {
            let _ = command::output("kill", &["-KILL", &process], "");
        }
    }
}
