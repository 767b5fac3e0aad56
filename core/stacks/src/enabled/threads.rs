//! The threads of a process, as the kernel describes them in `/proc/PID/task`.

use std::fmt;
use std::fs::{File, read_dir, read_link};
use std::io::{self, Read};
use std::time::Duration;

use fiber_core::read_lossy;

use super::{ThreadStack, ThreadState};

/// Whose threads are meant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Process {
    This,
    /// That with this id.
    Other(u32),
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Process::This => f.write_str("self"),
            Process::Other(pid) => pid.fmt(f),
        }
    }
}

/// A set of signals: signal n is bit n - 1.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SignalSet(u64);

impl SignalSet {
    pub(super) fn contains(self, signal: i32) -> bool {
        self.0 >> (signal - 1) & 1 == 1
    }
}

/// The part of a thread's state that decides whether to ask it.
#[derive(Debug)]
pub(super) struct Status {
    pub(super) name: String,
    pub(super) state: ThreadState,
    /// Signals that were sent to the thread and that it has not handled.
    pub(super) pending: SignalSet,
    pub(super) blocked: SignalSet,
    pub(super) ignored: SignalSet,
    pub(super) caught: SignalSet,
}

/// Returns the ids of all threads.
///
/// # Errors
/// An error of the system.
pub(super) fn all(process: Process) -> io::Result<Vec<u32>> {
    let mut tids = Vec::new();
    for entry in read_dir(format!("/proc/{process}/task"))? {
        tids.extend(entry?.file_name().to_str().and_then(|tid| tid.parse::<u32>().ok()));
    }
    tids.sort_unstable();
    Ok(tids)
}

/// Reads a thread's status. Returns `None` if it has ended.
pub(super) fn status(process: Process, tid: u32) -> Option<Status> {
    let text = read_lossy(format!("/proc/{process}/task/{tid}/status")).ok()?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.strip_prefix(':')?.trim())
    };
    let signals = |name| {
        SignalSet(field(name).and_then(|set| u64::from_str_radix(set, 16).ok()).unwrap_or(0))
    };
    let state = match field("State").and_then(|state| state.chars().next()) {
        Some('R') => ThreadState::Running,
        Some('S' | 'I') => ThreadState::Sleeping,
        Some('D') => ThreadState::Uninterruptible,
        Some('T' | 't') => ThreadState::Stopped,
        Some('Z' | 'X' | 'x') => ThreadState::Ending,
        _ => ThreadState::Unknown,
    };
    Some(Status {
        name: field("Name").unwrap_or_default().into(),
        state,
        pending: signals("SigPnd"),
        blocked: signals("SigBlk"),
        ignored: signals("SigIgn"),
        caught: signals("SigCgt"),
    })
}

/// Returns whether a thread runs, or waits for a core. Takes a third less time than [`status`].
pub(super) fn runs(tid: u32) -> bool {
    let Ok(mut file) = File::open(format!("/proc/self/task/{tid}/stat")) else { return false };
    let mut start = [0; 64];
    let length = file.read(&mut start).unwrap_or(0);
    // `TID (NAME) STATE …`, where the name has at most 15 bytes, which may be brackets.
    let state = start[..length].iter().rposition(|byte| *byte == b')').map(|end| end + 2);
    state.and_then(|state| start.get(state)) == Some(&b'R')
}

/// Returns what the kernel says about a thread, without its frames.
pub(super) fn describe(process: Process, tid: u32, status: &Status) -> ThreadStack {
    let waits = status.state != ThreadState::Running;
    let mut stack = ThreadStack::new(tid, status.name.clone(), status.state);
    stack.waits_in = if waits { waits_in(process, tid) } else { None };
    stack.cpu = cpu(process, tid).unwrap_or_default();
    stack
}

/// Returns how long a thread has run. `None` if it has ended.
pub(super) fn cpu(process: Process, tid: u32) -> Option<Duration> {
    let text = read_lossy(format!("/proc/{process}/task/{tid}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Returns the system call in which a thread waits, else the function of the kernel. The kernel may
/// refuse to tell either.
fn waits_in(process: Process, tid: u32) -> Option<String> {
    let kernel_function = || {
        let function = read_lossy(format!("/proc/{process}/task/{tid}/wchan")).ok()?;
        (!matches!(&*function, "" | "0")).then_some(function)
    };
    let call = read_lossy(format!("/proc/{process}/task/{tid}/syscall")).ok();
    call.as_deref().and_then(|line| system_call(process, line)).or_else(kernel_function)
}

/// Returns the name of the system call in a line of `/proc/PID/task/TID/syscall`, and its file.
fn system_call(process: Process, line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?;
    let (_, name, has_file) = CALLS.iter().find(|(known, ..)| *known == number)?;
    let descriptor = || u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let file = |descriptor| read_link(format!("/proc/{process}/fd/{descriptor}")).ok();
    Some(match has_file.then(descriptor).flatten().and_then(file) {
        Some(file) => format!("{name} of {}", file.display()),
        None => (*name).into(),
    })
}

/// The system calls in which threads usually wait, and whether the first argument is a descriptor.
const CALLS: &[(libc::c_long, &str, bool)] = &[
    (libc::SYS_accept, "accept", true),
    (libc::SYS_accept4, "accept4", true),
    (libc::SYS_clock_nanosleep, "clock_nanosleep", false),
    (libc::SYS_connect, "connect", true),
    (libc::SYS_epoll_pwait, "epoll_wait", false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, "epoll_wait", false),
    (libc::SYS_fcntl, "fcntl", true),
    (libc::SYS_fdatasync, "fdatasync", true),
    (libc::SYS_flock, "flock", true),
    (libc::SYS_fsync, "fsync", true),
    (libc::SYS_futex, "futex", false),
    (libc::SYS_io_uring_enter, "io_uring_enter", false),
    (libc::SYS_nanosleep, "nanosleep", false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_pause, "pause", false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, "poll", false),
    (libc::SYS_ppoll, "poll", false),
    (libc::SYS_pread64, "pread", true),
    (libc::SYS_pselect6, "select", false),
    (libc::SYS_pwrite64, "pwrite", true),
    (libc::SYS_read, "read", true),
    (libc::SYS_readv, "readv", true),
    (libc::SYS_recvfrom, "recvfrom", true),
    (libc::SYS_recvmsg, "recvmsg", true),
    (libc::SYS_rt_sigsuspend, "sigsuspend", false),
    (libc::SYS_rt_sigtimedwait, "sigtimedwait", false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, "select", false),
    (libc::SYS_sendmsg, "sendmsg", true),
    (libc::SYS_sendto, "sendto", true),
    (libc::SYS_wait4, "wait4", false),
    (libc::SYS_waitid, "waitid", false),
    (libc::SYS_write, "write", true),
    (libc::SYS_writev, "writev", true),
];
