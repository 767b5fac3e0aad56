//! The statistics of a process.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{JobPlace, units};
use crate::id::ProcessId;

/// A process of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessStats {
    /// Its id in the session.
    pub id: ProcessId,
    /// The process that started it; `None` for the head.
    pub parent: Option<ProcessId>,
    /// Its name: that of the program for the head, else the names of its supervisors and its own:
    /// `squares/worker-1`.
    pub name: String,
    /// Its role in the session.
    pub role: ProcessRole,
    /// Its state.
    pub state: ProcessState,
    /// Where it runs, in words: `pid 4711`, `container fiber-…`.
    pub place: String,
    /// Where it runs, as data. `None` in the statistics of an older version of fiber.
    #[serde(default)]
    pub job: Option<JobPlace>,
    /// The host name of its machine or container, once it has connected.
    pub host: String,
    /// Its pid on that host, once it has connected.
    pub pid: Option<u32>,
    /// When it was started.
    #[serde(with = "units::time")]
    pub since: SystemTime,
    /// How many processes of this name have ended before it.
    pub restarts: u64,
    /// The statistics of its last heartbeat.
    pub usage: Option<ProcessUsage>,
    /// The last lines of its output, oldest first.
    pub tail: Vec<String>,
}

impl ProcessStats {
    #[doc(hidden)]
    pub fn new(id: ProcessId, name: String, role: ProcessRole, since: SystemTime) -> ProcessStats {
        ProcessStats {
            id,
            parent: None,
            name,
            role,
            state: ProcessState::Running,
            place: String::new(),
            job: None,
            host: String::new(),
            pid: None,
            since,
            restarts: 0,
            usage: None,
            tail: Vec::new(),
        }
    }

    #[doc(hidden)]
    pub fn set_job(&mut self, job: JobPlace) {
        self.place = job.to_string();
        self.job = Some(job);
    }
}

/// The role of a process in the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProcessRole {
    /// It is the process that a user started.
    Head,
    /// It is a worker of a pool.
    Worker,
    /// It runs one function: a `Process`.
    Function,
    /// It runs a managed actor.
    Actor,
    /// It is a node of a ring.
    RingNode,
    /// It starts and watches other processes in its job.
    Host,
}

impl fmt::Display for ProcessRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProcessRole::Head => "head",
            ProcessRole::Worker => "worker",
            ProcessRole::Function => "function",
            ProcessRole::Actor => "actor",
            ProcessRole::RingNode => "ring node",
            ProcessRole::Host => "host",
        })
    }
}

/// The state of a process that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProcessState {
    /// It starts.
    Starting,
    /// It can't start yet, for instance because no machine has room for it. Holds the engine's
    /// message.
    Waiting(String),
    /// It works.
    Running,
}

impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessState::Starting => f.write_str("starting"),
            ProcessState::Waiting(reason) => write!(f, "waiting: {reason}"),
            ProcessState::Running => f.write_str("running"),
        }
    }
}

/// The statistics of a process that only the process itself knows. They come with its heartbeats.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessUsage {
    /// When the process took them.
    #[serde(with = "units::time")]
    pub taken_at: SystemTime,
    /// CPU time that it has used, in user and system mode.
    #[serde(with = "units::duration")]
    pub cpu: Duration,
    /// Resident memory (RSS) in bytes, with all pages that it shares with others.
    pub memory: u64,
    /// Proportional set size (PSS) in bytes: resident memory, of which a page that several processes
    /// share counts in parts. So a sum over processes has each page once. It is up to a minute old if
    /// the process is large. `None` if the system does not tell, and of an older version of fiber.
    #[serde(default)]
    pub pss: Option<u64>,
    /// Its threads.
    pub threads: u32,
    /// Bytes that its links have sent and received. Values in shared memory don't count.
    pub sent: u64,
    /// See `sent`.
    pub received: u64,
    /// Bytes of encoded values that it stores.
    pub stored: u64,
    /// Bytes of its values in shared memory.
    pub shared: u64,
    /// Bytes of elements of its queues and of outputs of tasks that are in a file, because there was
    /// no room.
    #[serde(default)]
    pub spilled: u64,
    /// Bytes of outputs of its tasks that are on other machines alone.
    #[serde(default)]
    pub elsewhere: u64,
    /// Outputs of tasks whose values it has, wherever their bytes are.
    #[serde(default)]
    pub outputs: u64,
    /// The limit of `stored` and `shared` together: the option `value_memory`; 0 if unknown.
    #[serde(default)]
    pub value_limit: u64,
}

impl ProcessUsage {
    #[doc(hidden)]
    pub fn new(taken_at: SystemTime) -> ProcessUsage {
        ProcessUsage {
            taken_at,
            cpu: Duration::ZERO,
            memory: 0,
            pss: None,
            threads: 0,
            sent: 0,
            received: 0,
            stored: 0,
            shared: 0,
            spilled: 0,
            elsewhere: 0,
            outputs: 0,
            value_limit: 0,
        }
    }

    /// Returns whether its values take as much memory as they may: calls wait for room, and
    /// elements of queues go to a file.
    pub fn has_full_values(&self) -> bool {
        self.value_limit > 0 && self.stored.saturating_add(self.shared) >= self.value_limit
    }
}
