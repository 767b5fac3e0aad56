//! Sessions of `fiber run` on a batch system, and their records.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use fiber_test_support::command;
use fiber_test_support::program::{ProgramOutput, Setup};
use fiber_test_support::wait::wait_for;
use serde_json::Value;
use tempfile::TempDir;

use super::{fiber, run_program};
use crate::cluster::SYSTEM;

/// Returns the folder of all records.
pub(crate) fn state() -> &'static Path {
    static STATE: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().expect("there is room"));
    STATE.path()
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

/// Returns the files of this name in the folder of all records.
pub(crate) fn found(pattern: &str) -> Vec<String> {
    let state = state().display().to_string();
    let found = command::output("find", &[&state, "-name", pattern], "");
    found.expect("it can be searched").lines().map(String::from).collect()
}

/// Returns this binary in a folder of its own, under a name of its own.
pub(crate) fn copied_program() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("there is room");
    let program = folder.path().join(format!("lab-{}", own_name()));
    let own = std::env::current_exe().expect("this binary is somewhere");
    fs::copy(own, &program).expect("there is room");
    (folder, program)
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

    /// Lets its job start, which was submitted with a hold.
    pub(crate) fn release(&self) {
        (SYSTEM.release)(&(SYSTEM.job)(&self.name).expect("it is queued"));
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
        let all = output(fiber(&["ps", "--json", "--backend", SYSTEM.backend]));
        command::listed(&all, &self.name)
    }

    /// Waits until the session's entry of `fiber ps` satisfies a condition.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, reached: impl Fn(&Value) -> bool) -> Value {
        wait_for(what, || {
            let listed = self.listed();
            if reached(&listed) { Ok(listed) } else { Err(listed) }
        })
    }

    /// Checks what the commands say that would ask its head, which can't answer.
    #[track_caller]
    pub(crate) fn can_not_be_asked(&self, why: &str) {
        for command in [&["top", "--once"][..], &["top", "--json"], &["stack"]] {
            let ending = fiber(&[command, &[&*self.name]].concat()).run().code(1);
            let why = format!("{} {why}", self.name);
            assert!(ending.errors.contains(&why), "{command:?}: {}", ending.errors);
        }
    }

    /// Kills its head, not through fiber.
    pub(crate) fn lose(&self) {
        (SYSTEM.lose)(&(SYSTEM.job)(&self.name).expect("it has a job"));
    }
}

impl Drop for StartedSession {
    fn drop(&mut self) {
        if let Some(job) = (SYSTEM.job)(&self.name) {
            (SYSTEM.cancel)(&job);
        }
    }
}
