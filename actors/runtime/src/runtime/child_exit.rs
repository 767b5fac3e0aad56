//! The exit codes of child processes that have a meaning for the parent.

use fiber_core::ExitReason;

/// The reason for which fiber itself ends a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildExit {
    /// The child could not begin its work.
    NotStarted,
    /// A thread or an async runtime had started before `fiber::init()`.
    TooLate,
    /// The link to the parent closed while the child worked.
    LinkLost,
    /// The parent killed it.
    Killed,
}

impl ChildExit {
    /// Returns the exit code.
    pub(super) fn code(self) -> i32 {
        match self {
            ChildExit::NotStarted => 70,
            ChildExit::TooLate => 71,
            ChildExit::LinkLost => 72,
            // As after SIGKILL.
            ChildExit::Killed => 137,
        }
    }

    /// Returns the meaning of an exit, if fiber has given it one.
    pub(super) fn of(reason: &ExitReason) -> Option<ChildExit> {
        let ExitReason::Code(code) = *reason else { return None };
        [ChildExit::NotStarted, ChildExit::TooLate, ChildExit::LinkLost]
            .into_iter()
            .find(|exit| exit.code() == code)
    }
}
