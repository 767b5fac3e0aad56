//! The engines, seen through their own command lines, and the command under test on them.

pub(crate) mod docker;
pub(crate) mod kubernetes;

use std::path::Path;

use fiber_test_support::command::listed;
use fiber_test_support::program::{SCENARIO, Setup};
use fiber_test_support::wait::wait_for;
use serde_json::Value;

pub(crate) const ALL: [&dyn Engine; 2] = [&docker::Docker, &kubernetes::Kubernetes];

/// The operations on an engine that the tests need besides the command under test.
pub(crate) trait Engine: Sync {
    /// Returns the value of `--backend`.
    fn name(&self) -> &'static str;

    /// Returns what one process runs in: `container`, `pod`.
    fn unit(&self) -> &'static str;

    /// Returns whether a process's logs distinguish standard error from standard output.
    fn separates_streams(&self) -> bool;

    /// Exits with an error if there is no such engine, and creates what all tests share.
    fn set_up(&self);

    /// Returns environment variables that the command needs.
    fn variables(&self) -> Vec<(&'static str, String)>;

    /// Returns the names of a session's containers or pods, including its head and those that have
    /// ended.
    fn units_of(&self, head: &str) -> Vec<String>;

    /// Returns the names of the containers or pods that mount a volume.
    fn users_of(&self, claim: &str) -> Vec<String>;

    /// Kills a process and its descendants, not through fiber.
    fn kill(&self, name: &str);

    /// Kills the process of a head, not through fiber, so that the engine starts it again.
    fn lose(&self, head: &str);

    fn create_volume(&self, claim: &str);

    fn remove_volume(&self, claim: &str);

    /// Returns variables that make the engine unreachable, and the error to expect then.
    fn absence(&self) -> (&'static [(&'static str, &'static str)], &'static [&'static str]);
}

/// Returns the command on an engine, in an empty directory.
pub(crate) fn fiber(engine: &dyn Engine, arguments: &[&str]) -> Setup {
    let setup = Setup::with_executable("", Path::new(env!("CARGO_BIN_EXE_fiber")))
        .env("FIBER_BACKEND", engine.name());
    engine
        .variables()
        .into_iter()
        .fold(setup, |setup, (name, value)| setup.env(name, value))
        .args(arguments)
}

/// Returns `fiber run` with this binary, which plays a scenario.
pub(crate) fn run(engine: &dyn Engine, options: &[&str], scenario: &str) -> Setup {
    let own = std::env::current_exe().expect("this binary is somewhere").display().to_string();
    let scenario = format!("{SCENARIO}={scenario}");
    fiber(engine, &[&["run", "--env", &scenario], options, &[&own]].concat())
}

/// Runs a command that must succeed, and returns its output.
#[track_caller]
pub(crate) fn output(setup: Setup) -> String {
    setup.run().code(0).out
}

/// Returns a unique name.
pub(crate) fn own_name(what: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A session that was started without `--attach`. Dropping this removes it.
pub(crate) struct StartedSession {
    engine: &'static dyn Engine,
    pub(crate) name: String,
}

impl StartedSession {
    #[track_caller]
    pub(crate) fn new(
        engine: &'static dyn Engine,
        options: &[&str],
        scenario: &str,
    ) -> StartedSession {
        let out = output(run(engine, options, scenario));
        let said = format!("Created {}: ", engine.unit());
        let name = out
            .trim()
            .strip_prefix(&said)
            .unwrap_or_else(|| panic!("`{said}` is missing in: {out}"));
        StartedSession::under(engine, name)
    }

    /// Guards the session of this name.
    pub(crate) fn under(engine: &'static dyn Engine, name: &str) -> StartedSession {
        StartedSession { engine, name: name.to_string() }
    }

    /// Returns the session's entry of `fiber ps --json`; `Null` if there is none.
    pub(crate) fn listed(&self) -> Value {
        listed(&output(fiber(self.engine, &["ps", "--json"])), &self.name)
    }

    /// Waits until the session's entry of `fiber ps` satisfies a condition.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, reached: impl Fn(&Value) -> bool) -> Value {
        wait_for(what, || {
            let listed = self.listed();
            if reached(&listed) { Ok(listed) } else { Err(listed) }
        })
    }
}

impl Drop for StartedSession {
    fn drop(&mut self) {
        if !self.engine.units_of(&self.name).is_empty() {
            let _ = fiber(self.engine, &["kill", "--now", &self.name]).run();
        }
    }
}

/// A volume of one test. Dropping this removes it.
pub(crate) struct TestVolume {
    engine: &'static dyn Engine,
    pub(crate) name: String,
}

impl TestVolume {
    pub(crate) fn new(engine: &'static dyn Engine) -> TestVolume {
        let name = own_name("fiber-test-volume");
        engine.create_volume(&name);
        TestVolume { engine, name }
    }

    /// Returns a path in it, in the form of `fiber cp`.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.name)
    }
}

impl Drop for TestVolume {
    fn drop(&mut self) {
        self.engine.remove_volume(&self.name);
    }
}
