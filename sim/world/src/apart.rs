//! Worlds in processes of their own, which this one forks: each begins with the same memory, so its
//! history does not depend on the worlds before it, and its end leaves nothing behind.

// It forks.
#![allow(unsafe_code)]

use std::fmt;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process, pidfd_open,
    set_parent_process_death_signal, waitpid,
};

/// How a forked process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// With an exit code.
    Exited(i32),
    /// By a signal.
    Signaled(i32),
    /// It was killed after so much time on the processors, or so long without any.
    TimedOut(Duration),
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Apart::Exited(code) => write!(f, "the program has ended its process, with code {code}"),
            Apart::Signaled(signal) => write!(f, "signal {signal} has ended the process"),
            Apart::TimedOut(limit) => write!(
                f,
                "it takes longer than {limit:?}: some thread computes without end, or waits by a \
                 call that worlds don't know"
            ),
        }
    }
}

/// Runs `work` in a fork of this process, of which only this thread goes on. Allocates nothing.
///
/// # Errors
/// The system's error if it has no room for a process.
pub fn run_apart(limit: Duration, work: impl FnOnce()) -> io::Result<Apart> {
    // SAFETY: the other threads of this process hold no locks that the fork needs: they wait for
    // this one.
    let pid = match unsafe { libc::fork() } {
        ..0 => return Err(io::Error::last_os_error()),
        0 => {
            end_with_parent();
            fiber_core::forks::allow();
            let result = catch_unwind(AssertUnwindSafe(work));
            end(if result.is_ok() { 0 } else { 101 });
        }
        pid => Pid::from_raw(pid).expect("it is positive"),
    };
    let fd = pidfd_open(pid, PidfdFlags::empty())?;
    let time = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
    let (mut is_late, mut used) = (false, Duration::ZERO);
    while !is_late && poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&time))? == 0 {
        // Others may have had the processors meanwhile.
        let now = processor_time(pid)?;
        is_late = now >= limit || now - used < limit / 100;
        used = now;
    }
    if is_late {
        kill_process(pid, Signal::KILL)?;
    }
    let status = waitpid(Some(pid), WaitOptions::empty())?.map(|(_, status)| status);
    Ok(match (is_late, status) {
        (true, _) => Apart::TimedOut(limit),
        (false, status) => status.map_or(Apart::Exited(0), end_of),
    })
}

/// Returns for how long the threads of a process have run.
fn processor_time(pid: Pid) -> io::Result<Duration> {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: both places are valid.
    let error = unsafe { libc::clock_getcpuclockid(pid.as_raw_nonzero().get(), &mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: the place is valid.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

fn end_of(status: WaitStatus) -> Apart {
    match status.terminating_signal() {
        Some(signal) => Apart::Signaled(signal),
        None => Apart::Exited(status.exit_status().unwrap_or(0)),
    }
}

/// Lets this process end with the one that has started it.
pub(crate) fn end_with_parent() {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

/// Ends this process, a fork, at once: no other thread has to end, and no hook runs.
pub(crate) fn end(code: i32) -> ! {
    let _ = io::stdout().flush();
    // SAFETY: the call has no conditions.
    unsafe { libc::_exit(code) }
}
