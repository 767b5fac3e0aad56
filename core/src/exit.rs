//! Why an actor or a process ended.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What ended an actor or a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ExitReason {
    /// It had done its work.
    Normal,
    /// It was told to end.
    Shutdown,
    /// The process exited with a code other than 0.
    Code(i32),
    /// A signal ended the process.
    Signal(i32),
    /// The kernel ended the process for want of memory.
    OutOfMemory,
    /// Its node was to be emptied, or ran short of something: the cluster's words.
    Evicted(String),
    /// It had to make room for something more important: the cluster's words.
    Preempted(String),
    /// It panicked.
    Panicked(String),
    /// Its function returned an error.
    Failed(String),
    /// Nothing was heard of the process for this long.
    HeartbeatLost(Duration),
    /// The process was alive when its link to this one broke.
    LinkLost(String),
    /// A task ran past its time limit, so its process was ended.
    TaskTimedOut(Duration),
    /// A task was cancelled while it ran, so its process was ended.
    TaskCancelled,
    /// It could not be started.
    NotStarted(String),
    /// A supervisor gave up: its children failed too often.
    IntensityReached {
        /// Restarts that were allowed.
        restarts: u32,
        /// In which time.
        period: Duration,
        /// The child whose failure was one too many.
        child: String,
        /// Why that child ended.
        last: Box<ExitReason>,
    },
}

impl ExitReason {
    /// Whether it ended as it should: a transient child is restarted only otherwise.
    pub fn is_normal(&self) -> bool {
        matches!(self, ExitReason::Normal | ExitReason::Shutdown)
    }

    /// What stands in the way of a start that failed for this reason, for errors that say that it
    /// failed.
    pub fn obstacle(&self) -> String {
        match self {
            ExitReason::NotStarted(problem) => problem.clone(),
            other => format!("it {other}"),
        }
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitReason::Normal => f.write_str("ended normally"),
            ExitReason::Shutdown => f.write_str("was told to end"),
            ExitReason::Code(code) => write!(f, "exited with code {code}"),
            ExitReason::Signal(signal) => {
                write!(f, "was killed by signal {signal}{}", Signal(*signal))
            }
            ExitReason::OutOfMemory => f.write_str("was killed by the kernel: out of memory"),
            ExitReason::Evicted(why) => write!(f, "was evicted from its node: {why}"),
            ExitReason::Preempted(why) => {
                write!(f, "had to make room for something more important: {why}")
            }
            ExitReason::Panicked(message) => write!(f, "panicked: {message}"),
            ExitReason::Failed(error) => write!(f, "failed: {error}"),
            ExitReason::HeartbeatLost(time) => write!(f, "gave no sign of life for {time:?}"),
            ExitReason::LinkLost(problem) => write!(f, "lost its link: {problem}"),
            ExitReason::TaskTimedOut(limit) => {
                write!(f, "was killed because a task ran longer than {limit:?}")
            }
            ExitReason::TaskCancelled => f.write_str("was killed because its task was cancelled"),
            ExitReason::NotStarted(problem) => write!(f, "could not be started: {problem}"),
            ExitReason::IntensityReached { restarts, period, child, last } => write!(
                f,
                "gave up: more than {restarts} restarts in {period:?} were needed; the last to fail was `{child}`, \
                 which {last}"
            ),
        }
    }
}

struct Signal(i32);

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            1 => "SIGHUP",
            2 => "SIGINT",
            3 => "SIGQUIT",
            4 => "SIGILL",
            6 => "SIGABRT",
            7 => "SIGBUS",
            8 => "SIGFPE",
            9 => "SIGKILL",
            11 => "SIGSEGV",
            13 => "SIGPIPE",
            15 => "SIGTERM",
            24 => "SIGXCPU",
            25 => "SIGXFSZ",
            31 => "SIGSYS",
            _ => return Ok(()),
        };
        write!(f, " ({name})")
    }
}

/// The end of a process: why, and the last lines that it printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Exit {
    /// Why it ended.
    pub reason: ExitReason,
    /// The last lines that it printed, oldest first: at most 20, and at most 4 KiB.
    pub tail: Vec<String>,
}

impl Exit {
    /// An end of which nothing more is known.
    pub fn new(reason: ExitReason, tail: Vec<String>) -> Exit {
        Exit { reason, tail }
    }

    /// The reason of a start that failed in this way, with what was printed last.
    pub fn not_started(&self) -> ExitReason {
        ExitReason::NotStarted(format!("{}{}", self.reason.obstacle(), LastLines(&self.tail)))
    }

    /// The exit code, if the process exited by itself.
    pub fn code(&self) -> Option<i32> {
        match self.reason {
            ExitReason::Normal => Some(0),
            ExitReason::Code(code) => Some(code),
            _ => None,
        }
    }

    /// The signal that ended the process.
    pub fn signal(&self) -> Option<i32> {
        match self.reason {
            ExitReason::Signal(signal) => Some(signal),
            ExitReason::OutOfMemory => Some(9),
            _ => None,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.reason, LastLines(&self.tail))
    }
}

struct LastLines<'a>(&'a [String]);

impl fmt::Display for LastLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() {
            f.write_str("; it last printed:")?;
        }
        self.0.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}
