use std::process::{ExitCode, Termination};

use tracing_subscriber::filter::LevelFilter;

use crate::program::SCENARIO;

/// A program that tests start: their own binary, with the scenario's name in its environment.
#[derive(Debug)]
pub struct Scenario {
    module: &'static str,
    name: &'static str,
    run: fn() -> ExitCode,
}

inventory::collect!(Scenario);

impl Scenario {
    /// Describes a program. The attribute [`scenario`](macro@crate::scenario) calls it.
    pub const fn new(module: &'static str, name: &'static str, run: fn() -> ExitCode) -> Scenario {
        Scenario { module, name, run }
    }
}

/// Runs `prepare` and the program that this process was started for, from the first line of its
/// `main`. Returns `None` in a process that runs tests.
pub fn run_scenario(prepare: impl FnOnce()) -> Option<ExitCode> {
    let name = std::env::var(SCENARIO).ok()?;
    prepare();
    let named = inventory::iter::<Scenario>().filter(|scenario| scenario.name == name);
    // A suite's own program goes before one that several suites share.
    let scenario =
        named.min_by_key(|scenario| scenario.module.starts_with(env!("CARGO_CRATE_NAME")));
    let scenario = scenario.unwrap_or_else(|| panic!("there is no scenario `{name}`"));
    Some((scenario.run)())
}

/// The variable that lets a program print its warnings.
pub const WARNINGS: &str = "TEST_WARNINGS";

/// Lets a program print its warnings, if the test that has started it wants to see them.
pub fn print_warnings_if_asked() {
    if std::env::var_os(WARNINGS).is_some() {
        let subscriber = tracing_subscriber::fmt().with_max_level(LevelFilter::WARN);
        subscriber.with_writer(std::io::stderr).with_ansi(false).init();
    }
}

/// Returns the exit code of a `main` function.
pub fn exit_code<T: Termination>(main: fn() -> T) -> ExitCode {
    main().report()
}
