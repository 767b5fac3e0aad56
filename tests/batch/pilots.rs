//! Programs outside of an allocation, which submit jobs for their hosts: what all batch systems
//! promise.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use fiber_test_support::command::output;
use fiber_test_support::program::SCENARIO;
use fiber_test_support::trial;
use fiber_test_support::wait::wait_until;
use tempfile::TempDir;

use crate::SYSTEM;

/// The part of a batch system in these tests.
pub(crate) struct System {
    /// The name of the backend.
    pub(crate) backend: &'static str,
    /// Returns the words that run `env` outside of a job.
    pub(crate) env: fn() -> Vec<String>,
    /// The options of two pilots for four workers.
    pub(crate) pilots: &'static [&'static str],
    /// The value of `options` that keeps a pilot waiting.
    pub(crate) waits: &'static str,
    /// The options that are refused, and the words that say why.
    pub(crate) refused: &'static [(&'static str, &'static [&'static str])],
    /// The lines of the script of a pilot.
    pub(crate) script: &'static [&'static str],
    /// Returns how many jobs whose output goes into a directory wait or run, and how many of them
    /// run.
    pub(crate) live: fn(&Path) -> (usize, usize),
}

/// Returns the words that start a program with pilots whose files are in a directory.
pub(crate) fn words(scenario: &str, directory: &Path, more: &[&str]) -> Vec<String> {
    let executable = std::env::current_exe().expect("this binary is somewhere");
    let section = format!("FIBER_{}_", SYSTEM.backend.to_uppercase());
    let mut words = (SYSTEM.env)();
    words.push(format!("{SCENARIO}={scenario}"));
    words.push(format!("FIBER_BACKEND={}", SYSTEM.backend));
    // The test tells its jobs from those of others by this.
    words.push(format!("{section}DIR={}", directory.display()));
    let options = ["PILOTS=2", "TIME=5m"].iter().chain(SYSTEM.pilots).chain(more);
    words.extend(options.map(|option| {
        match option.starts_with("FIBER_") || option.contains("PATH=") {
            true => option.to_string(),
            false => format!("{section}{option}"),
        }
    }));
    words.push(executable.display().to_string());
    words
}

/// Runs a program with pilots to its end.
///
/// # Errors
/// Its output.
pub(crate) fn run(scenario: &str, directory: &Path, more: &[&str]) -> Result<String, String> {
    let words = words(scenario, directory, more);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    output(words[0], &words[1..], "")
}

pub(crate) fn live(directory: &Path) -> usize {
    (SYSTEM.live)(directory).0
}

fn directory() -> TempDir {
    TempDir::new().expect("a directory can be created")
}

fn files(directory: &Path) -> Vec<String> {
    let entries = directory.read_dir().expect("it exists").flatten();
    entries.map(|entry| entry.path().display().to_string()).collect()
}

/// A program that works for ever. Dropping this kills it.
pub(crate) struct Endless(Child);

impl Endless {
    pub(crate) fn start(directory: &Path, more: &[&str]) -> Endless {
        let words = words("endless", directory, more);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null());
        Endless(command.spawn().expect("it can be started"))
    }

    /// Starts a program whose pilots wait.
    fn waiting(directory: &Path) -> Endless {
        let options = format!("OPTIONS={}", SYSTEM.waits);
        let program = Endless::start(directory, &[&options]);
        wait_until("a pending pilot", || live(directory) > 0);
        program
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[trial]
fn pi_with_pilots_leaves_no_job_and_no_file() {
    let directory = directory();
    assert_eq!(run("pi", directory.path(), &[]).as_deref(), Ok("pi: 3.14"));
    wait_until("the end of its pilots", || live(directory.path()) == 0);
    assert_eq!(files(directory.path()), [""; 0]);
}

#[trial]
fn a_killed_program_leaves_no_pilot_and_no_file() {
    let directory = directory();
    let program = Endless::start(directory.path(), &[]);
    wait_until("a running pilot", || (SYSTEM.live)(directory.path()).1 > 0);
    drop(program);
    wait_until("the end of its pilots", || live(directory.path()) == 0);
    // Nothing of the program is left to remove them.
    let left = files(directory.path());
    assert!(!left.is_empty());
    for file in left {
        let old = SystemTime::now() - Duration::from_secs(600);
        File::open(file).and_then(|file| file.set_modified(old)).expect("it is ours");
    }
    assert_eq!(run("pi", directory.path(), &[]).as_deref(), Ok("pi: 3.14"));
    assert_eq!(files(directory.path()), [""; 0]);
}

#[trial]
fn orphaned_pilots_are_cancelled_by_the_next_program() {
    let (orphans, other) = (directory(), directory());
    drop(Endless::waiting(orphans.path()));
    assert!(live(orphans.path()) > 0, "nothing of the program is left to cancel them");
    assert_eq!(run("pi", other.path(), &[]).as_deref(), Ok("pi: 3.14"));
    wait_until("the end of the orphaned pilots", || live(orphans.path()) == 0);
}

#[trial]
fn a_dry_run_prints_the_script_and_submits_nothing() {
    let directory = directory();
    let error = run("pi", directory.path(), &["DRY_RUN=true"]).expect_err("nothing is submitted");
    let refusal = format!("`{}.dry_run`", SYSTEM.backend);
    for part in SYSTEM.script.iter().chain(&[refusal.as_str(), "#!/bin/sh\n"]) {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(error.matches("#!/bin/sh\n").count(), 1, "{error}");
    assert_eq!((live(directory.path()), files(directory.path())), (0, Vec::new()));
}

#[trial]
fn refused_pilots_name_the_reason() {
    for (option, parts) in SYSTEM.refused {
        let directory = directory();
        let error = run("pi", directory.path(), &[option]).expect_err("they are refused");
        assert!(parts.iter().all(|part| error.contains(part)), "{option}: {error}");
        assert_eq!(live(directory.path()), 0);
    }
}

#[trial]
fn an_interface_is_found_by_its_network() {
    let directory = directory();
    let start =
        |interface: &str| run("pi", directory.path(), &[&format!("FIBER_INTERFACE={interface}")]);
    let error = start("ib77").expect_err("there is none");
    assert!(error.contains("`ib77`") && error.contains("`lo` (127.0.0.1)"), "{error}");
}
