//! Why actors and processes end.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rounded::rounded;
use crate::stacks::ThreadStack;

/// Why an actor or a process ended.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ExitReason {
    /// It finished its work.
    Normal,
    /// It was asked to stop.
    Shutdown,
    /// The last handle of the managed actor was dropped, so it was stopped.
    Dropped,
    /// The process exited with a code other than 0.
    Code(i32),
    /// A signal killed the process.
    Signal(i32),
    /// The OOM killer killed the process.
    OutOfMemory,
    /// The cluster evicted it: its machine was drained or ran short of a resource. Holds the
    /// cluster's message.
    Evicted(String),
    /// The cluster preempted it for something of higher priority. Holds the cluster's message.
    Preempted(String),
    /// Somebody cancelled its job, and fiber did not. Holds the cluster's message.
    Cancelled(String),
    /// SIGTERM asked the worker to end, and fiber had not sent it: the machine of the worker, its
    /// cluster or a user did. The worker finished its tasks, or its grace period was over.
    Terminated,
    /// It panicked. Holds the panic's message.
    Panicked(String),
    /// Its function returned an error. Holds the error's message.
    Failed(String),
    /// The process sent no heartbeat for this long.
    HeartbeatLost(Duration),
    /// The process was alive when its link to this one broke. Holds the link's error.
    LinkLost(String),
    /// The host in which it ran has ended.
    HostEnded {
        /// The host's name.
        host: String,
        /// Why the host ended.
        reason: Box<ExitReason>,
    },
    /// A task ran past its time limit, so its process was killed.
    TaskTimedOut(Duration),
    /// A task was cancelled while it ran, so its process was killed.
    TaskCancelled,
    /// It could not be started. Holds the problem.
    NotStarted(String),
    /// A supervisor gave up, because its children failed too often.
    IntensityReached {
        /// How many restarts were allowed.
        restarts: u32,
        /// Within which time.
        period: Duration,
        /// The child whose failure was one too many.
        child: String,
        /// Why that child ended.
        last: Box<ExitReason>,
    },
}

/// A derived one is compiled again in each crate that uses it.
impl Clone for ExitReason {
    fn clone(&self) -> ExitReason {
        use ExitReason::*;
        match self {
            Normal => Normal,
            Shutdown => Shutdown,
            Dropped => Dropped,
            Code(code) => Code(*code),
            Signal(signal) => Signal(*signal),
            OutOfMemory => OutOfMemory,
            Evicted(message) => Evicted(message.clone()),
            Preempted(message) => Preempted(message.clone()),
            Cancelled(message) => Cancelled(message.clone()),
            Terminated => Terminated,
            Panicked(message) => Panicked(message.clone()),
            Failed(message) => Failed(message.clone()),
            HeartbeatLost(limit) => HeartbeatLost(*limit),
            LinkLost(problem) => LinkLost(problem.clone()),
            HostEnded { host, reason } => HostEnded { host: host.clone(), reason: reason.clone() },
            TaskTimedOut(limit) => TaskTimedOut(*limit),
            TaskCancelled => TaskCancelled,
            NotStarted(problem) => NotStarted(problem.clone()),
            IntensityReached { restarts, period, child, last } => IntensityReached {
                restarts: *restarts,
                period: *period,
                child: child.clone(),
                last: last.clone(),
            },
        }
    }
}

impl ExitReason {
    /// Returns whether this is an orderly end. A transient child is restarted after any other.
    pub fn is_normal(&self) -> bool {
        matches!(self, ExitReason::Normal | ExitReason::Shutdown | ExitReason::Dropped)
    }

    /// Returns whether something outside of the program ended the process, for reasons that are not
    /// the process's own.
    #[doc(hidden)]
    pub fn is_disruption(&self) -> bool {
        match self {
            ExitReason::Evicted(_)
            | ExitReason::Preempted(_)
            | ExitReason::Cancelled(_)
            | ExitReason::Terminated => true,
            // Its machine or the network failed, which is not the work of a process.
            ExitReason::HostEnded { reason, .. } => {
                matches!(**reason, ExitReason::LinkLost(_) | ExitReason::HeartbeatLost(_))
                    || reason.is_disruption()
            }
            _ => false,
        }
    }

    /// Describes why a start failed, for a message that already says that it failed.
    #[doc(hidden)]
    pub fn start_problem(&self) -> String {
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
            ExitReason::Shutdown => f.write_str("was asked to stop"),
            ExitReason::Dropped => f.write_str("was stopped, because its last handle was dropped"),
            ExitReason::Code(code) => write!(f, "exited with code {code}"),
            ExitReason::Signal(signal) => {
                write!(f, "was killed by signal {signal}{}", SignalName(*signal))
            }
            ExitReason::OutOfMemory => f.write_str("was killed by the OOM killer: out of memory"),
            ExitReason::Evicted(message) => write!(f, "was evicted from its node: {message}"),
            ExitReason::Preempted(message) => write!(f, "was preempted: {message}"),
            ExitReason::Cancelled(message) => write!(f, "was cancelled: {message}"),
            ExitReason::Terminated => f.write_str("was asked to end by SIGTERM"),
            ExitReason::Panicked(message) => write!(f, "panicked: {message}"),
            ExitReason::Failed(error) => write!(f, "failed: {error}"),
            ExitReason::HeartbeatLost(time) => {
                write!(f, "sent no heartbeat for {}", rounded(*time))
            }
            ExitReason::LinkLost(problem) => write!(f, "lost its link: {problem}"),
            ExitReason::HostEnded { host, reason } => {
                write!(f, "lost its host {host}, which {reason}")
            }
            ExitReason::TaskTimedOut(limit) => {
                write!(f, "was killed because a task ran longer than {limit:?}")
            }
            ExitReason::TaskCancelled => f.write_str("was killed because its task was cancelled"),
            ExitReason::NotStarted(problem) => write!(f, "could not be started: {problem}"),
            ExitReason::IntensityReached { restarts, period, child, last } => write!(
                f,
                "gave up: it needed more than {restarts} restarts in {period:?}; the last child to \
                 fail was `{child}`, which {last}"
            ),
        }
    }
}

impl Error for ExitReason {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ExitReason::IntensityReached { last: reason, .. }
            | ExitReason::HostEnded { reason, .. } => Some(&**reason),
            _ => None,
        }
    }
}

/// The name of a signal in brackets, for those that end processes.
#[derive(Clone, Copy, Debug)]
pub struct SignalName(pub i32);

impl fmt::Display for SignalName {
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
            24 => "SIGXCPU: its limit of CPU time is used up, see `ulimit -t`",
            25 => "SIGXFSZ: it wrote beyond its limit of file sizes, see `ulimit -f`",
            31 => "SIGSYS",
            _ => return Ok(()),
        };
        write!(f, " ({name})")
    }
}

/// The end of a process: its reason, the last output, and where its task hung.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Exit {
    /// Why it ended.
    pub reason: ExitReason,
    /// The last lines of its output, oldest first: at most 20 lines and at most 4 KiB.
    pub tail: Vec<String>,
    /// The stack of the task that ran past its timeout, after [`ExitReason::TaskTimedOut`].
    /// `None` without the feature `stacks`, or if the worker could not tell in time.
    pub stack: Option<Arc<ThreadStack>>,
}

impl Exit {
    /// Makes the exit of a process from its reason and last output.
    pub fn new(reason: ExitReason, tail: Vec<String>) -> Exit {
        Exit { reason, tail, stack: None }
    }

    /// Returns this exit with the stack of a task that ran past its timeout.
    #[doc(hidden)]
    pub fn with_stack(self, stack: Option<Arc<ThreadStack>>) -> Exit {
        Exit { stack, ..self }
    }

    /// Returns [`ExitReason::NotStarted`] with this exit's reason and last output as the problem.
    #[doc(hidden)]
    pub fn start_failure(&self) -> ExitReason {
        ExitReason::NotStarted(format!("{}{}", self.reason.start_problem(), LastLines(&self.tail)))
    }

    /// Returns the exit code, if the process exited by itself.
    pub fn code(&self) -> Option<i32> {
        match self.reason {
            ExitReason::Normal => Some(0),
            ExitReason::Code(code) => Some(code),
            _ => None,
        }
    }

    /// Returns the signal that killed the process, if one did.
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
        write!(f, "{}{}", self.reason, LastLines(&self.tail))?;
        let Some(stack) = &self.stack else { return Ok(()) };
        f.write_str(if self.tail.is_empty() { "; " } else { "\n" })?;
        write!(f, "the task's thread {}", stack.state)?;
        if let Some(waits_in) = &stack.waits_in {
            write!(f, " in {waits_in}")?;
        }
        match &stack.problem {
            None => f.write_str(":")?,
            Some(problem) => write!(f, " (no stack: {problem})")?,
        }
        stack.relevant_frames().iter().try_for_each(|frame| write!(f, "\n    {frame}"))
    }
}

impl Error for Exit {}

struct LastLines<'a>(&'a [String]);

impl fmt::Display for LastLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() {
            f.write_str("; its last output:")?;
        }
        self.0.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_machine_is_no_fault_of_its_processes() {
        let lost = |reason: ExitReason| ExitReason::HostEnded {
            host: "host-b".into(),
            reason: Box::new(reason),
        };
        for reason in [
            ExitReason::LinkLost("cut".into()),
            ExitReason::HeartbeatLost(Duration::from_secs(10)),
            ExitReason::Evicted("drained".into()),
            ExitReason::Cancelled("by scancel".into()),
            ExitReason::Terminated,
        ] {
            assert!(lost(reason.clone()).is_disruption(), "{reason}");
        }
        assert!(!lost(ExitReason::Signal(9)).is_disruption());
        let cancelled = ExitReason::Cancelled("STEP 2.3 ON n2 CANCELLED".into()).to_string();
        assert_eq!(cancelled, "was cancelled: STEP 2.3 ON n2 CANCELLED");
        assert_eq!(
            lost(ExitReason::Signal(9)).to_string(),
            "lost its host host-b, which was killed by signal 9 (SIGKILL)"
        );
    }
}
