//! Reports of this process's children, for people who look at the session.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use dashmap::DashMap;
use fiber_backends::{Job, JobState, WaitReason};
use fiber_core::inspect::Request;
use fiber_core::stats::{ActorStats, Event, ProcessRole, ProcessState, ProcessStats, Report};
use fiber_core::{ProcessId, is_stopped, read_json};
use fiber_transport::{Link, PeerInfo};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::backtraces::Backtraces;
use super::launch::ended;
use super::protocol::ControlMessage;
use crate::events::Events;
use crate::parts::Parts;

/// The time limit for the end of a process that was killed.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Where the answer of a child goes, or why there is none.
type Answer = oneshot::Sender<Result<String, String>>;

/// The children of this process that have not ended.
#[derive(Default)]
pub(super) struct Children {
    records: DashMap<ProcessId, ChildRecord>,
    /// Requests that have not been answered, with the children that were asked.
    asked: Mutex<HashMap<u64, (ProcessId, Answer)>>,
    last: AtomicU64,
}

struct ChildRecord {
    name: String,
    role: ProcessRole,
    restarts: u64,
    since: SystemTime,
    job: Arc<dyn Job>,
    /// Its pid, host and link, once it has connected.
    connected: Option<(u32, String, Arc<dyn Link>)>,
    /// Its last usage, in JSON: it is read when someone asks, and not at each heartbeat.
    usage: Option<String>,
    /// Its last report about its own objects and children, in JSON.
    below: Option<String>,
}

impl Children {
    pub(super) fn add(
        &self,
        id: ProcessId,
        name: String,
        role: ProcessRole,
        restarts: u64,
        job: Arc<dyn Job>,
    ) {
        let (since, usage, below) = (SystemTime::now(), None, None);
        let record =
            ChildRecord { name, role, restarts, since, job, connected: None, usage, below };
        self.records.insert(id, record);
    }

    pub(super) fn connected(&self, info: &PeerInfo, link: &Arc<dyn Link>) {
        if let Some(mut record) = self.records.get_mut(&info.id) {
            record.connected = Some((info.pid, info.host.clone(), Arc::clone(link)));
        }
    }

    pub(super) fn remove(&self, id: ProcessId) {
        self.records.remove(&id);
        self.asked.lock().retain(|_, (asked, _)| *asked != id);
    }

    /// Returns the job of the child of this name.
    pub(super) fn job(&self, name: &str) -> Option<Arc<dyn Job>> {
        let mut records = self.records.iter();
        records.find(|record| record.name == name).map(|record| Arc::clone(&record.job))
    }

    /// Returns the job of the child that is the process `process`, or that is above it as far as
    /// its reports say.
    pub(super) fn above(&self, process: ProcessId) -> Option<Arc<dyn Job>> {
        let own = self.records.get(&process).map(|record| Arc::clone(&record.job));
        own.or_else(|| {
            let mut records = self.records.iter();
            let above = records.find(|record| record.is_above(process));
            above.map(|record| Arc::clone(&record.job))
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Says which child has waited for room longest, and how many others do, and returns why. Hosts
    /// wait for the sake of others, and a pool goes on with the workers that have room.
    pub(super) fn waiting(&self) -> Option<(String, String)> {
        // Pools are few, and a set of texts would add 28 kB to each program.
        let mut pools = Vec::<String>::new();
        let has = |pools: &[String], name: &str| pools.iter().any(|pool| pool == name);
        for record in self.records.iter() {
            let Some(pool) = record.pool().filter(|name| !has(&pools, name)) else { continue };
            if matches!(*record.job.states().borrow(), JobState::Running) {
                pools.push(pool.to_owned());
            }
        }
        let is_counted = |record: &ChildRecord| {
            record.role != ProcessRole::Host && !record.pool().is_some_and(|it| has(&pools, it))
        };
        let waits = |record: &ChildRecord| match &*record.job.states().borrow() {
            JobState::Waiting(WaitReason::Resources(reason) | WaitReason::Node(reason)) => {
                Some(reason.clone())
            }
            _ => None,
        };
        let (mut first, mut count) = (None::<(SystemTime, String, String)>, 0);
        for record in self.records.iter().filter(|record| is_counted(record)) {
            let Some(reason) = waits(&record) else { continue };
            count += 1;
            if first.as_ref().is_none_or(|(since, ..)| record.since < *since) {
                first = Some((record.since, record.name.clone(), reason));
            }
        }
        let (_, name, reason) = first?;
        let who = match count {
            1 => format!("`{name}` waits"),
            count => format!("`{name}` and {} more wait", count - 1),
        };
        Some((who, reason))
    }

    /// Notes the statistics of a heartbeat and publishes its events, or passes an answer on.
    pub(super) fn receive(&self, parts: &Parts, id: ProcessId, message: ControlMessage) {
        match message {
            ControlMessage::Heartbeat { usage, below, events: new } => {
                let Some(mut record) = self.records.get_mut(&id) else { return };
                record.usage = usage.or(record.usage.take());
                record.below = below;
                let Some(new) = new else { return };
                let name = record.name.clone();
                drop(record);
                for mut event in read_json::<Vec<Event>>(&new).unwrap_or_default() {
                    event.kind.add_process(&name);
                    parts.get::<Events>().publish(event);
                }
            }
            ControlMessage::Inspected { number, answer } => {
                if let Some((_, asker)) = self.asked.lock().remove(&number) {
                    let _ = asker.send(answer);
                }
            }
            ControlMessage::Prints(prints) => parts.get::<Backtraces>().note_child(id, prints),
            _ => {}
        }
    }

    /// Adds the children of `parent` to its report, and what is below them.
    /// `describe` adds what this process knows of its managed actors.
    pub(super) fn report(
        &self,
        parent: ProcessId,
        report: &mut Report,
        describe: impl Fn(&mut ActorStats),
    ) {
        let mut ids: Vec<_> =
            self.records.iter().map(|record| (record.since, *record.key())).collect();
        ids.sort_unstable();
        for (_, id) in ids {
            let Some(record) = self.records.get(&id) else { continue };
            report.processes.push(record.stats(id, parent));
            if let Some(mut below) = record.below() {
                let is_own = |actor: &&mut ActorStats| actor.process == id && actor.is_managed();
                below.actors.iter_mut().filter(is_own).for_each(&describe);
                report.add_below(&record.name, below);
            }
        }
    }

    /// Sends a request to the child that is the process `process`, or that is above it. Returns its
    /// answer, in JSON.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) async fn ask(
        &self,
        process: ProcessId,
        request: Request,
        limit: Duration,
    ) -> Result<String, String> {
        let mut records = self.records.iter();
        let found = records
            .find(|record| *record.key() == process || record.is_above(process))
            .map(|record| {
                let (name, place) = (record.name.clone(), record.job.place());
                let stopped = record.pid_here(*record.key()).filter(|pid| is_stopped(*pid));
                let pid_here = record.pid_here(process);
                (*record.key(), name, place, record.connected.clone(), pid_here, stopped)
            });
        drop(records);
        let Some((child, name, place, connected, pid_here, stopped)) = found else {
            return Err("the process has ended meanwhile".into());
        };
        let Some((_, _, link)) = connected else {
            return Err(format!("`{name}` ({place}) has not started yet"));
        };
        let takes_stack = matches!(request, Request::Stack { .. });
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let (asker, answer) = oneshot::channel();
        self.asked.lock().insert(number, (child, asker));
        let message = ControlMessage::Inspect { number, request }.message();
        let answer = match stopped.is_none() && link.send(message).is_ok() {
            true => timeout(limit, answer).await.map(Result::ok),
            false => Ok(None),
        };
        self.asked.lock().remove(&number);
        let problem = match (answer, stopped) {
            (Ok(Some(answer)), _) => return answer,
            (Ok(None), Some(pid)) => format!(
                "`{name}` ({place}) does not answer: it is stopped (SIGSTOP, Ctrl-Z), and `kill \
                 -CONT {pid}` lets it go on"
            ),
            (Ok(None), None) => return Err(format!("`{name}` ({place}) has ended meanwhile")),
            (Err(_), _) => format!(
                "`{name}` ({place}) did not answer within {limit:?}: it may be stopped, or its \
                 machine overloaded"
            ),
        };
        let seen =
            pid_here.filter(|_| takes_stack).map(|pid| fiber_stacks::from_outside(pid, &problem));
        match seen {
            Some(Ok(stack)) => serde_json::to_string(&stack).map_err(|error| error.to_string()),
            _ => Err(problem),
        }
    }

    /// Ends a child, or asks the child above the process to end it. Waits for the end.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) async fn kill(
        &self,
        process: ProcessId,
        request: Request,
        grace: Duration,
        limit: Duration,
    ) -> Result<String, String> {
        let own = self.records.get(&process).map(|record| Arc::clone(&record.job));
        let Some(job) = own else {
            let limit = grace.saturating_add(KILL_LIMIT).saturating_add(limit);
            return self.ask(process, request, limit).await;
        };
        let mut states = job.states();
        let has_ended = !grace.is_zero() && {
            job.terminate();
            timeout(grace, ended(&mut states)).await.is_ok()
        };
        if !has_ended {
            job.kill();
            timeout(KILL_LIMIT, ended(&mut states)).await.map_err(|_| {
                format!("{} was killed, and has not ended after {KILL_LIMIT:?}", job.place())
            })?;
        }
        Ok("null".into())
    }
}

impl ChildRecord {
    /// Returns the name of its pool, if it is a worker.
    fn pool(&self) -> Option<&str> {
        let (pool, _) = self.name.rsplit_once('/')?;
        Some(pool).filter(|_| self.role == ProcessRole::Worker)
    }

    fn below(&self) -> Option<Report> {
        read_json(self.below.as_deref()?).ok()
    }

    /// Returns whether its last report has this process.
    fn is_above(&self, process: ProcessId) -> bool {
        self.below().is_some_and(|below| below.process(process).is_some())
    }

    /// Returns the pid of this child, or of a process below it, if `/proc` has it under this pid.
    fn pid_here(&self, process: ProcessId) -> Option<u32> {
        let below = self.below();
        let pid = match (below.as_ref().and_then(|below| below.process(process)), &self.connected) {
            (Some(below), _) => below.pid?,
            (None, Some((pid, ..))) => *pid,
            (None, None) => return None,
        };
        // A process of another machine or container has its pid there.
        let own = fiber_core::executable_name().ok()?;
        (std::fs::read_link(format!("/proc/{pid}/exe")).ok()? == own).then_some(pid)
    }

    fn stats(&self, id: ProcessId, parent: ProcessId) -> ProcessStats {
        let mut stats = ProcessStats::new(id, self.name.clone(), self.role, self.since);
        stats.parent = Some(parent);
        stats.set_job(self.job.place());
        stats.restarts = self.restarts;
        stats.state = match &*self.job.states().borrow() {
            JobState::Waiting(reason) => ProcessState::Waiting(reason.message().into()),
            JobState::AwaitsHost | JobState::Starting => ProcessState::Starting,
            _ if self.connected.is_none() => ProcessState::Starting,
            _ => ProcessState::Running,
        };
        if let Some((pid, host, _)) = &self.connected {
            (stats.pid, stats.host) = (Some(*pid), host.clone());
        }
        stats.usage = self.usage.as_deref().and_then(|usage| read_json(usage).ok());
        stats.tail = self.job.tail();
        stats
    }
}
