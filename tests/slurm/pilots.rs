//! Programs outside of an allocation, which submit jobs for their hosts.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::batch::{SCENARIO, slurm};
use crate::command::output;
use crate::wait::wait_until;

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("pi_with_pilots_leaves_no_job_and_no_file", pi_with_pilots_leaves_no_job_and_no_file),
    ("a_killed_program_leaves_no_pilot", a_killed_program_leaves_no_pilot),
    ("refused_pilots_name_the_reason", refused_pilots_name_the_reason),
];

/// Returns the command and its arguments for a program with pilots whose files are in a directory.
pub(crate) fn arguments(scenario: &str, directory: &Path, more: &[&str]) -> Vec<String> {
    let executable = std::env::current_exe().expect("this binary is somewhere");
    let mut arguments = vec![
        format!("{SCENARIO}={scenario}"),
        "FIBER_BACKEND=slurm".into(),
        "FIBER_SLURM_PILOTS=2".into(),
        "FIBER_SLURM_TIME=5m".into(),
        // The test tells its jobs from those of others by this.
        format!("FIBER_SLURM_DIR={}", directory.display()),
    ];
    arguments.extend(more.iter().map(ToString::to_string));
    arguments.push(executable.display().to_string());
    arguments
}

/// Returns the states of the pilots whose output goes into a directory.
fn pilots(directory: &Path) -> Vec<String> {
    let jobs = slurm("scontrol", &["show", "job", "-o"]);
    let directory = directory.display().to_string();
    let own = jobs.lines().filter(|job| job.contains(&directory));
    let state = |job: &str| job.split("JobState=").nth(1)?.split(' ').next().map(String::from);
    own.filter_map(state).collect()
}

pub(crate) fn live(directory: &Path) -> usize {
    let goes_on = |state: &&String| ["PENDING", "RUNNING", "COMPLETING"].contains(&state.as_str());
    pilots(directory).iter().filter(goes_on).count()
}

fn pi_with_pilots_leaves_no_job_and_no_file() {
    let directory = TempDir::new().expect("a directory can be created");
    let arguments = arguments("pi", directory.path(), &[]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert_eq!(output("env", &arguments, "").as_deref(), Ok("pi: 3.14"));
    wait_until("the end of its pilots", || live(directory.path()) == 0);
    assert!(!pilots(directory.path()).is_empty());
    let left: Vec<_> = directory.path().read_dir().expect("it exists").collect();
    assert!(left.is_empty(), "{left:?}");
}

fn a_killed_program_leaves_no_pilot() {
    let directory = TempDir::new().expect("a directory can be created");
    let mut program = Command::new("env")
        .args(arguments("endless", directory.path(), &[]))
        .stdout(Stdio::null())
        .spawn()
        .expect("it can be started");
    wait_until("a running pilot", || {
        pilots(directory.path()).iter().any(|state| state == "RUNNING")
    });
    program.kill().expect("it runs");
    program.wait().expect("it is a child");
    wait_until("the end of its pilots", || live(directory.path()) == 0);
}

fn refused_pilots_name_the_reason() {
    for (option, parts) in [
        ("FIBER_SLURM_PARTITION=nope", ["nope", "`slurm_partition`"]),
        ("FIBER_SLURM_PARTITION=staff", ["staff", "`slurm_account`"]),
        ("FIBER_SLURM_OPTIONS=--mem=900G", ["emory", "no more than the nodes have"]),
    ] {
        let directory = TempDir::new().expect("a directory can be created");
        let arguments = arguments("pi", directory.path(), &[option]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let error = output("env", &arguments, "").expect_err("Slurm refuses it");
        assert!(parts.iter().all(|part| error.contains(part)), "{option}: {error}");
        assert_eq!(live(directory.path()), 0);
    }
}
