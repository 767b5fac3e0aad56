//! `fiber run --restarts` on this host: starts a program again when it was lost.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use fiber_core::{ExitReason, Signals, variables};
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;

use crate::killed_by;
use crate::terminal::printable;

/// The exit code of a program that ended on request and has more to do: EX_TEMPFAIL.
pub(crate) const TO_BE_CONTINUED: i32 = 75;
/// The pause before a restart, at first and at most. It doubles with each restart, as Docker's
/// does.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));
/// After this time a program counts as one that works, and the pause is short again.
const WORKS: Duration = Duration::from_secs(10);

/// Runs a program, and starts it again up to `limit` times if a signal killed it or its exit code
/// is 75. Passes signals on to it; it is not started again after them.
///
/// # Errors
/// The program can't be executed.
pub(crate) async fn run(command: Command, name: &str, limit: u32) -> io::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let mut command = tokio::process::Command::from(command);
    let mut pause = BACKOFF.0;
    for restarts in 0.. {
        let started = Instant::now();
        let mut program = command.env(variables::RESTARTS, restarts.to_string()).spawn()?;
        let pid = program.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        let mut asked = false;
        let status = loop {
            tokio::select! {
                status = program.wait() => break status?,
                signal = signals.next() => {
                    asked = true;
                    pass_on(signal, pid);
                }
            }
        };
        let code = code(status);
        let Some(why) = loss(status).filter(|_| !asked && restarts < limit) else {
            return Ok(ExitCode::from(code));
        };
        if started.elapsed() > WORKS {
            pause = BACKOFF.0;
        }
        let again = format!("{name} {why}: starting it again ({} of {limit})", restarts + 1);
        tell!("{}", printable(again));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            signal = signals.next() => return Ok(ExitCode::from(killed_by(signal))),
        }
        pause = (2 * pause).min(BACKOFF.1);
    }
    unreachable!("the last restart returns")
}

/// Returns why a program was lost, unless it has ended by itself or by Ctrl-C. Ctrl-C may end the
/// program before this command has noticed it.
fn loss(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(TO_BE_CONTINUED), _) => Some("is to be continued".into()),
        (None, Some(signal)) if Some(Signal::INT) == Signal::from_named_raw(signal) => None,
        (None, Some(signal)) => Some(ExitReason::Signal(signal).to_string()),
        _ => None,
    }
}

fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, signal) => killed_by(signal.unwrap_or(0)),
    }
}

/// Sends a signal to the program, unless it was the terminal's Ctrl-C: a terminal sends that to the
/// program as well.
fn pass_on(signal: i32, program: Option<Pid>) {
    let Some(named) = Signal::from_named_raw(signal) else { return };
    let in_foreground = tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp());
    if named == Signal::INT && in_foreground {
        return;
    }
    if let Some(program) = program {
        // It may have ended meanwhile.
        let _ = kill_process(program, named);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_signal_and_code_75_are_losses() {
        let ended = |raw| loss(ExitStatus::from_raw(raw)).is_some();
        assert!(ended(75 << 8) && ended(9) && ended(11) && ended(15));
        assert!(!ended(0) && !ended(1 << 8) && !ended(101 << 8) && !ended(2));
    }
}
