//! The cluster, seen through Slurm's own commands, and the command under test on it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use fiber_test_support::command;
use fiber_test_support::program::{ProgramOutput, SCENARIO, Setup};
use fiber_test_support::wait::wait_until;
use serde_json::Value;
use tempfile::TempDir;

/// The folder of all records.
static STATE: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().expect("there is room"));

/// Runs a command of Slurm.
pub(crate) fn slurm(name: &str, arguments: &[&str]) -> String {
    command::output(name, arguments, "")
        .unwrap_or_else(|problem| panic!("{name} {arguments:?}: {problem}"))
}

/// Exits with an error if there is no cluster.
pub(crate) fn must_answer() {
    if let Err(problem) = command::output("sinfo", &["--noheader"], "") {
        eprintln!("error: no Slurm cluster answers: {problem}; `make slurm-up` starts one");
        std::process::exit(1);
    }
}

/// Returns the command, in an empty directory.
pub(crate) fn fiber(arguments: &[&str]) -> Setup {
    Setup::with_executable("", Path::new(env!("CARGO_BIN_EXE_fiber")))
        .env("FIBER_BACKEND", "slurm")
        .env("XDG_STATE_HOME", STATE.path())
        .args(arguments)
}

/// Returns `fiber run` with this binary, which plays a scenario, on both cores of a node.
pub(crate) fn run(options: &[&str], scenario: &str) -> Setup {
    let own = std::env::current_exe().expect("this binary is somewhere");
    run_program(&own, options, scenario)
}

/// Works as [`run`], with a copy of this binary.
pub(crate) fn run_program(program: &Path, options: &[&str], scenario: &str) -> Setup {
    let program = program.display().to_string();
    let scenario = format!("{SCENARIO}={scenario}");
    // The job may outlive the command and its directories.
    let own_job = ["-e", "SCENARIO_MARK=job", "-e", "TMPDIR=/tmp", "--cpu", "2"];
    fiber(&[&["run", "-e", &scenario], &own_job[..], options, &[&program]].concat())
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

/// Runs a command that must succeed, and returns its output.
#[track_caller]
pub(crate) fn output(setup: Setup) -> String {
    setup.run().code(0).out
}

/// Returns a unique name.
pub(crate) fn own_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the id of the live job of a session.
pub(crate) fn job(name: &str) -> Option<String> {
    let listed = slurm("squeue", &["--noheader", "--name", name, "--format", "%i"]);
    listed.lines().next().map(String::from)
}

/// Returns the files of this name in the folder of all records.
pub(crate) fn found(pattern: &str) -> Vec<String> {
    let state = STATE.path().display().to_string();
    let found = command::output("find", &[&state, "-name", pattern], "");
    found.expect("it can be searched").lines().map(String::from).collect()
}

/// A session that was started without `--attach`. Dropping this removes it.
pub(crate) struct StartedSession {
    pub(crate) name: String,
    /// Keeps the working directory.
    pub(crate) directory: Option<ProgramOutput>,
}

impl StartedSession {
    /// Returns the file of its output.
    pub(crate) fn record(&self) -> PathBuf {
        let files = self.files();
        let output = files.iter().find(|file| file.ends_with(".out"));
        PathBuf::from(output.expect("it has one"))
    }

    /// Returns all files of the session, and the folders of them.
    pub(crate) fn files(&self) -> Vec<String> {
        found(&format!("{}.*", self.name))
    }

    /// Returns all that it has printed.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(self.record()).expect("it can be read")
    }

    /// Lets a job start that was submitted with `--hold`.
    pub(crate) fn release(&self) {
        slurm("scontrol", &["release", &job(&self.name).expect("it is queued")]);
    }

    #[track_caller]
    pub(crate) fn new(options: &[&str], scenario: &str) -> StartedSession {
        let own = std::env::current_exe().expect("this binary is somewhere");
        StartedSession::of(&own, options, scenario)
    }

    /// Starts a session of a copy of this binary.
    #[track_caller]
    pub(crate) fn of(program: &Path, options: &[&str], scenario: &str) -> StartedSession {
        let mut session = StartedSession::under(own_name());
        let options = [&["--name", &session.name], options].concat();
        let started = run_program(program, &options, scenario).run().code(0);
        assert_eq!(started.out, format!("Created job: {}", session.name));
        session.directory = Some(started);
        session
    }

    /// Guards the session of this name.
    pub(crate) fn under(name: String) -> StartedSession {
        StartedSession { name, directory: None }
    }

    /// Returns the session's entry of `fiber ps --json`; `Null` if there is none.
    pub(crate) fn listed(&self) -> Value {
        let sessions: Value =
            serde_json::from_str(&output(fiber(&["ps", "--json", "--backend", "slurm"])))
                .expect("it is JSON");
        let sessions = sessions.as_array().expect("it is a list");
        let own = |session: &&Value| session["name"] == self.name.as_str();
        sessions.iter().find(own).cloned().unwrap_or_default()
    }

    /// Waits until the session's entry of `fiber ps` satisfies a condition.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, reached: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        wait_until(what, || {
            last = self.listed();
            reached(&last)
        });
        last
    }

    /// Kills its head, not through fiber.
    pub(crate) fn lose(&self) {
        let job = job(&self.name).expect("it has a job");
        slurm("scancel", &["--signal=KILL", "--batch", &job]);
    }
}

impl Drop for StartedSession {
    fn drop(&mut self) {
        if let Some(job) = job(&self.name) {
            let _ = command::output("scancel", &[&job], "");
        }
    }
}
