//! The state that a pool's handles, its controller and its workers' supervision share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use actix::Recipient;
use fiber_core::stacks::ThreadStack;
use fiber_core::{Error, Exit, ExitReason, Meta, PoolEndReason, Result, on_a_thread};
use fiber_transport::Received;
use fiber_values::codec;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::controller::{ControllerRequest, WorkerNumber};
use super::inner_calls::InnerCalls;
use super::life::{Readiness, Surroundings};
use super::run::CallId;
use super::scheduler::{MIN_PENDING, Retirement, WorkerId};
use super::scheduling::{Assigning, Effects, SharedLife};
use super::stats::History;
use super::verdict::Verdict;
use super::wire::{FromWorker, PoolCommand, WorkerEvent};
use super::worker::BLOCKED_AFTER;
use super::worker_handle::WorkerHandle;
use fiber_runtime::objects::let_outputs_travel;
#[cfg(feature = "simulation")]
use fiber_runtime::runtime::simulation::Trace;
use fiber_runtime::runtime::{DrainHook, ProcessCommand, Runtime, Unfit, set_names};
use fiber_runtime::timeline::Timeline;

/// How long a worker without tasks keeps a broadcast value that was dropped.
const LINGER: Duration = Duration::from_millis(100);

/// How long a task that ran past its timeout goes on while the functions on its stack get names.
/// That takes 20 ms in a release build, but 0.3 s in a large one without optimization, and 1 s if
/// three times as many threads want to run as there are cores.
const NAMES_LIMIT: Duration = Duration::from_secs(10);
/// An error shows at most this many frames of a task.
const MOST_FRAMES: usize = 64;

/// How a cancelled call's running tasks end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancellation {
    LetFinish,
    KillWorkers,
}

/// The number of the last call of any pool: the timeline and errors name calls by their numbers.
#[derive(Default)]
pub(super) struct CallNumbers(AtomicU64);

impl CallNumbers {
    pub(super) fn next(&self) -> CallId {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The state of a pool.
pub(crate) struct PoolState {
    pub(super) this: Weak<PoolState>,
    pub(super) runtime: &'static Runtime,
    pub(super) timeline: &'static Timeline,
    #[cfg(feature = "simulation")]
    pub(super) trace: Option<&'static Trace>,
    pub(super) calls: &'static CallNumbers,
    /// The number of the last worker.
    pub(super) last_worker: AtomicU64,
    pub(super) name: String,
    pub(super) max_message: usize,
    pub(super) life: Mutex<SharedLife>,
    pub(super) assigning: Mutex<Assigning>,
    /// Workers without pending tasks. Feeders read it without the lock.
    pub(super) idle: AtomicUsize,
    /// How many tasks a feeder may always be ahead.
    pub(super) min_ahead: AtomicU64,
    pub(super) readiness_changed: watch::Sender<()>,
    pub(super) broadcasts: Mutex<HashMap<u64, Received>>,
    /// `None` in a worker, where this stands for the pool that runs its tasks.
    pub(super) controller: Option<Recipient<ControllerRequest>>,
    /// The calls that its tasks have made.
    pub(super) inner: InnerCalls,
    pub(super) history: Mutex<History>,
    /// Workers that have died.
    pub(super) deaths: AtomicU64,
    /// Entries on their way into journals.
    recording: AtomicU64,
    /// Outcomes that came from journals.
    pub(super) recorded: AtomicU64,
}

impl PoolState {
    pub(super) fn new(
        this: Weak<PoolState>,
        runtime: &'static Runtime,
        name: String,
        max_message: usize,
        life: SharedLife,
        controller: Option<Recipient<ControllerRequest>>,
    ) -> PoolState {
        // Simulated sessions begin without `init`.
        let_outputs_travel();
        PoolState {
            this,
            runtime,
            timeline: runtime.part(),
            #[cfg(feature = "simulation")]
            trace: Trace::of(runtime),
            calls: runtime.part(),
            last_worker: AtomicU64::new(0),
            name,
            max_message,
            life: Mutex::new(life),
            assigning: Mutex::default(),
            idle: AtomicUsize::new(0),
            min_ahead: AtomicU64::new(MIN_PENDING),
            readiness_changed: watch::Sender::new(()),
            broadcasts: Mutex::default(),
            controller,
            inner: InnerCalls::default(),
            history: Mutex::default(),
            deaths: AtomicU64::new(0),
            recording: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
        }
    }

    pub(super) fn control(&self, request: ControllerRequest) {
        if let Some(controller) = &self.controller {
            controller.do_send(request);
        }
    }

    /// Refuses calls of a late exit hook: there are no workers any more, and its thread has lost
    /// the thread-local values that a call needs. A call while a signal ends the program waits: an
    /// error could let `main` return first, with another exit status.
    pub(super) fn check_running(&self) -> Result<()> {
        if !self.runtime.has_shut_down() {
            return Ok(());
        }
        let reason = PoolEndReason::Failed("the program is about to end".into());
        Err(Error::PoolEnded { name: self.name.clone(), reason })
    }

    /// Returns an error if the pool takes no calls.
    pub(super) fn check_open(&self, life: &SharedLife) -> Result<()> {
        match life.refusal() {
            None => Ok(()),
            Some(reason) => Err(Error::PoolEnded { name: self.name.clone(), reason }),
        }
    }

    /// Returns an error if the pool has ended. It may be closed.
    pub(super) fn check_not_ended(&self) -> Result<()> {
        self.check_not_ended_in(&self.life.lock())
    }

    pub(super) fn check_not_ended_in(&self, life: &SharedLife) -> Result<()> {
        if life.has_ended() { self.check_open(life) } else { Ok(()) }
    }

    pub(super) fn ensure_started(&self, meta: Meta) {
        if !self.runtime.is_draining() && !self.life.lock().is_started() {
            self.with_life(|life, effects| life.start(meta, effects));
        }
    }

    pub(super) async fn when_ready(&self, enough: impl Fn(&Readiness) -> bool) -> Result<()> {
        let mut changes = self.readiness_changed.subscribe();
        loop {
            {
                let life = self.life.lock();
                self.check_not_ended_in(&life)?;
                let now = life.readiness();
                if now.wanted > 0 && enough(&now) {
                    return Ok(());
                }
            }
            // The sender lives in `self`.
            let _ = changes.changed().await;
        }
    }

    /// Counts an entry on its way into a journal.
    pub(super) fn recording_began(&self) {
        self.recording.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends a closed pool after its last entry, which the pool's end waits for.
    pub(super) fn recording_ended(&self) {
        if self.recording.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.end_if_over();
        }
    }

    #[inline]
    pub(super) fn has_idle(&self) -> bool {
        // The outer pool takes tasks at any time.
        self.is_outer() || self.idle.load(Ordering::Acquire) > 0
    }

    #[inline]
    pub(super) fn min_ahead(&self) -> u64 {
        self.min_ahead.load(Ordering::Relaxed)
    }

    /// Adds a worker that is ready.
    pub(super) fn join(&self, worker: Arc<WorkerHandle>) {
        self.worker_started(&worker);
        let broadcasts = self.broadcasts.lock();
        for (id, value) in &*broadcasts {
            worker.broadcast(*id, value.clone());
        }
        let (mut life, mut effects) = (self.lock_life(), Effects::default());
        life.worker_ready(worker.id, Arc::clone(&worker), worker.host, &mut effects);
        drop(broadcasts);
        self.min_ahead.fetch_max(life.scheduler.min_pending(), Ordering::Relaxed);
        self.unlock_life(life, effects);
    }

    /// Notes the end of a worker's process, which had this handle if it was ready.
    pub(super) fn lost(
        self: &Arc<PoolState>,
        number: WorkerNumber,
        worker: Option<&WorkerHandle>,
        exit: Exit,
    ) -> Verdict {
        if let Some(worker) = worker {
            self.end_inner(worker.id);
        }
        let around = Surroundings {
            now: Instant::now(),
            start_timeout: self.runtime.config().start_timeout,
            starts_are_over: self.runtime.starts_are_over().is_some(),
        };
        let id = worker.map(|worker| worker.id);
        self.with_life(|life, effects| life.worker_ended(number, id, exit, &around, effects))
    }

    /// Handles a message from a worker.
    pub(super) fn receive(self: &Arc<PoolState>, worker: &Arc<WorkerHandle>, message: Received) {
        let id = worker.id;
        match FromWorker::read(message) {
            Ok(FromWorker::Results(results)) => {
                if self.timeline.is_on() {
                    self.record(worker, &results);
                }
                self.with_scheduler(|scheduler, effects| scheduler.complete(id, results, effects));
            }
            Ok(FromWorker::Assignment(tasks)) => self.begin_inner(worker, tasks),
            Ok(FromWorker::Broadcast { id: value_id, value }) => {
                self.broadcast_inner(id, value_id, value)
            }
            Ok(FromWorker::Command(command)) => self.command_inner(id, command),
            Ok(FromWorker::Event(event)) => self.with_scheduler(|scheduler, effects| match event {
                WorkerEvent::Returned { call, first, count } => {
                    scheduler.returned(id, call, first, count, effects)
                }
                WorkerEvent::Running { call, index } => {
                    let since = Instant::now() - BLOCKED_AFTER;
                    scheduler.note_long_running(id, call, index, since, effects)
                }
                WorkerEvent::Overdue { call, index, stack } => {
                    self.kill_overdue(id, (call, index), stack)
                }
                WorkerEvent::RunsCancelled => scheduler.runs_cancelled(id, effects),
                WorkerEvent::Waits { call, index, waits } => {
                    scheduler.waits(id, (call, index), waits, effects)
                }
                WorkerEvent::Terminating => scheduler.drain(id, Retirement::Terminating, effects),
            }),
            Ok(FromWorker::Large { .. }) => unreachable!("large outcomes are read as results"),
            Err(error) => {
                let _ = worker
                    .commands
                    .send(ProcessCommand::Kill(ExitReason::LinkLost(error.to_string())));
            }
        }
    }

    /// Kills a worker that runs a task past its timeout, once the functions on the task's stack
    /// have names.
    fn kill_overdue(
        self: &Arc<PoolState>,
        worker: WorkerId,
        (call, index): (CallId, u64),
        stack: Option<Arc<ThreadStack>>,
    ) {
        let pool = Arc::downgrade(self);
        self.runtime.spawn(move || async move {
            let stack = match stack {
                Some(stack) => {
                    on_a_thread(move || with_names(Arc::unwrap_or_clone(stack))).await.ok()
                }
                None => None,
            };
            let Some(pool) = pool.upgrade() else { return };
            pool.with_scheduler(|scheduler, effects| {
                scheduler.overdue(worker, call, index, stack, effects);
            });
        });
    }

    pub(super) fn send_broadcast(&self, id: u64, value: Received) -> Result<()> {
        let size = value.len() + value.blobs.total_len();
        codec::check_size(size, self.max_message as u64, || "a broadcast value".into())?;
        self.check_not_ended()?;
        let mut broadcasts = self.broadcasts.lock();
        for worker in self.life.lock().scheduler.handles() {
            worker.broadcast(id, value.clone());
        }
        broadcasts.insert(id, value);
        Ok(())
    }

    pub(super) fn drop_broadcast(self: &Arc<PoolState>, id: u64) {
        let mut broadcasts = self.broadcasts.lock();
        broadcasts.remove(&id);
        for worker in self.life.lock().scheduler.handles() {
            worker.drop_broadcast(id);
        }
        drop(broadcasts);
        let pool = Arc::downgrade(self);
        self.runtime.spawn(move || async move {
            tokio::time::sleep(LINGER).await;
            if let Some(pool) = pool.upgrade() {
                let workers = pool.life.lock().scheduler.handles();
                workers.iter().for_each(|worker| worker.send_unsent());
            }
        });
    }
}

impl DrainHook for PoolState {
    fn drain(&self) {
        let (callers, workers) =
            self.with_scheduler(|scheduler, _| (scheduler.halt(), scheduler.handles()));
        callers.iter().for_each(|exchange| exchange.stop());
        for worker in workers {
            worker.command(PoolCommand::Drain);
        }
    }

    fn running(&self) -> u64 {
        self.life.lock().scheduler.running_durable()
    }

    fn usual_time(&self) -> Option<Duration> {
        self.life.lock().scheduler.usual_time_of_durable()
    }

    fn set_time_left(&self, left: Duration, unfit: Unfit) {
        // Calls expire with the tasks that they have prepared.
        self.with_scheduler(|scheduler, effects| {
            scheduler.set_time_left(left);
            scheduler.want(effects);
        });
        if unfit == Unfit::Wait {
            return;
        }
        for (exchange, usual) in self.with_scheduler(|scheduler, _| scheduler.expire()) {
            exchange.end(Error::TimeLimit { function: exchange.function, usual, left });
        }
    }

    fn is_recording(&self) -> bool {
        self.recording.load(Ordering::SeqCst) > 0
    }
}

/// Names the functions on the stack of an overdue task.
fn with_names(mut stack: ThreadStack) -> Arc<ThreadStack> {
    if let Err(problem) = set_names(&mut stack, NAMES_LIMIT) {
        tracing::warn!("on the stack of a task that ran past its timeout, {problem}");
    }
    Arc::new(stack.shortened(MOST_FRAMES))
}
