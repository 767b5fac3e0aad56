//! Events: what happens to pools, workers and tasks.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::tree::display::Registered;
use super::units;
use crate::exit::{Exit, ExitReason};

/// Something that happened in a session. `Display` describes it in one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Fields")]
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
#[derive(Clone, Debug, PartialEq, Serialize)]
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
        /// The registered names of a managed actor.
        names: Vec<String>,
        /// Why it ended.
        reason: ExitReason,
    },
    /// A supervisor gives up, because its children have failed too often, or a managed actor ends
    /// for good, because it has.
    GaveUp {
        /// The name of the supervisor or the actor, with those of the supervisors above.
        child: String,
        /// [`IntensityReached`](ExitReason::IntensityReached), with the last failure.
        reason: ExitReason,
    },
    /// Messages without an answer were not delivered to an actor: it has ended, or its mailbox is
    /// full. There is one event a second for each actor and process that knows of it.
    DeadLetters {
        /// The actor's name or type.
        actor: String,
        /// How many there were since the last event.
        count: u64,
        /// Why the last one was not delivered.
        problem: String,
    },
    /// Actors wait for each other in a circle: the handler of each blocks until the next one
    /// answers, so none of them goes on. There is one event for each circle.
    WaitCycle {
        /// The names or types of the actors: each waits for the next one, the last for the first.
        actors: Vec<String>,
    },
}

impl EventKind {
    /// Puts the name of the process in which it happened in front of the name in it.
    #[doc(hidden)]
    pub fn add_process(&mut self, process: &str) {
        let name = match self {
            // They are of several processes.
            EventKind::WaitCycle { .. } => return,
            EventKind::WorkerStarted { pool, .. }
            | EventKind::WorkerEnded { pool, .. }
            | EventKind::TaskAbandoned { pool, .. }
            | EventKind::Straggler { pool, .. } => pool,
            EventKind::ChildRestarted { child, .. } | EventKind::GaveUp { child, .. } => child,
            EventKind::DeadLetters { actor, .. } => actor,
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
            EventKind::ChildRestarted { .. }
            | EventKind::GaveUp { .. }
            | EventKind::DeadLetters { .. }
            | EventKind::WaitCycle { .. } => None,
        }
    }
}

/// The fields of any event, as JSON has them side by side. serde itself reads such an enum from
/// values that it buffers, for which all types in it would be compiled once more.
#[derive(Deserialize)]
struct Fields {
    #[serde(with = "units::time")]
    at: SystemTime,
    event: String,
    pool: Option<String>,
    worker: Option<String>,
    place: Option<String>,
    exit: Option<Exit>,
    expected: Option<bool>,
    blamed: Option<Vec<TaskName>>,
    redelivered: Option<u64>,
    task: Option<TaskName>,
    workers: Option<u32>,
    ran: Option<f64>,
    usual: Option<f64>,
    child: Option<String>,
    names: Option<Vec<String>>,
    actor: Option<String>,
    actors: Option<Vec<String>>,
    count: Option<u64>,
    problem: Option<String>,
    reason: Option<ExitReason>,
}

impl TryFrom<Fields> for Event {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Event, String> {
        let (at, event) = (fields.at, fields.event.clone());
        let unknown = || format!("there is no event `{event}` with these fields");
        fields.kind().map(|kind| Event { at, kind }).ok_or_else(unknown)
    }
}

impl Fields {
    /// Returns `None` if there is no such event, or if a field of it is missing.
    fn kind(self) -> Option<EventKind> {
        let seconds = |seconds: Option<f64>| Duration::try_from_secs_f64(seconds?).ok();
        Some(match self.event.as_str() {
            "worker-started" => EventKind::WorkerStarted {
                pool: self.pool?,
                worker: self.worker?,
                place: self.place?,
            },
            "worker-ended" => EventKind::WorkerEnded {
                pool: self.pool?,
                worker: self.worker?,
                place: self.place?,
                exit: self.exit?,
                expected: self.expected?,
                blamed: self.blamed?,
                redelivered: self.redelivered?,
            },
            "task-abandoned" => EventKind::TaskAbandoned {
                pool: self.pool?,
                task: self.task?,
                workers: self.workers?,
                exit: self.exit?,
            },
            "straggler" => EventKind::Straggler {
                pool: self.pool?,
                worker: self.worker?,
                task: self.task?,
                ran: seconds(self.ran)?,
                usual: seconds(self.usual)?,
            },
            "child-restarted" => EventKind::ChildRestarted {
                child: self.child?,
                names: self.names.unwrap_or_default(),
                reason: self.reason?,
            },
            "gave-up" => EventKind::GaveUp { child: self.child?, reason: self.reason? },
            "dead-letters" => EventKind::DeadLetters {
                actor: self.actor?,
                count: self.count?,
                problem: self.problem?,
            },
            "wait-cycle" => EventKind::WaitCycle { actors: self.actors? },
            _ => return None,
        })
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
            EventKind::ChildRestarted { child, names, reason } => {
                let (names, reason) = (Registered(names), FirstLine(reason));
                write!(f, "{child}{names} {reason}; it is restarted")
            }
            EventKind::GaveUp { child, reason } => write!(f, "{child} {}", FirstLine(reason)),
            EventKind::DeadLetters { actor, count, problem } => {
                let messages = if *count == 1 { "message was" } else { "messages were" };
                let problem = problem.lines().next().unwrap_or_default();
                write!(f, "{actor}: {count} {messages} not delivered: {problem}")
            }
            EventKind::WaitCycle { actors } => {
                for actor in actors {
                    write!(f, "{actor} waits for ")?;
                }
                write!(f, "{}", actors.first().map_or("", String::as_str))
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

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::json::read_json;

    #[test]
    fn events_of_all_kinds_arrive() {
        let (pool, worker, place) = ("squares".to_string(), "worker-1".to_string(), "pid 7".into());
        let (task, reason) = (TaskName::new(1, "square", 9), ExitReason::Signal(9));
        let exit = Exit::new(reason.clone(), vec!["the last line".into()]);
        let started =
            EventKind::WorkerStarted { pool: pool.clone(), worker: worker.clone(), place };
        let ended = EventKind::WorkerEnded {
            pool: pool.clone(),
            worker: worker.clone(),
            place: "pid 7".into(),
            exit: exit.clone(),
            expected: false,
            blamed: vec![task.clone()],
            redelivered: 3,
        };
        let abandoned =
            EventKind::TaskAbandoned { pool: pool.clone(), task: task.clone(), workers: 2, exit };
        let (ran, usual) = (Duration::from_secs(20), Duration::from_millis(1500));
        let straggler = EventKind::Straggler { pool, worker, task, ran, usual };
        let (child, names) = ("app/counter".into(), vec!["visits".into()]);
        let restarted = EventKind::ChildRestarted { child, names, reason: reason.clone() };
        let (period, last) = (Duration::from_secs(5), Box::new(reason));
        let reason =
            ExitReason::IntensityReached { restarts: 3, period, child: "counter".into(), last };
        let gave_up = EventKind::GaveUp { child: "app".into(), reason };
        let dead =
            EventKind::DeadLetters { actor: "counter".into(), count: 3, problem: "full".into() };
        let circle = EventKind::WaitCycle { actors: vec!["left".into(), "right".into()] };
        for kind in [started, ended, abandoned, straggler, restarted, gave_up, dead, circle] {
            let event = Event { at: UNIX_EPOCH + Duration::from_secs(1000), kind };
            let json = serde_json::to_string(&event).unwrap();
            assert_eq!(read_json::<Event>(&json).unwrap(), event, "{json}");
        }
    }

    #[test]
    fn an_unknown_event_and_a_missing_field_are_refused() {
        for (json, problem) in [
            (r#"{"at":1.0,"event":"lunch"}"#, "there is no event `lunch`"),
            (r#"{"at":1.0,"event":"straggler","pool":"a"}"#, "`straggler` with these fields"),
            (
                r#"{"at":1.0,"event":"lunch","workers":"two"}"#,
                "`workers`: it must be a whole number",
            ),
        ] {
            let error = read_json::<Event>(json).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
