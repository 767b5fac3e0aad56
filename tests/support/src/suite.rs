use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// A test of a suite that has a `main` of its own.
#[derive(Debug)]
pub struct Test {
    module: &'static str,
    name: &'static str,
    run: fn(),
}

inventory::collect!(Test);

impl Test {
    /// Describes a test. The attribute [`trial`](macro@crate::trial) calls it.
    pub const fn new(module: &'static str, name: &'static str, run: fn()) -> Test {
        Test { module, name, run }
    }

    /// Returns the module of its suite that it is in.
    pub fn topic(&self) -> &'static str {
        topic(self.module)
    }

    /// Returns the name of its function.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns its topic and its name, as in libtest's output.
    pub fn path(&self) -> String {
        format!("{}::{}", self.topic(), self.name)
    }

    /// Runs it. A failed test panics.
    pub fn run(&self) {
        (self.run)();
    }
}

/// Returns the path of a module in its crate.
pub fn topic(module: &'static str) -> &'static str {
    module.split_once("::").map_or(module, |(_, topic)| topic)
}

/// Returns the tests of this binary in the order of their paths.
pub fn tests() -> Vec<&'static Test> {
    let mut tests: Vec<_> = inventory::iter::<Test>().collect();
    tests.sort_by_key(|test| (test.module, test.name));
    tests
}

/// Runs the tests of this binary, except for the `ignored`, as the arguments demand.
pub fn run_tests(ignored: impl Fn(&Test) -> bool) -> ExitCode {
    run_tests_with(&Arguments::from_args(), ignored)
}

/// Works as [`run_tests`] for tests that wait most of the time: twice as many run at a time as there
/// are cores.
pub fn run_waiting_tests(ignored: impl Fn(&Test) -> bool) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    arguments.test_threads.get_or_insert(2 * cores);
    run_tests_with(&arguments, ignored)
}

/// Works as [`run_tests`], with these arguments.
pub fn run_tests_with(arguments: &Arguments, ignored: impl Fn(&Test) -> bool) -> ExitCode {
    let trial = |test: &'static Test| {
        let run = || {
            test.run();
            Ok(())
        };
        Trial::test(test.path(), run).with_ignored_flag(ignored(test))
    };
    libtest_mimic::run(arguments, tests().into_iter().map(trial).collect()).exit_code()
}

/// Returns how many times as much the tests that repeat something repeat it: `SOAK` from the
/// environment, or else once.
pub fn soak() -> usize {
    std::env::var("SOAK").map_or(1, |times| times.parse().expect("SOAK is a number of times"))
}

/// Returns whether the variable `TEST_BACKENDS` has this name in its list.
pub fn is_asked(backend: &str) -> bool {
    let backends = std::env::var("TEST_BACKENDS").unwrap_or_default();
    backends.split(',').any(|name| name.trim() == backend)
}
