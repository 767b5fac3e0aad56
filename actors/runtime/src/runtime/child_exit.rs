//! The exit codes of child processes that have a meaning for the parent.

use fiber_core::ExitReason;

/// The reason for which fiber itself ends a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum ChildExit {
    /// The child could not begin its work.
    NotStarted = 70,
    /// A thread or an async runtime had started before `fiber::init()`.
    TooLate = 71,
    /// The link to the parent closed while the child worked.
    LinkLost = 72,
    /// The parent killed it. The code is that after SIGKILL.
    Killed = 137,
}

impl ChildExit {
    /// Returns the exit code.
    pub(super) fn code(self) -> i32 {
        self as i32
    }

    /// Returns the meaning of an exit, if fiber has given it one.
    pub(super) fn of(reason: &ExitReason) -> Option<ChildExit> {
        let ExitReason::Code(code) = *reason else { return None };
        [ChildExit::NotStarted, ChildExit::TooLate, ChildExit::LinkLost]
            .into_iter()
            .find(|exit| exit.code() == code)
    }
}
