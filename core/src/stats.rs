//! Statistics of a session, as the inspector, the command `fiber` and metrics show them.
//!
//! A head reports its whole session as [`SessionStats`]. The lists in it are flat: each item names
//! the process that it belongs to. All types serialize; in JSON, times are seconds since 1970 and
//! durations are seconds.

mod distribution;
mod entities;
mod event;
mod place;
mod pool;
mod process;
mod slice;
mod tree;
pub(crate) mod units;

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

pub use self::distribution::Distribution;
pub use self::entities::{EntitiesStats, EntityProcessStats};
pub use self::event::{Event, EventKind, TaskName};
pub use self::place::JobPlace;
pub use self::pool::{
    CallStats, FunctionStats, PoolPhase, PoolStats, RunningTask, TaskCounts, WorkerStats,
};
pub use self::process::{ProcessRole, ProcessState, ProcessStats, ProcessUsage};
pub use self::slice::{Slice, SliceKind};
pub use self::tree::{Branch, ChildKind, ChildState, Strategy, Tree};
use crate::id::ProcessId;

/// Statistics of a session, as its head knows them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionStats {
    /// The session's number, in hexadecimal.
    pub session: String,
    /// The file name of the program.
    pub program: String,
    /// The backend that starts the head's children.
    pub backend: String,
    /// When the head took these statistics.
    #[serde(with = "units::time")]
    pub taken_at: SystemTime,
    /// The last events, oldest first: at most 256.
    pub events: Vec<Event>,
    /// The statistics.
    #[serde(flatten)]
    pub report: Report,
}

impl SessionStats {
    #[doc(hidden)]
    pub fn new(session: u64, program: String, backend: String, report: Report) -> SessionStats {
        SessionStats {
            session: format!("{session:016x}"),
            program,
            backend,
            taken_at: SystemTime::now(),
            events: Vec::new(),
            report,
        }
    }
}

/// Statistics of a process and the processes below it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Report {
    /// The processes, each one before its children.
    pub processes: Vec<ProcessStats>,
    /// The supervisors of each process that has any.
    pub supervisors: Vec<Supervisors>,
    /// The pools.
    pub pools: Vec<PoolStats>,
    /// The queues and pipes, each in the process that owns it.
    pub queues: Vec<QueueStats>,
    /// The actors that other processes can reach.
    pub actors: Vec<ActorStats>,
    /// The rings that run.
    pub rings: Vec<RingStats>,
    /// The names of actors, the groups that have members, and the topics with names.
    pub names: Vec<NameStats>,
    /// Messages without an answer that were not delivered, by actors.
    pub dead_letters: Vec<DeadLetterStats>,
    /// The entities, each in the process that owns them.
    pub entities: Vec<EntitiesStats>,
    /// The processes that keep entities.
    pub entity_processes: Vec<EntityProcessStats>,
}

impl Report {
    /// Returns whether it lists nothing.
    #[doc(hidden)]
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
            && self.supervisors.is_empty()
            && self.pools.is_empty()
            && self.queues.is_empty()
            && self.actors.is_empty()
            && self.rings.is_empty()
            && self.names.is_empty()
            && self.dead_letters.is_empty()
            && self.entities.is_empty()
            && self.entity_processes.is_empty()
    }

    /// Adds the report of a child, whose full name is `name`, about itself and what is below it.
    #[doc(hidden)]
    pub fn add_below(&mut self, name: &str, mut below: Report) {
        for process in &mut below.processes {
            process.name = format!("{name}/{}", process.name);
        }
        self.add(below);
    }

    /// Adds what another report lists.
    #[doc(hidden)]
    pub fn add(&mut self, mut other: Report) {
        self.processes.append(&mut other.processes);
        self.supervisors.append(&mut other.supervisors);
        self.pools.append(&mut other.pools);
        self.queues.append(&mut other.queues);
        self.actors.append(&mut other.actors);
        self.rings.append(&mut other.rings);
        self.names.append(&mut other.names);
        self.dead_letters.append(&mut other.dead_letters);
        self.entities.append(&mut other.entities);
        self.entity_processes.append(&mut other.entity_processes);
    }

    /// Returns the process with this id.
    pub fn process(&self, id: ProcessId) -> Option<&ProcessStats> {
        self.processes.iter().find(|process| process.id == id)
    }
}

/// The supervisors of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Supervisors {
    /// The process.
    pub process: ProcessId,
    /// The supervisors that are no children of others, with their children.
    pub roots: Vec<Branch>,
}

impl Supervisors {
    #[doc(hidden)]
    pub fn new(process: ProcessId, roots: Vec<Branch>) -> Supervisors {
        Supervisors { process, roots }
    }
}

/// A queue, or one direction of a pipe.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QueueStats {
    /// The process that owns it.
    pub process: ProcessId,
    /// A number that identifies it in that process.
    pub number: u64,
    /// The name that the program gave it, else the place that made it: `src/main.rs:12`.
    #[serde(default)]
    pub name: String,
    /// Whether it is a direction of a pipe.
    pub pipe: bool,
    /// Elements that no consumer has been sent.
    pub length: u64,
    /// Bytes of these elements.
    pub bytes: u64,
    /// Elements that were put, and wait for room.
    pub blocked: u64,
    /// Consumers that wait for an element.
    pub waiting: u64,
    /// Elements that were put since it was created.
    pub put: u64,
    /// Elements that consumers were sent since it was created. One that came back counts once.
    #[serde(default)]
    pub taken: u64,
}

impl QueueStats {
    #[doc(hidden)]
    pub fn new(process: ProcessId, number: u64, name: String) -> QueueStats {
        QueueStats {
            process,
            number,
            name,
            pipe: false,
            length: 0,
            bytes: 0,
            blocked: 0,
            waiting: 0,
            put: 0,
            taken: 0,
        }
    }
}

/// An actor that other processes can reach.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ActorStats {
    /// The process in which it runs.
    pub process: ProcessId,
    /// A number that identifies it in that process.
    #[serde(default)]
    pub number: u64,
    /// The name of a managed actor, else the type.
    pub name: String,
    /// Its type: `shop::Basket`.
    #[serde(default)]
    pub actor_type: String,
    /// Its registered names, by which other processes find it.
    #[serde(default)]
    pub names: Vec<String>,
    /// How often it was restarted, by itself or with its process.
    #[serde(default)]
    pub restarts: u64,
    /// How many of these restarts have shown in the statistics of earlier processes.
    #[doc(hidden)]
    #[serde(default)]
    pub restarts_before: u64,
    /// Handled messages in a second: the mean of the last 5 to 10 seconds.
    #[serde(default)]
    pub rate: f64,
    /// Messages that wait in its inbox.
    pub waiting: u64,
    /// Messages that it has handled.
    pub handled: u64,
    /// Messages whose handler panicked.
    pub failed: u64,
    /// The times from a message's arrival to the return of its handler.
    pub latency: Distribution,
}

impl ActorStats {
    /// The bit that numbers of managed actors have, and no others.
    #[doc(hidden)]
    pub const MANAGED: u64 = 1 << 63;

    /// Returns whether it is a managed actor.
    pub fn is_managed(&self) -> bool {
        self.number & ActorStats::MANAGED != 0
    }

    #[doc(hidden)]
    pub fn new(process: ProcessId, number: u64, actor_type: &str) -> ActorStats {
        ActorStats {
            process,
            number,
            name: actor_type.into(),
            actor_type: actor_type.into(),
            names: Vec::new(),
            restarts: 0,
            restarts_before: 0,
            rate: 0.0,
            waiting: 0,
            handled: 0,
            failed: 0,
            latency: Distribution::default(),
        }
    }
}

/// Messages without an answer that a process could not deliver to an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeadLetterStats {
    /// The process that knows of them: the sender's, or the actor's.
    pub process: ProcessId,
    /// The actor's name or type.
    pub actor: String,
    /// How many there were so far.
    pub count: u64,
}

impl DeadLetterStats {
    #[doc(hidden)]
    pub fn new(process: ProcessId, actor: String, count: u64) -> DeadLetterStats {
        DeadLetterStats { process, actor, count }
    }
}

/// A name of an actor, a group of actors, or a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NameStats {
    /// The name.
    pub name: String,
    /// Whether it is a name, a group or a topic.
    pub kind: NameKind,
    /// The type of the actor, or of the messages for which it can be found.
    pub of: String,
    /// How many actors have it: 1, or the number of members. Of a topic, its subscriptions.
    pub members: u64,
}

/// The use of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum NameKind {
    /// One actor.
    Name,
    /// Any number of actors.
    Group,
    /// A topic.
    Topic,
}

impl NameStats {
    #[doc(hidden)]
    pub fn new(name: String, kind: NameKind, of: String, members: u64) -> NameStats {
        NameStats { name, kind, of, members }
    }
}

/// A ring that runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RingStats {
    /// The process that started it.
    pub process: ProcessId,
    /// Its name.
    pub name: String,
    /// The function that its ranks run.
    pub function: String,
    /// The current start of all ranks, counted from 1.
    pub attempt: u64,
    /// The last checkpoint that all ranks have taken.
    pub checkpoint: Option<u64>,
    /// The pid of each rank's process, while it runs.
    pub ranks: Vec<Option<u32>>,
}

impl RingStats {
    #[doc(hidden)]
    pub fn new(process: ProcessId, name: String, function: String) -> RingStats {
        RingStats { process, name, function, attempt: 0, checkpoint: None, ranks: Vec::new() }
    }
}
