//! A batch system, as the tests need it, and the command under test on it.

use std::path::Path;

use fiber_test_support::program::{SCENARIO, Setup};

use super::session::state;
use crate::cluster::SYSTEM;

/// The facts and operations in which batch systems differ.
pub(crate) struct System {
    /// The name of the backend.
    pub(crate) backend: &'static str,
    /// Returns the command on a machine that submits jobs, in an empty directory.
    pub(crate) command: fn() -> Setup,
    /// The options of `fiber run` for a session of two workers. A test that names one of them names
    /// all that it needs.
    pub(crate) size: &'static [&'static str],
    /// The options for four workers on two machines.
    pub(crate) wide: &'static [&'static str],
    /// The option that keeps a job waiting until `release`.
    pub(crate) hold: &'static str,
    /// The words of `fiber ps` about a job that is held; `JOB` stands for its id.
    pub(crate) held: &'static str,
    /// The remedy if the nodes lack a program.
    pub(crate) missing: &'static str,
    /// The options of a dry run, and the lines that it prints for them.
    pub(crate) described: (&'static [&'static str], &'static [&'static str]),
    /// Fails if the batch system does not take a script.
    pub(crate) verify: fn(&str),
    /// Requests that are refused, and the words that say why.
    pub(crate) refused: &'static [(&'static [&'static str], &'static [&'static str])],
    /// Options of other backends, and the words that refuse them.
    pub(crate) foreign: &'static [(&'static [&'static str], &'static [&'static str])],
    /// An option that other backends lack, and the words that refuse it there.
    pub(crate) own: (&'static [&'static str], &'static [&'static str]),
    /// Words of the error if its commands are missing.
    pub(crate) no_commands: &'static [&'static str],
    /// Returns the id of the live job of a session.
    pub(crate) job: fn(&str) -> Option<String>,
    /// Lets a job start that is held.
    pub(crate) release: fn(&str),
    /// Lets a job start soon that is queued again.
    pub(crate) hurry: fn(&str),
    /// Ends a job at once, if it still runs.
    pub(crate) cancel: fn(&str),
    /// Kills the head of a job, not through fiber.
    pub(crate) lose: fn(&str),
}

/// Returns the command with arguments.
pub(crate) fn fiber(arguments: &[&str]) -> Setup {
    let command = (SYSTEM.command)().env("FIBER_BACKEND", SYSTEM.backend);
    command.env("XDG_STATE_HOME", state()).args(arguments)
}

/// Returns `fiber run` with this binary, which plays a scenario.
pub(crate) fn run(options: &[&str], scenario: &str) -> Setup {
    let own = std::env::current_exe().expect("this binary is somewhere");
    run_program(&own, options, scenario)
}

/// Works as [`run`], with another program.
pub(crate) fn run_program(program: &Path, options: &[&str], scenario: &str) -> Setup {
    let program = program.display().to_string();
    let scenario = format!("{SCENARIO}={scenario}");
    // The job may outlive the command and its directories.
    let own = ["-e", "SCENARIO_MARK=job", "-e", "TMPDIR=/tmp"];
    let is_sized = options.iter().any(|word| word.starts_with("--") && SYSTEM.size.contains(word));
    let size = if is_sized { &[] } else { SYSTEM.size };
    fiber(&[&["run", "-e", &scenario], &own[..], size, options, &[&program]].concat())
}
