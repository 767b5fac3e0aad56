//! The values of the metrics.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use fiber_core::ProcessId;
use fiber_core::stats::{
    ActorStats, Branch, ChildKind, Distribution, EventKind, PoolStats, ProcessRole, ProcessState,
    QueueStats, SessionStats,
};

use super::named::{Named, OTHERS};
use super::table::Id;

/// The value of a series.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Number(f64),
    Times(Distribution),
}

impl Value {
    pub(super) fn add(&mut self, other: &Value) {
        match (self, other) {
            (Value::Number(own), Value::Number(other)) => *own += other,
            (Value::Times(own), Value::Times(other)) => own.merge(other),
            _ => debug_assert!(false, "a metric has values of one type"),
        }
    }

    /// Returns whether a counter with this value has started again since it had the value `before`.
    pub(super) fn is_below(&self, before: &Value) -> bool {
        match (self, before) {
            (Value::Number(now), Value::Number(before)) => now < before,
            (Value::Times(now), Value::Times(before)) => now.count() < before.count(),
            _ => true,
        }
    }
}

/// Values by metric and labels. Values of equal labels are added up.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Samples(pub(super) BTreeMap<(Id, Vec<String>), Value>);

impl Samples {
    fn number(&mut self, id: Id, labels: &[&str], value: f64) {
        self.add(id, labels, &Value::Number(value));
    }

    fn count(&mut self, id: Id, labels: &[&str], value: u64) {
        self.number(id, labels, value as f64);
    }

    fn add(&mut self, id: Id, labels: &[&str], value: &Value) {
        debug_assert_eq!(labels.len(), id.metric().labels.len(), "{id:?}");
        let labels = labels.iter().map(ToString::to_string).collect();
        self.add_series((id, labels), value);
    }

    pub(super) fn add_series(&mut self, series: (Id, Vec<String>), value: &Value) {
        match self.0.get_mut(&series) {
            Some(sum) => sum.add(value),
            None => drop(self.0.insert(series, value.clone())),
        }
    }

    /// Adds the registered names of actors, as far as names have series of their own.
    pub(super) fn add_names(&mut self, labelled: &Labelled<'_>, known: &mut Named) {
        let named = labelled
            .actors
            .iter()
            .flat_map(|(actor, label)| actor.names.iter().map(move |name| (name.as_str(), *label)));
        let named: Vec<(&str, &str)> = named.collect();
        for ((_, actor), name) in known.label(&named, |(name, _)| name) {
            if name != OTHERS {
                self.count(Id::ActorName, &[actor, name], 1);
            }
        }
    }

    /// Replaces the value by a larger one.
    fn max(&mut self, id: Id, labels: &[&str], value: f64) {
        let series = (id, labels.iter().map(ToString::to_string).collect());
        let longest = self.0.entry(series).or_insert(Value::Number(value));
        if longest.is_below(&Value::Number(value)) {
            *longest = Value::Number(value);
        }
    }
}

/// The thing that counts: its counters end with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Source {
    Process(ProcessId),
    Supervisors(ProcessId),
    Pool(ProcessId, String),
    Queue(ProcessId, u64),
    Actor(ProcessId, String),
    DeadLetters(ProcessId, String),
}

/// The things that a program may make any number of, with the labels for their names.
pub(super) struct Labelled<'a> {
    pub(super) queues: Vec<(&'a QueueStats, &'a str)>,
    pub(super) actors: Vec<(&'a ActorStats, &'a str)>,
}

/// Returns the labels of an actor's series.
fn of_actor<'a>(actor: &'a ActorStats, label: &'a str) -> [&'a str; 2] {
    [label, if label == OTHERS { OTHERS } else { &actor.actor_type }]
}

/// Returns the values of all gauges and infos but the names of actors.
pub(super) fn gauges(stats: &SessionStats, labelled: &Labelled<'_>) -> Samples {
    let mut samples = Samples::default();
    let version = env!("CARGO_PKG_VERSION");
    samples.count(Id::Build, &[version, &stats.program, &stats.backend], 1);
    let report = &stats.report;
    if let Some(head) = report.processes.first() {
        let since_1970 = head.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        samples.number(Id::SessionStart, &[], since_1970.as_secs_f64());
    }
    report.pools.iter().for_each(|pool| add_pool(&mut samples, pool));
    for process in &report.processes {
        let role = role(process.role);
        let state = match process.state {
            ProcessState::Starting => "starting",
            ProcessState::Waiting(_) => "waiting",
            _ => "running",
        };
        samples.count(Id::Processes, &[role, state], 1);
        if let Some(usage) = &process.usage {
            samples.count(Id::ProcessMemory, &[role], usage.memory);
            if let Some(pss) = usage.pss {
                samples.count(Id::ProcessPss, &[role], pss);
            }
            samples.count(Id::ProcessThreads, &[role], usage.threads.into());
            samples.count(Id::ValuesStored, &[role], usage.stored);
            samples.count(Id::ValuesShared, &[role], usage.shared);
            samples.count(Id::ValuesSpilled, &[role], usage.spilled);
            samples.count(Id::ValuesElsewhere, &[role], usage.elsewhere);
            samples.count(Id::ValuesOutputs, &[role], usage.outputs);
            samples.count(Id::ValuesLimit, &[role], usage.value_limit);
        }
    }
    samples.count(Id::Queues, &[], report.queues.len() as u64);
    for (queue, label) in &labelled.queues {
        samples.count(Id::QueueElements, &[label], queue.length);
        samples.count(Id::QueueBytes, &[label], queue.bytes);
        samples.count(Id::QueueBlocked, &[label], queue.blocked);
        samples.count(Id::QueueWaiting, &[label], queue.waiting);
    }
    for (actor, label) in &labelled.actors {
        samples.count(Id::ActorMessagesWaiting, &of_actor(actor, label), actor.waiting);
    }
    samples.count(Id::Rings, &[], report.rings.len() as u64);
    for ring in &report.rings {
        let running = ring.ranks.iter().flatten().count() as u64;
        samples.count(Id::RingNodes, &["running"], running);
        samples.count(Id::RingNodes, &["missing"], ring.ranks.len() as u64 - running);
    }
    samples
}

fn add_pool(samples: &mut Samples, pool: &PoolStats) {
    let name = pool.name.as_str();
    samples.count(Id::TasksWaiting, &[name], pool.tasks.waiting);
    samples.count(Id::TasksHeld, &[name], pool.tasks.held);
    samples.count(Id::TasksPending, &[name], pool.tasks.pending);
    samples.count(Id::Calls, &[name], pool.calls.len() as u64);
    samples.count(Id::WorkersWanted, &[name], pool.wanted as u64);
    samples.count(Id::WorkersReady, &[name], pool.ready as u64);
    samples.count(Id::WorkersIdle, &[name], pool.idle as u64);
    let threads = pool.workers.iter().map(|worker| worker.threads).sum();
    samples.count(Id::WorkerThreads, &[name], threads);
    for function in &pool.functions {
        samples.number(Id::LongestTask, &[name, &function.function], 0.0);
        samples.count(Id::Stragglers, &[name, &function.function], 0);
    }
    for task in pool.workers.iter().flat_map(|worker| &worker.running) {
        samples.max(Id::LongestTask, &[name, &task.function], task.ran.as_secs_f64());
        samples.count(Id::Stragglers, &[name, &task.function], task.straggler.into());
    }
}

/// Returns the values of all counters, by what counts.
pub(super) fn counters(stats: &SessionStats, labelled: &Labelled<'_>) -> BTreeMap<Source, Samples> {
    let mut sources: BTreeMap<Source, Samples> = BTreeMap::new();
    let report = &stats.report;
    for process in &report.processes {
        let Some(usage) = &process.usage else { continue };
        let samples = sources.entry(Source::Process(process.id)).or_default();
        let role = role(process.role);
        samples.number(Id::ProcessCpu, &[role], usage.cpu.as_secs_f64());
        samples.count(Id::LinkSent, &[role], usage.sent);
        samples.count(Id::LinkReceived, &[role], usage.received);
    }
    for supervisors in &report.supervisors {
        let samples = sources.entry(Source::Supervisors(supervisors.process)).or_default();
        let all: u64 = supervisors.roots.iter().map(|root| root.restarts + restarts(root)).sum();
        samples.count(Id::Restarts, &[], all);
    }
    report.pools.iter().for_each(|pool| count_pool(&mut sources, pool));
    for (queue, label) in &labelled.queues {
        let samples = sources.entry(Source::Queue(queue.process, queue.number)).or_default();
        samples.count(Id::QueuePut, &[label], queue.put);
        samples.count(Id::QueueTaken, &[label], queue.taken);
    }
    for (actor, label) in &labelled.actors {
        let samples = sources.entry(Source::Actor(actor.process, actor.name.clone())).or_default();
        let labels = of_actor(actor, label);
        let restarts = actor.restarts.saturating_sub(actor.restarts_before);
        samples.count(Id::ActorRestarts, &labels, restarts);
        samples.count(Id::ActorMessagesHandled, &labels, actor.handled);
        samples.count(Id::ActorMessagesFailed, &labels, actor.failed);
        samples.add(Id::ActorLatency, &labels, &Value::Times(actor.latency.clone()));
    }
    for dead in &report.dead_letters {
        let source = Source::DeadLetters(dead.process, dead.actor.clone());
        let samples = sources.entry(source).or_default();
        samples.count(Id::DeadLetters, &[&dead.actor], dead.count);
    }
    sources
}

/// Adds the counters of a pool.
pub(super) fn count_pool(sources: &mut BTreeMap<Source, Samples>, pool: &PoolStats) {
    let samples = sources.entry(Source::Pool(pool.process, pool.name.clone())).or_default();
    let name = pool.name.as_str();
    samples.count(Id::TasksRetried, &[name], pool.tasks.retried);
    samples.count(Id::TasksRedelivered, &[name], pool.tasks.redelivered);
    samples.count(Id::TasksAbandoned, &[name], pool.tasks.abandoned);
    samples.count(Id::WorkerDeaths, &[name], pool.deaths);
    samples.count(Id::PoolSent, &[name], pool.bytes_out);
    samples.count(Id::PoolReceived, &[name], pool.bytes_in);
    for function in &pool.functions {
        let labels = [name, &function.function];
        samples.count(Id::TasksDone, &labels, function.done);
        samples.count(Id::TasksFailed, &labels, function.failed);
        samples.add(Id::TaskDuration, &labels, &Value::Times(function.times.clone()));
    }
}

fn restarts(branch: &Branch) -> u64 {
    let own = match branch.kind {
        ChildKind::Supervisor { restarts, .. } => restarts,
        _ => 0,
    };
    own + branch.children.iter().map(restarts).sum::<u64>()
}

fn role(role: ProcessRole) -> &'static str {
    match role {
        ProcessRole::Head => "head",
        ProcessRole::Worker => "worker",
        ProcessRole::Function => "function",
        ProcessRole::Actor => "actor",
        ProcessRole::RingNode => "ring-node",
        _ => "other",
    }
}

/// Counts events by kind.
#[derive(Debug, Default)]
pub(super) struct EventCounts(BTreeMap<&'static str, u64>);

impl EventCounts {
    pub(super) fn count(&mut self, kind: &EventKind) {
        let name = match kind {
            EventKind::WorkerStarted { .. } => "worker-started",
            EventKind::WorkerEnded { .. } => "worker-ended",
            EventKind::TaskAbandoned { .. } => "task-abandoned",
            EventKind::Straggler { .. } => "straggler",
            EventKind::ChildRestarted { .. } => "child-restarted",
            EventKind::GaveUp { .. } => "gave-up",
            EventKind::DeadLetters { .. } => "dead-letters",
            EventKind::WaitCycle { .. } => "wait-cycle",
            _ => "other",
        };
        *self.0.entry(name).or_default() += 1;
    }

    pub(super) fn add_to(&self, samples: &mut Samples) {
        self.0.iter().for_each(|(name, count)| samples.count(Id::Events, &[name], *count));
    }
}
