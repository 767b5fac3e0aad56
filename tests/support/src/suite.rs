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
    let trial = |test: &'static Test| {
        let run = || {
            test.run();
            Ok(())
        };
        Trial::test(test.path(), run).with_ignored_flag(ignored(test))
    };
    libtest_mimic::run(&Arguments::from_args(), tests().into_iter().map(trial).collect())
        .exit_code()
}

/// Runs the tests of this binary on a backend, if they are [to run](is_there).
pub fn run_tests_on<T>(backend: &str, ask: impl FnOnce() -> Result<T, String>) -> ExitCode {
    let is_there = is_there(backend, ask);
    run_tests(|_| !is_there)
}

/// Returns whether `TEST_BACKENDS` asks for tests on a backend. Exits with an error if it does, and
/// `ask` gets no answer of the backend.
pub fn is_there<T>(backend: &str, ask: impl FnOnce() -> Result<T, String>) -> bool {
    let asked = is_asked(backend);
    if !asked {
        eprintln!("SKIPPED: tests on {backend}; TEST_BACKENDS={backend} asks for them");
    } else if let Err(problem) = ask() {
        eprintln!(
            "error: TEST_BACKENDS names {backend}, which does not answer (`make cluster-up` starts \
             it): {problem}"
        );
        std::process::exit(1);
    }
    asked
}

/// Returns whether this process is to run tests whose paths begin with this. nextest starts it for
/// their list, and once for each test.
pub fn runs(prefix: &str) -> bool {
    let arguments = Arguments::from_args();
    let is_excluded = |name: &String| arguments.exact && !name.starts_with(prefix);
    !arguments.list && !arguments.filter.as_ref().is_some_and(is_excluded)
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
