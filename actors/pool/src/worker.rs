//! The worker, which runs in each process of a pool.
//!
//! The runtime's thread receives assignments into the [`WorkQueue`]. The executors, which are the
//! main thread and others, take runs from it and call the function for each task. Each executor
//! collects outcomes and sends them together: when it has as many outcomes as tasks left, when they
//! are many bytes, or when a task blocks them. The [monitor] notices the last of these: it runs on
//! the runtime's thread and looks at the executors every millisecond while they are busy.

mod executor;
mod followers;
mod local_run;
mod monitor;
mod outcomes;
mod slots;
mod task_span;
mod termination;

pub(super) use monitor::BLOCKED_AFTER;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use fiber_core::{FailureKind, SortedMap};
use fiber_transport::{Link, Message, Received};
use fiber_values::entry::{Entry, EntryRef};
use parking_lot::{Condvar, Mutex, RwLock};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::broadcast::ReceivedValues;
use super::current::{CurrentPool, Outer};
use super::run::CallId;
use super::wire::{Assignment, PoolCommand, PoolMessage, Results, WorkerEvent};
use executor::ExecutorState;
use fiber_runtime::objects::Attachments;
use fiber_runtime::runtime::{
    ChildMain, ControlMessage, ParentMessage, Runtime, StartedMain, telemetry,
};
use fiber_supervisor::process::Initializer;
use followers::LocalFollower;
use local_run::LocalRun;
use task_span::WorkerNames;

/// The configuration of a worker's process.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct WorkerMain {
    /// The name of the pool.
    pub(crate) pool: String,
    /// The worker's name in its pool, which `WorkerStart` sets.
    pub(crate) name: String,
    pub(crate) threads: u64,
    pub(crate) initializer: Option<Initializer>,
    pub(crate) max_message: u64,
}

/// The state that the executors of a worker share.
struct WorkQueue {
    link: Arc<dyn Link>,
    attachments: &'static Attachments,
    values: &'static ReceivedValues,
    work: Mutex<Work>,
    /// Whether this worker starts no more tasks, because SIGTERM asked it or its program to end. It
    /// is set under the lock of `work`.
    draining: AtomicBool,
    /// Whether this process ends without waiting for its tasks.
    ending: AtomicBool,
    /// The number of tasks in `work`, which executors read without its lock.
    queued: AtomicU64,
    /// Wakes executors when work arrives, and when the worker stops.
    changed: Condvar,
    /// How many tasks it runs at the same time, without those that wait for others.
    threads: usize,
    /// The executors: one for each thread, and as many as tasks have waited at the same time.
    ///
    /// The lock of a state comes after that of `work`. A task that has not started moves between the
    /// two under both locks, and a search for the tasks of a call holds that of `work` until its
    /// end, so that it finds each task in one of the two.
    executors: RwLock<Vec<Arc<Mutex<ExecutorState>>>>,
    /// The number of executors, which they read without the lock.
    executor_count: AtomicUsize,
    /// Their threads but for the main one.
    started: Mutex<Vec<JoinHandle<()>>>,
    current_pool: &'static CurrentPool,
    /// Resolved entries. Resolving one takes a microsecond, longer than many tasks.
    entries: Mutex<HashMap<EntryRef, &'static Entry>>,
    /// Wakes the monitor when a blocked executor continues.
    unblocked: Notify,
    max_message: usize,
    /// Whether its process is in a host, where large values may stay.
    is_hosted: bool,
    names: WorkerNames,
}

/// Work that no executor has taken.
#[derive(Default)]
struct Work {
    runs: VecDeque<LocalRun>,
    /// Tasks whose inputs other tasks make that have not started, by those.
    followers: SortedMap<(CallId, u64), LocalFollower>,
    /// Executors that have taken a run.
    busy: usize,
    /// Executors whose tasks wait for others, and lend them their slots.
    lent: usize,
    /// Whether the parent knows that the worker is ready.
    ready: bool,
    closed: bool,
}

impl ChildMain for WorkerMain {
    fn start(self, runtime: &'static Runtime, link: Arc<dyn Link>) -> StartedMain {
        let max_message = self.max_message as usize;
        let current_pool: &CurrentPool = runtime.part();
        let (outer, name) = (Arc::clone(&link), self.pool.clone());
        current_pool.set(Outer { runtime, link: outer, name, max_message });
        let queue = Arc::new(WorkQueue {
            link,
            current_pool,
            attachments: runtime.part(),
            values: runtime.part(),
            work: Mutex::default(),
            draining: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            queued: AtomicU64::new(0),
            changed: Condvar::new(),
            threads: self.threads as usize,
            executors: RwLock::default(),
            executor_count: AtomicUsize::new(0),
            started: Mutex::default(),
            entries: Mutex::default(),
            unblocked: Notify::new(),
            max_message,
            is_hosted: runtime.is_hosted(),
            names: WorkerNames { pool: self.pool, worker: self.name },
        });
        let arrived = Arc::new(Notify::new());
        fiber_core::spawn_local(monitor::run(Arc::clone(&queue), Arc::clone(&arrived)));
        if runtime.config().signals {
            termination::listen(runtime, &queue);
        }
        let receiving = Arc::clone(&queue);
        let inbox = move |inbound| match inbound {
            ParentMessage::Data(message) => {
                receiving.receive(message);
                arrived.notify_one();
            }
            ParentMessage::Shutdown => receiving.close(),
        };
        let initializer = self.initializer;
        let main = move || {
            if let Err(problem) = initializer.map_or(Ok(()), Initializer::run) {
                let _ = queue.link.send(ControlMessage::Failed(problem).message());
                // The parent stops this process when it has read the message. An earlier exit could
                // lose it.
                queue.wait_for_close();
                return 1;
            }
            executor::run_all(&queue);
            0
        };
        StartedMain { receive: Box::new(inbox), run: Box::new(main) }
    }
}

impl WorkQueue {
    fn report_ready(&self) {
        let mut work = self.work.lock();
        work.ready = true;
        let _ = self.link.send(ControlMessage::Ready { address: None }.message());
    }

    fn receive(&self, message: Received) {
        match PoolMessage::read(message) {
            Ok(PoolMessage::Assignment(assignment)) => self.accept(assignment),
            Ok(PoolMessage::Follower(follower)) => self.accept_follower(follower),
            Ok(PoolMessage::Broadcast { id, value }) => self.values.insert(id, value),
            Ok(PoolMessage::Results(results)) => self.current_pool.receive(results),
            Ok(PoolMessage::Command(PoolCommand::DropBroadcast(id))) => self.values.remove(id),
            Ok(PoolMessage::Command(PoolCommand::Cancel { call, kill })) => self.cancel(call, kill),
            Ok(PoolMessage::Command(PoolCommand::Return(call))) => self.return_call(call),
            Ok(PoolMessage::Command(PoolCommand::Drain)) => self.drain(),
            Ok(PoolMessage::Command(PoolCommand::Abandoned { call, index, workers, exit })) => {
                self.current_pool.abandoned((call, index), workers, *exit);
            }
            Ok(PoolMessage::Event(event)) => {
                tracing::error!("ignored an event of a worker from the pool: {event:?}");
            }
            Err(error) => tracing::error!("ignored a message from the pool: {error}"),
        }
    }

    fn accept(&self, assignment: Assignment) {
        let Some(run) = self.local(assignment) else { return };
        let many = run.len() > 1;
        let mut work = self.work.lock();
        if self.is_draining() {
            drop(work);
            return self.return_run(&run);
        }
        work.runs.push_back(run);
        self.count_queued(&work);
        drop(work);
        if many {
            self.changed.notify_all();
        } else {
            self.changed.notify_one();
        }
    }

    /// Returns the tasks of an assignment, unless this program does not have their function.
    fn local(&self, assignment: Assignment) -> Option<LocalRun> {
        let known = self.entries.lock().get(&assignment.entry).copied();
        let entry = match known.map_or_else(|| assignment.entry.resolve(), Ok) {
            Ok(entry) => entry,
            Err(error) => {
                self.refuse(&assignment, &error.to_string());
                return None;
            }
        };
        if known.is_none() {
            self.entries.lock().insert(assignment.entry, entry);
        }
        Some(LocalRun::new(entry, assignment))
    }

    fn count_queued(&self, work: &Work) {
        self.queued.store(work.runs.iter().map(LocalRun::len).sum(), Ordering::Relaxed);
    }

    /// Fails tasks whose function this program does not have.
    fn refuse(&self, assignment: &Assignment, problem: &str) {
        let Assignment { call, first, count, .. } = *assignment;
        self.send(Results::failures(call, first, count, FailureKind::Unknown, problem));
        let follower = self.work.lock().take_follower((call, first));
        self.return_follower(follower);
    }

    fn cancel(&self, call: CallId, kill: bool) {
        let mut work = self.work.lock();
        let mut returned = self.take_queued(&mut work, call);
        let mut runs_call = false;
        for executor in &*self.executors.read() {
            let mut executor = executor.lock();
            runs_call |= executor.runs(call);
            returned.extend(executor.cancel_call(call));
            returned.extend(executor.take_follower_of(call));
        }
        drop(work);
        returned.iter().for_each(|run| self.return_run(run));
        if runs_call && kill {
            self.report(WorkerEvent::RunsCancelled);
        }
    }

    /// Returns the tasks of a call that have not started to the pool, except those of a chunk that
    /// has.
    fn return_call(&self, call: CallId) {
        let mut work = self.work.lock();
        let mut returned = self.take_queued(&mut work, call);
        for executor in &*self.executors.read() {
            let mut executor = executor.lock();
            if executor.has_run_of(call) {
                returned.extend(executor.take_unstarted());
            }
            returned.extend(executor.take_follower_of(call));
        }
        drop(work);
        returned.iter().for_each(|run| self.return_run(run));
    }

    /// Takes the runs of a call that no executor has taken.
    fn take_queued(&self, work: &mut Work, call: CallId) -> VecDeque<LocalRun> {
        let (mut taken, others): (VecDeque<_>, _) =
            work.runs.drain(..).partition(|run| run.call == call);
        work.runs = others;
        self.count_queued(work);
        taken.extend(work.take_followers_of(call));
        taken
    }

    /// Returns tasks to the pool, with those that follow them.
    fn return_run(&self, run: &LocalRun) {
        self.report(WorkerEvent::Returned { call: run.call, first: run.first, count: run.len() });
        let follower = self.work.lock().take_follower((run.call, run.first));
        self.return_follower(follower);
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    fn report(&self, event: WorkerEvent) {
        // Sending fails if the parent is gone. Then this process is about to end.
        let _ = self.link.send(PoolMessage::Event(event).message());
    }

    fn send(&self, results: Results) {
        self.send_outcomes(|| PoolMessage::Results(results).message());
    }

    fn send_outcomes(&self, message: impl FnOnce() -> Message) {
        // An outcome may be the consequence of the end of this worker's children.
        if self.ending.load(Ordering::Acquire) {
            return;
        }
        // The pool may kill this process as soon as it has the outcomes.
        telemetry::flush();
        let _ = self.link.send(message());
    }

    fn close(&self) {
        self.work.lock().closed = true;
        self.changed.notify_all();
        // A task whose call nobody waits for may wait for others, which no worker runs any more.
        self.current_pool.end();
    }

    fn wait_for_close(&self) {
        let mut work = self.work.lock();
        while !work.closed {
            self.changed.wait(&mut work);
        }
    }
}
