//! Events: what happens to pools, workers and tasks.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::units;
use crate::exit::{Exit, ExitReason};

/// Something that happened in a session. `Display` describes it in one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// When it happened.
    #[serde(with = "units::time")]
    pub at: SystemTime,
    /// The kind of event, with its data.
    #[serde(flatten)]
    pub kind: EventKind,
}

impl Event {
    #[doc(hidden)]
    pub fn now(kind: EventKind) -> Event {
        Event { at: SystemTime::now(), kind }
    }
}

/// A kind of event, with its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EventKind {
    /// A worker is ready for tasks.
    WorkerStarted {
        /// The pool's name.
        pool: String,
        /// The worker's name in it.
        worker: String,
        /// Where it runs: `pid 4711`.
        place: String,
    },
    /// A worker's process has ended.
    WorkerEnded {
        /// The pool's name.
        pool: String,
        /// The worker's name in it.
        worker: String,
        /// Where it ran.
        place: String,
        /// Why it ended, and its last output.
        exit: Exit,
        /// Whether somebody asked for the end: the pool, a signal SIGTERM, or the cluster, by an
        /// eviction or a preemption. Any other end is a death.
        expected: bool,
        /// The tasks against which the end counts.
        blamed: Vec<TaskName>,
        /// How many of its tasks were assigned again.
        redelivered: u64,
    },
    /// A task was given up, because too many of its workers died or it ran past its timeout.
    TaskAbandoned {
        /// The pool's name.
        pool: String,
        /// The task.
        task: TaskName,
        /// How many workers have ended while they ran it.
        workers: u32,
        /// The last worker's end.
        exit: Exit,
    },
    /// A task has run ten times as long as the tasks of its function usually do. There is one event
    /// for each task and worker.
    Straggler {
        /// The pool's name.
        pool: String,
        /// The worker's name in it.
        worker: String,
        /// The task.
        task: TaskName,
        /// For how long it has run.
        #[serde(with = "units::duration")]
        ran: Duration,
        /// The median time of its function's tasks.
        #[serde(with = "units::duration")]
        usual: Duration,
    },
    /// A supervisor restarts a child: an actor, or a process that is no worker.
    ChildRestarted {
        /// The child's name, with those of its supervisors.
        child: String,
        /// Why it ended.
        reason: ExitReason,
    },
}

impl EventKind {
    /// Puts the name of the process in which it happened in front of the name in it.
    #[doc(hidden)]
    pub fn add_process(&mut self, process: &str) {
        let name = match self {
            EventKind::WorkerStarted { pool, .. }
            | EventKind::WorkerEnded { pool, .. }
            | EventKind::TaskAbandoned { pool, .. }
            | EventKind::Straggler { pool, .. } => pool,
            EventKind::ChildRestarted { child, .. } => child,
        };
        *name = format!("{process}/{name}");
    }

    /// Returns the name of the pool that it belongs to.
    pub fn pool(&self) -> Option<&str> {
        match self {
            EventKind::WorkerStarted { pool, .. }
            | EventKind::WorkerEnded { pool, .. }
            | EventKind::TaskAbandoned { pool, .. }
            | EventKind::Straggler { pool, .. } => Some(pool),
            EventKind::ChildRestarted { .. } => None,
        }
    }
}

/// A task, as messages name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskName {
    /// The number of its call.
    pub call: u64,
    /// Its function.
    pub function: String,
    /// The index of its argument in the call.
    pub index: u64,
}

impl TaskName {
    #[doc(hidden)]
    pub fn new(call: u64, function: impl Into<String>, index: u64) -> TaskName {
        TaskName { call, function: function.into(), index }
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {} (`{}`)", self.index, self.function)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            EventKind::WorkerStarted { pool, worker, place } => {
                write!(f, "{pool}/{worker} is ready ({place})")
            }
            EventKind::WorkerEnded { pool, worker, place, exit, blamed, redelivered, .. } => {
                write!(f, "{pool}/{worker} ({place}) {}", FirstLine(&exit.reason))?;
                match blamed.as_slice() {
                    [] => {}
                    [task] => write!(f, " while it ran {task}")?,
                    [task, others @ ..] => {
                        write!(f, " while it ran {task} and {} others", others.len())?
                    }
                }
                match redelivered {
                    0 => Ok(()),
                    1 => f.write_str("; 1 task runs again"),
                    tasks => write!(f, "; {tasks} tasks run again"),
                }
            }
            EventKind::TaskAbandoned { pool, task, workers, exit } => {
                let plural = if *workers == 1 { "" } else { "s" };
                let reason = FirstLine(&exit.reason);
                write!(f, "{pool}: {task} was abandoned after {workers} worker{plural}: {reason}")
            }
            EventKind::Straggler { pool, worker, task, ran, usual } => {
                write!(f, "{pool}/{worker}: {task} has run for {ran:.1?}, usually {usual:.1?}")
            }
            EventKind::ChildRestarted { child, reason } => {
                write!(f, "{child} {}; it is restarted", FirstLine(reason))
            }
        }
    }
}

/// The first line of a reason, whose message may have many.
struct FirstLine<'a>(&'a ExitReason);

impl fmt::Display for FirstLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_string().lines().next().unwrap_or_default())
    }
}
