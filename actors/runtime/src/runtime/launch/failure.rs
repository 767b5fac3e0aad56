//! Why a start failed.

use fiber_core::{Exit, ExitReason};

use crate::runtime::child_exit::ChildExit;

pub(super) const IS_INIT_FIRST: &str = "is `fiber::init()` the first thing that `main` does?";

/// The exit code of a program that the system's loader could not load.
const EXIT_NOT_LOADED: i32 = 127;

const SIGTERM: i32 = 15;

pub(in crate::runtime) fn not_started(problem: String) -> Exit {
    Exit::new(ExitReason::NotStarted(problem), Vec::new())
}

pub(super) fn not_accepted(problem: &str) -> String {
    format!("this process could not accept its connection: {problem}")
}

/// Explains the end of a process that had not connected, and what to do about it.
pub(super) fn explain_early_end(exit: Exit, accept_failure: Option<String>) -> Exit {
    let own = ChildExit::of(&exit.reason);
    // Then the process, or its loader, has printed the problem.
    let has_printed =
        own == Some(ChildExit::NotStarted) || exit.reason == ExitReason::Code(EXIT_NOT_LOADED);
    let problem = match (&exit.reason, accept_failure) {
        (ExitReason::NotStarted(_), _) => return exit,
        // Not this process's fault, nor that of its program.
        (reason, _) if reason.is_disruption() || *reason == ExitReason::Signal(SIGTERM) => {
            return exit;
        }
        (_, Some(problem)) => not_accepted(&problem),
        _ if own == Some(ChildExit::TooLate) => INIT_TOO_LATE.into(),
        // It may have run the program's `main` to its end.
        (reason @ (ExitReason::Normal | ExitReason::Code(_)), None) if !has_printed => {
            format!("it {reason} before it was ready: {IS_INIT_FIRST}")
        }
        (reason @ ExitReason::Signal(9), None) => format!(
            "it {reason} before it was ready, and not by this process: somebody has killed it or \
             ends this session, or the memory was short, as the system's log would say"
        ),
        (reason, None) => format!("it {reason} before it was ready"),
    };
    Exit::new(ExitReason::NotStarted(problem), exit.tail)
}

const INIT_TOO_LATE: &str = "`fiber::init()` must come before anything that starts a thread: make \
    it the first line of `main`. `#[tokio::main]` and `#[actix::main]` start their runtime before \
    that line: use `#[fiber::main]` in their place, which calls `init` itself";
