//! The table of all metrics.

use std::fmt::Write;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A value that rises and falls.
    Gauge,
    /// A sum that only rises.
    Counter,
    /// The distribution of durations.
    Histogram,
    /// Constant texts, as labels.
    Info,
}

/// A metric with all its series, which differ in the values of the labels.
#[derive(Debug)]
pub(super) struct Metric {
    /// The name without the suffix of counters and infos.
    pub(super) family: &'static str,
    pub(super) kind: Kind,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
}

impl Metric {
    /// Returns the base unit, which ends the name.
    pub(super) fn unit(&self) -> Option<&'static str> {
        ["seconds", "bytes"]
            .into_iter()
            .find(|unit| self.family.strip_suffix(unit).is_some_and(|name| name.ends_with('_')))
    }

    /// Returns the name as queries write it.
    pub(super) fn name(&self) -> String {
        let suffix = match self.kind {
            Kind::Gauge | Kind::Histogram => "",
            Kind::Counter => "_total",
            Kind::Info => "_info",
        };
        format!("{}{suffix}", self.family)
    }
}

/// Defines [`Id`] and [`METRICS`] from one list.
macro_rules! metrics {
    ($($id:ident: $kind:ident $family:ident [$($label:ident),*] $help:literal;)+) => {
        /// Identifies a metric. The order is that of the output.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Id { $($id),+ }

        /// All metrics, in the order of [`Id`].
        pub(super) const METRICS: &[Metric] = &[$(Metric {
            family: stringify!($family),
            kind: Kind::$kind,
            labels: &[$(stringify!($label)),*],
            help: $help,
        }),+];
    };
}

metrics! {
    Build: Info fiber_build [version, program, backend]
        "The version of fiber, the program's file name, and the backend of the head's children.";
    SessionStart: Gauge fiber_session_start_time_seconds []
        "When the head started, in seconds since 1970.";

    TasksWaiting: Gauge fiber_pool_tasks_waiting [pool]
        "Tasks that were submitted and are assigned to no worker.";
    TasksHeld: Gauge fiber_pool_tasks_held [pool]
        "Tasks that wait for the values of other tasks.";
    TasksPending: Gauge fiber_pool_tasks_pending [pool]
        "Tasks that are assigned to a worker and have no outcome.";
    TasksDone: Counter fiber_tasks_done [pool, function]
        "Tasks that returned a value or failed.";
    TasksFailed: Counter fiber_tasks_failed [pool, function]
        "Tasks that panicked or returned an error.";
    TasksRetried: Counter fiber_tasks_retried [pool]
        "Tasks that ran again because they failed.";
    TasksRedelivered: Counter fiber_tasks_redelivered [pool]
        "Tasks that were assigned again because their worker died.";
    TasksAbandoned: Counter fiber_tasks_abandoned [pool]
        "Tasks that were given up: too many of their workers died, or they ran past their timeout.";
    TaskDuration: Histogram fiber_task_duration_seconds [pool, function]
        "The times that tasks took. Short tasks of one message count with their mean.";
    LongestTask: Gauge fiber_longest_task_seconds [pool, function]
        "How long the task has run that has run longest, of those that run now and for 5 ms.";
    Stragglers: Gauge fiber_stragglers [pool, function]
        "Tasks that have run ten times as long as their function's tasks usually do.";
    Calls: Gauge fiber_pool_calls [pool]
        "Calls that are not complete.";
    WorkersWanted: Gauge fiber_pool_workers_wanted [pool]
        "Workers that the pool is to have.";
    WorkersReady: Gauge fiber_pool_workers_ready [pool]
        "Workers that are ready for tasks.";
    WorkersIdle: Gauge fiber_pool_workers_idle [pool]
        "Ready workers without tasks.";
    WorkerThreads: Gauge fiber_pool_threads [pool]
        "Threads of ready workers that run tasks.";
    WorkerDeaths: Counter fiber_pool_worker_deaths [pool]
        "Workers that have died.";
    PoolSent: Counter fiber_pool_sent_bytes [pool]
        "Bytes of arguments that were sent to workers. Values in shared memory count.";
    PoolReceived: Counter fiber_pool_received_bytes [pool]
        "Bytes of outcomes that workers sent. Values in shared memory count.";

    Processes: Gauge fiber_processes [role, state]
        "Processes of the session.";
    ProcessCpu: Counter fiber_process_cpu_seconds [role]
        "CPU time of processes, in user and system mode.";
    ProcessMemory: Gauge fiber_process_resident_memory_bytes [role]
        "Resident memory (RSS) of processes. Memory that several of them share counts several times.";
    ProcessPss: Gauge fiber_process_pss_bytes [role]
        "Proportional set size (PSS) of processes: memory that several of them share counts once. \
         Processes whose system does not tell it are left out.";
    ProcessThreads: Gauge fiber_process_threads [role]
        "Threads of processes.";
    LinkSent: Counter fiber_link_sent_bytes [role]
        "Bytes that processes have sent over their links. Values in shared memory don't count.";
    LinkReceived: Counter fiber_link_received_bytes [role]
        "Bytes that processes have received over their links.";
    ValuesStored: Gauge fiber_values_stored_bytes [role]
        "Encoded values that processes store.";
    ValuesShared: Gauge fiber_values_shared_bytes [role]
        "Values of processes in shared memory.";
    ValuesSpilled: Gauge fiber_values_spilled_bytes [role]
        "Elements of queues and outputs of tasks in files, because their processes have no room for \
         more values.";
    ValuesElsewhere: Gauge fiber_values_elsewhere_bytes [role]
        "Outputs of tasks on other machines alone, as the processes see them that made the calls.";
    ValuesOutputs: Gauge fiber_values_outputs [role]
        "Outputs of tasks whose values processes have, wherever their bytes are.";
    ValuesLimit: Gauge fiber_values_limit_bytes [role]
        "Limits of the values that processes store, with those in shared memory.";
    Restarts: Counter fiber_supervisor_restarts []
        "Children that supervisors have restarted.";

    Queues: Gauge fiber_queues []
        "Queues and directions of pipes.";
    QueueElements: Gauge fiber_queue_elements [queue]
        "Elements in a queue or pipe that no consumer has been sent.";
    QueueBytes: Gauge fiber_queue_bytes [queue]
        "Bytes of these elements, in memory or in a file.";
    QueueBlocked: Gauge fiber_queue_puts_blocked [queue]
        "Elements that were put into a queue or pipe and wait for room.";
    QueueWaiting: Gauge fiber_queue_consumers_waiting [queue]
        "Consumers that wait for an element of a queue or pipe.";
    QueuePut: Counter fiber_queue_elements_put [queue]
        "Elements that were put into a queue or pipe.";
    QueueTaken: Counter fiber_queue_elements_taken [queue]
        "Elements that a queue or pipe has sent to consumers. One that came back counts once.";

    ActorName: Info fiber_actor_name [actor, name]
        "The registered names of actors: at most 100.";
    ActorRestarts: Counter fiber_actor_restarts [actor, type]
        "Restarts of actors that other processes can reach, by themselves or with their processes.";
    ActorMessagesWaiting: Gauge fiber_actor_messages_waiting [actor, type]
        "Messages from other processes that wait in the inboxes of actors.";
    ActorMessagesHandled: Counter fiber_actor_messages_handled [actor, type]
        "Messages from other processes that actors have handled.";
    ActorMessagesFailed: Counter fiber_actor_messages_failed [actor, type]
        "Messages from other processes whose handler panicked.";
    ActorLatency: Histogram fiber_actor_latency_seconds [actor, type]
        "The times from a message's arrival to the return of its handler.";

    DeadLetters: Counter fiber_dead_letters [actor]
        "Messages without an answer that were not delivered: their actor has ended, or its mailbox \
         is full.";

    Events: Counter fiber_events [event]
        "Events of the head's pools and supervisors.";

    Rings: Gauge fiber_rings []
        "Rings that run.";
    RingNodes: Gauge fiber_ring_nodes [state]
        "Nodes of rings: `running`, or `missing` while they start.";
}

impl Id {
    pub(super) fn metric(self) -> &'static Metric {
        &METRICS[self as usize]
    }
}

const INTRODUCTION: &str = "\
# Metrics

<!-- `make reference` writes this page from the table in actors/runtime/src/metrics/table.rs. -->

With `FIBER_METRICS=127.0.0.1:9464` (configuration `metrics`), the head of a session serves these
metrics at `/metrics`, for the session's processes together.
[Observability](observability.md#metrics) explains how.

| metric | type | labels | meaning |
|---|---|---|---|
";

/// Returns the text of `docs/metrics.md`.
#[doc(hidden)]
pub fn page() -> String {
    let mut page = INTRODUCTION.to_string();
    for metric in METRICS {
        let kind = match metric.kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        };
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, labels) = (metric.name(), labels.join(", "));
        writeln!(page, "| `{name}` | {kind} | {labels} | {} |", metric.help)
            .expect("a text takes all");
    }
    page
}
