//! Programs as batch jobs.

use std::fs;
use std::path::PathBuf;

use fiber_test_support::command::output;
use fiber_test_support::program::SCENARIO;
use fiber_test_support::wait::wait_until;
use tempfile::TempDir;

/// The nodes of the cluster have two cores each.
const NODES: [&str; 4] = ["--nodes=2", "--cpus-per-task=2", "--gres=gpu:2", "--time=10"];

/// A batch job that runs the program of a scenario. Dropping this cancels it.
pub(crate) struct Batch {
    pub(crate) id: String,
    directory: TempDir,
}

/// Runs a command of Slurm.
#[track_caller]
pub(crate) fn slurm(command: &str, arguments: &[&str]) -> String {
    output(command, arguments, "").unwrap_or_else(|problem| panic!("{command}: {problem}"))
}

/// Returns the line of a shell that runs the program of a scenario.
pub(crate) fn line(scenario: &str) -> String {
    let executable = std::env::current_exe().expect("this binary is somewhere");
    format!("env {SCENARIO}='{scenario}' FIBER_BACKEND=slurm {}", executable.display())
}

impl Batch {
    /// Submits a script of these lines.
    #[track_caller]
    pub(crate) fn submit(options: &[&str], lines: &str) -> Batch {
        let directory = TempDir::new().expect("a directory can be created");
        let script = directory.path().join("script");
        fs::write(&script, format!("#!/bin/bash\n{lines}\n")).expect("there is room");
        let out = format!("--output={}", directory.path().join("out").display());
        let place = format!("--chdir={}", directory.path().display());
        let script = script.display().to_string();
        let mut arguments = vec!["--parsable", "--open-mode=append", &out, &place];
        arguments.extend(NODES.iter().chain(options).copied().chain([&*script]));
        let id = slurm("sbatch", &arguments);
        Batch { id, directory }
    }

    /// Submits a job that runs the program of a scenario.
    #[track_caller]
    pub(crate) fn run(scenario: &str) -> Batch {
        Batch::submit(&[], &format!("exec {}", line(scenario)))
    }

    pub(crate) fn out(&self) -> String {
        fs::read_to_string(self.directory.path().join("out")).unwrap_or_default()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Waits until the job has printed this.
    #[track_caller]
    pub(crate) fn prints(&self, text: &str) {
        self.waits(&format!("the output of `{text}`"), || self.out().contains(text));
    }

    #[track_caller]
    fn waits(&self, what: &str, mut reached: impl FnMut() -> bool) {
        let reached = std::panic::AssertUnwindSafe(|| wait_until(what, &mut reached));
        if std::panic::catch_unwind(reached).is_err() {
            panic!("{what} did not happen; the job is {}: {}", self.state(), self.out());
        }
    }

    pub(crate) fn state(&self) -> String {
        output("squeue", &["-h", "-t", "all", "-j", &self.id, "-o", "%T"], "").unwrap_or_default()
    }

    /// Waits for the end of the job, and returns its output. It has to succeed.
    #[track_caller]
    pub(crate) fn succeeds(&self) -> String {
        let over = |state: &str| {
            !["PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", ""].contains(&state)
        };
        self.waits("the end of the job", || over(&self.state()));
        assert_eq!(self.state(), "COMPLETED", "{}", self.out());
        self.out()
    }

    /// Returns the ids of its steps, except the batch script.
    pub(crate) fn steps(&self) -> Vec<String> {
        let steps = slurm("squeue", &["-h", "-s", "-j", &self.id, "-o", "%i"]);
        let is_own =
            |id: &&str| id.rsplit('.').next().is_some_and(|step| step.parse::<u32>().is_ok());
        steps.split_whitespace().filter(is_own).map(String::from).collect()
    }

    /// Returns the names of its nodes.
    pub(crate) fn nodes(&self) -> Vec<String> {
        let list = slurm("squeue", &["-h", "-j", &self.id, "-o", "%N"]);
        slurm("scontrol", &["show", "hostnames", &list]).lines().map(String::from).collect()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let _ = output("scancel", &["--quiet", &self.id], "");
    }
}
