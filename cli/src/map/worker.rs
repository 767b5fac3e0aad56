//! Runs commands, in the workers of a map.

mod descendants;
mod output;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use fiber::error::Failure;
use fiber_core::shortage;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use self::output::Output;
use super::task::{End, Outcome, Settings};
use crate::program;

/// Time for processes to end by themselves once their command has ended, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(1);
/// The interval of looking for processes that a command has left.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

static WORKER: OnceLock<Mutex<Worker>> = OnceLock::new();

struct Worker {
    settings: Settings,
    host: String,
    output: Output,
}

/// Prepares this process, as the initializer of the pool.
pub(super) fn prepare(settings: Settings) -> io::Result<()> {
    descendants::adopt_orphans()?;
    let host = fiber_core::host_name();
    let worker = Worker { settings, host, output: Output::new()? };
    let _ = WORKER.set(Mutex::new(worker));
    Ok(())
}

/// Runs a command, and again if it fails, up to the number of retries. It is the task function: its
/// path and its argument identify a task in a journal.
pub(super) fn run(command: Vec<Vec<u8>>) -> Result<Outcome, Failure> {
    let worker = WORKER.get().expect("the initializer of the pool has prepared it");
    worker.lock().unwrap_or_else(PoisonError::into_inner).run(command)
}

impl Worker {
    fn run(&mut self, command: Vec<Vec<u8>>) -> Result<Outcome, Failure> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let started = Instant::now();
            let end = self.attempt(&command);
            let duration = started.elapsed();
            let (stdout, stderr) = self.output.take();
            let is_final = matches!(end, End::Exited(0) | End::NotExecutable { .. });
            if is_final || attempts > self.settings.retries {
                let host = self.host.clone();
                let outcome = Outcome { command, end, duration, host, attempts, stdout, stderr };
                return match outcome.end.is_success() {
                    true => Ok(outcome),
                    false => Err(outcome.to_failure()),
                };
            }
        }
    }

    fn attempt(&mut self, command: &[Vec<u8>]) -> End {
        match self.spawn_and_wait(command) {
            Ok(end) => end,
            Err(error) => {
                // It may run already, where this process could not watch it.
                not_started(&self.kill_all().err().unwrap_or(error))
            }
        }
    }

    /// Kills all processes of a command, and reads what they have printed.
    fn kill_all(&mut self) -> io::Result<()> {
        while descendants::reap()? {
            descendants::signal_all(Signal::KILL)?;
            std::thread::sleep(POLL_INTERVAL);
        }
        self.output.read_available()
    }

    fn spawn_and_wait(&mut self, words: &[Vec<u8>]) -> io::Result<End> {
        let (name, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let name = OsStr::from_bytes(name);
        let path = match &self.settings.program {
            Some(path) => OsStr::from_bytes(path).into(),
            None => match program::find(name) {
                Ok(path) => path,
                Err(error) => {
                    let (exit_code, problem) = (error.code, error.problem);
                    return Ok(End::NotExecutable { exit_code, problem });
                }
            },
        };
        let mut command = Command::new(&path);
        let (stdout, stderr) = self.output.for_child()?;
        // A worker's own standard input is /dev/null. Nothing is set up between fork and exec, so
        // the standard library uses posix_spawn, whose cost does not grow with this process.
        command
            .arg0(name)
            .args(arguments.iter().map(|argument| OsStr::from_bytes(argument)))
            .stdin(Stdio::inherit())
            .stdout(stdout)
            .stderr(stderr);
        let spawned = command.spawn();
        // Closes this process's copies of what the child prints to.
        drop(command);
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => return explain(error, &path),
        };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let process = pidfd_open(pid.ok_or(Errno::SRCH)?, PidfdFlags::empty())?;

        let limit = self.settings.max_output;
        let mut ending = Ending::new(self.settings.timeout);
        let mut early = None;
        while !self.output.read_until_end_of(&process, ending.next())? {
            let end = match (self.output.len() > limit, ending.is_due(), self.settings.timeout) {
                (true, ..) => End::PrintedTooMuch(limit),
                (false, true, Some(timeout)) => End::TimedOut(timeout),
                _ => continue,
            };
            if ending.is_due() || early.is_none() {
                ending.escalate()?;
            }
            early.get_or_insert(end);
            if self.output.len() > limit {
                self.output.discard_from_now();
            }
        }
        let status = child.wait()?;
        self.end_the_rest(ending)?;
        if early.is_none() && self.output.len() > limit {
            early = Some(End::PrintedTooMuch(limit));
        }
        self.output.truncate(limit);
        Ok(early.unwrap_or_else(|| end_of(status)))
    }

    /// Waits until no process of the command is left. Processes that it has left in the background
    /// may end by themselves for a while, as those that still write its output do.
    fn end_the_rest(&mut self, mut ending: Ending) -> io::Result<()> {
        if !ending.has_begun() {
            ending = Ending::new(Some(GRACE));
        }
        loop {
            let is_left = descendants::reap()?;
            self.output.read_available()?;
            if !is_left {
                return Ok(());
            }
            if ending.is_due() {
                ending.escalate()?;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// The end of a command's processes: SIGTERM at the deadline, and SIGKILL when that has not helped.
struct Ending {
    deadline: Option<Instant>,
    signal: Signal,
}

impl Ending {
    fn new(limit: Option<Duration>) -> Ending {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        Ending { deadline, signal: Signal::TERM }
    }

    fn has_begun(&self) -> bool {
        self.signal == Signal::KILL
    }

    fn next(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    fn is_due(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    fn escalate(&mut self) -> io::Result<()> {
        descendants::signal_all(self.signal)?;
        // Again and again: a process may have been started in between.
        self.deadline = Some(match self.signal {
            Signal::KILL => Instant::now() + POLL_INTERVAL,
            _ => Instant::now() + GRACE,
        });
        self.signal = Signal::KILL;
        Ok(())
    }
}

fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(code),
        (None, Some(signal)) => End::Signaled(signal),
        (None, None) => End::Exited(-1),
    }
}

fn not_started(error: &io::Error) -> End {
    End::NotStarted(format!("it can't be started: {}", shortage::explain(error)))
}

/// Returns the end of a command that could not be started, if the reason has words of its own.
fn explain(error: io::Error, path: &std::path::Path) -> io::Result<End> {
    let end = |exit_code, problem| Ok(End::NotExecutable { exit_code, problem });
    let path = path.display();
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => end(
            program::NOT_FOUND,
            format!("there is no program `{path}`, or its interpreter or loader is missing"),
        ),
        Some(Errno::NOEXEC) => end(
            program::NOT_EXECUTABLE,
            format!(
                "`{path}` can't be executed on this machine: a script needs a first line such as \
                 #!/bin/sh, and a program must be built for this architecture"
            ),
        ),
        // Another item may be shorter.
        Some(Errno::TOOBIG) => Ok(End::NotStarted(format!(
            "the arguments and variables of `{path}` are longer than this system allows (`getconf \
             ARG_MAX`, and 128 KiB for each): give it fewer of them, or a file"
        ))),
        Some(Errno::ACCESS | Errno::ISDIR | Errno::NOTDIR | Errno::LOOP) => {
            end(program::NOT_EXECUTABLE, format!("`{path}` can't be executed: {error}"))
        }
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_can_not_be_started_names_the_limit_that_is_reached() {
        for (errno, remedy) in
            [(Errno::AGAIN, "ulimit -u"), (Errno::MFILE, "ulimit -n"), (Errno::NOMEM, "ulimit -v")]
        {
            let end = not_started(&errno.into()).to_string();
            assert!(end.contains("can't be started") && end.contains(remedy), "{end}");
        }
    }
}
