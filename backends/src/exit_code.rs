//! Exit codes in which a signal is a number above 128.

use fiber_core::ExitReason;

/// Returns why a program ended, from the exit code by which shells, init processes and containers
/// report that: 128 plus the number of the signal that killed it, or its own.
pub fn reason_of_code(code: i32) -> ExitReason {
    match code {
        0 => ExitReason::Normal,
        129..=192 => ExitReason::Signal(code - 128),
        code => ExitReason::Code(code),
    }
}
