//! Programs outside of an allocation, which submit jobs for their hosts.

use std::path::Path;
use std::process::{Command, Stdio};

use fiber_test_support::command::output;
use fiber_test_support::program::SCENARIO;
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use tempfile::TempDir;

use crate::batch::slurm;

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

#[trial]
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

#[trial]
fn a_killed_program_leaves_no_pilot_and_no_file() {
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
    // Nothing of the program is left to remove them.
    assert!(files(directory.path()) > 0);
    let arguments = arguments("pi", directory.path(), &[]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert_eq!(output("env", &arguments, "").as_deref(), Ok("pi: 3.14"));
    assert_eq!(files(directory.path()), 0);
}

fn files(directory: &Path) -> usize {
    directory.read_dir().expect("it exists").count()
}

/// A program whose pilots wait for an hour. Dropping this kills it.
struct Waiting(std::process::Child);

impl Waiting {
    fn start(directory: &Path, options: &str) -> Waiting {
        let options = format!("FIBER_SLURM_OPTIONS=--begin=now+1hour,{options}");
        let program = Command::new("env")
            .args(arguments("endless", directory, &[&options]))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let program = Waiting(program.expect("it can be started"));
        wait_until("a pending pilot", || live(directory) > 0);
        program
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[trial]
fn orphaned_pilots_are_cancelled_by_the_next_program() {
    let directory = TempDir::new().expect("a directory can be created");
    drop(Waiting::start(directory.path(), "--nice=1"));
    assert!(live(directory.path()) > 0, "nothing of the program is left to cancel them");
    let other = TempDir::new().expect("a directory can be created");
    let arguments = arguments("pi", other.path(), &[]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert_eq!(output("env", &arguments, "").as_deref(), Ok("pi: 3.14"));
    wait_until("the end of the orphaned pilots", || live(directory.path()) == 0);
}

#[trial]
fn options_reach_slurm_verbatim() {
    let directory = TempDir::new().expect("a directory can be created");
    let name = "it's $HOME & *;[1-3]";
    let program = Waiting::start(directory.path(), &format!("--nice=77,--job-name={name}"));
    let jobs = slurm("scontrol", &["show", "job", "-o"]);
    let place = directory.path().display().to_string();
    let own = jobs.lines().find(|job| job.contains(&place)).expect("it is pending");
    assert!(own.contains(&format!("JobName={name} ")) && own.contains("Nice=77 "), "{own}");
    drop(program);
    // Nothing of the program is left to do it.
    for job in jobs.lines().filter(|job| job.contains(&place)) {
        let id = job.split(['=', ' ']).nth(1).expect("its id");
        let _ = output("scancel", &[id], "");
    }
}

#[trial]
fn an_interface_is_found_by_its_network() {
    let directory = TempDir::new().expect("a directory can be created");
    let start = |interface: &str| {
        let option = format!("FIBER_INTERFACE={interface}");
        let arguments = arguments("pi", directory.path(), &[&option]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        output("env", &arguments, "")
    };
    assert_eq!(start("127.0.0.0/8").as_deref(), Ok("pi: 3.14"));
    let error = start("ib77").expect_err("there is none");
    assert!(error.contains("`ib77`") && error.contains("`lo` (127.0.0.1)"), "{error}");
}

#[trial]
fn a_dry_run_prints_the_script_and_submits_nothing() {
    let directory = TempDir::new().expect("a directory can be created");
    let option = "FIBER_SLURM_DRY_RUN=true";
    let arguments = arguments("pi", directory.path(), &[option]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let error = output("env", &arguments, "").expect_err("nothing is submitted");
    for part in ["#!/bin/sh\n", "#SBATCH --exclusive\n", "#SBATCH --time=5\n", "`slurm.dry_run`"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(error.matches("#!/bin/sh").count(), 1, "{error}");
    assert!(pilots(directory.path()).is_empty());
    assert_eq!(directory.path().read_dir().expect("it exists").count(), 0);
}

#[trial]
fn refused_pilots_name_the_reason() {
    for (option, parts) in [
        ("FIBER_SLURM_PARTITION=nope", ["nope", "`slurm.partition`"]),
        ("FIBER_SLURM_PARTITION=staff", ["staff", "`slurm.account`"]),
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
