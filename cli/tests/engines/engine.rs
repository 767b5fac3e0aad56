//! Engines as their own command lines show them, and the command under test on them.

pub(crate) mod docker;
pub(crate) mod kubernetes;

use std::path::Path;

use serde_json::Value;

use crate::program::{SCENARIO, Setup};
use crate::wait::wait_until;

pub(crate) const ALL: [&dyn Engine; 2] = [&docker::Docker, &kubernetes::Kubernetes];

/// What the tests need of an engine, apart from the command that they test.
pub(crate) trait Engine: Sync {
    /// As `--backend` has it.
    fn name(&self) -> &'static str;

    /// What one process runs in: `container`.
    fn unit(&self) -> &'static str;

    /// Whether standard error can be told from standard output in what a process has printed.
    fn tells_streams_apart(&self) -> bool;

    /// Ends this process with words if no such engine is there, and makes what all tests need
    /// there.
    fn set_up(&self);

    /// Removes what was made for all tests.
    fn tear_down(&self);

    /// Variables that the command needs here.
    fn variables(&self) -> Vec<(&'static str, String)>;

    /// The names of what runs, or ran, of the session whose head is called `head`, itself among it.
    fn units_of(&self, head: &str) -> Vec<String>;

    /// The names of what has a volume mounted.
    fn users_of(&self, claim: &str) -> Vec<String>;

    /// Kills a process without fiber's doing, with all that it started.
    fn kill(&self, name: &str);

    fn create_volume(&self, claim: &str);

    fn remove_volume(&self, claim: &str);

    /// One that waits for storage that nobody provides, where there are such. It goes with what was
    /// made for all tests.
    fn create_pending_volume(&self) -> Option<String>;

    /// What it says if it can't be had, and the variables that make it so.
    fn absence(&self) -> (&'static [(&'static str, &'static str)], &'static [&'static str]);
}

/// The command on an engine, in an empty directory.
pub(crate) fn fiber(engine: &dyn Engine, arguments: &[&str]) -> Setup {
    let setup = Setup::with_executable("", Path::new(env!("CARGO_BIN_EXE_fiber")))
        .env("FIBER_BACKEND", engine.name());
    engine
        .variables()
        .into_iter()
        .fold(setup, |setup, (name, value)| setup.env(name, value))
        .args(arguments)
}

/// `fiber run` with this binary as the program of a scenario.
pub(crate) fn run(engine: &dyn Engine, options: &[&str], scenario: &str) -> Setup {
    let own = std::env::current_exe().expect("this binary is somewhere").display().to_string();
    let scenario = format!("{SCENARIO}={scenario}");
    fiber(engine, &[&["run", "--env", &scenario], options, &[&own]].concat())
}

/// What a command prints that is to succeed.
#[track_caller]
pub(crate) fn output(setup: Setup) -> String {
    setup.run().code(0).out
}

/// A name for something of a test's own.
pub(crate) fn own_name(what: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A session that was started and left alone. It is removed with this.
pub(crate) struct Started {
    engine: &'static dyn Engine,
    pub(crate) name: String,
}

impl Started {
    #[track_caller]
    pub(crate) fn new(engine: &'static dyn Engine, options: &[&str], scenario: &str) -> Started {
        let out = output(run(engine, options, scenario));
        let said = format!("Created {}: ", engine.unit());
        let name = out
            .trim()
            .strip_prefix(&said)
            .unwrap_or_else(|| panic!("`{said}` is missing in: {out}"));
        Started::under(engine, name)
    }

    /// The one of this name.
    pub(crate) fn under(engine: &'static dyn Engine, name: &str) -> Started {
        Started { engine, name: name.to_string() }
    }

    /// What `fiber ps` says of it; `Null` if it does not list it.
    pub(crate) fn listed(&self) -> Value {
        let sessions: Value = serde_json::from_str(&output(fiber(self.engine, &["ps", "--json"])))
            .expect("it is JSON");
        let sessions = sessions.as_array().expect("it is a list");
        sessions
            .iter()
            .find(|session| session["name"] == self.name.as_str())
            .cloned()
            .unwrap_or_default()
    }

    /// Waits until `fiber ps` says of it what is wanted.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, reached: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        wait_until(what, || {
            last = self.listed();
            reached(&last)
        });
        last
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.engine.units_of(&self.name).is_empty() {
            let _ = fiber(self.engine, &["kill", "--now", &self.name]).run();
        }
    }
}

/// A volume of a test's own. It goes with this.
pub(crate) struct Claim {
    engine: &'static dyn Engine,
    pub(crate) name: String,
}

impl Claim {
    pub(crate) fn new(engine: &'static dyn Engine) -> Claim {
        let name = own_name("fiber-test-volume");
        engine.create_volume(&name);
        Claim { engine, name }
    }

    /// A place in it, as `fiber cp` takes it.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.name)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.engine.remove_volume(&self.name);
    }
}
