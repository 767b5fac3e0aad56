//! A pool as its handles, its manager and its workers' attendants share it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use actix::{Message, Recipient};
use bytes::Bytes;
use fiber_core::{Error, Exit, ExitReason, Meta, PoolEndReason, Result, codec};
use fiber_transport::Link;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use super::exchange::Exchange;
use super::run::{CallId, Run};
use super::scheduler::{Effects, LEAST, Scheduler, Tasks, WorkerId};
use super::wire::{FromWorker, PoolNote, ToWorker, WorkerNote};
use crate::runtime::{ProcessCommand, Runtime};

/// A worker that was ready for less than this died young.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// What becomes of a cancelled call's tasks that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    LetFinish,
    Kill,
}

/// What the handles of a pool, its manager and its workers' attendants share.
pub(crate) struct Shared {
    pub(super) runtime: &'static Runtime,
    pub(super) name: String,
    pub(super) max_message: usize,
    pub(super) scheduler: Mutex<Scheduler<Arc<Worker>, Arc<Exchange>>>,
    /// How many workers have nothing to do; feeders look at it.
    pub(super) idle: AtomicUsize,
    pub(super) ahead: AtomicU64,
    pub(super) state: Mutex<State>,
    pub(super) started: AtomicBool,
    pub(super) ready: watch::Sender<Readiness>,
    pub(super) broadcasts: Mutex<HashMap<u64, Bytes>>,
    pub(super) controller: Recipient<Request>,
}

pub(super) enum State {
    Open,
    Closed,
    /// No worker will do anything any more.
    Ended(PoolEndReason),
}

/// How many workers there are and are to be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readiness {
    pub(super) ready: usize,
    pub(super) wanted: usize,
}

/// A worker as its pool sees it.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(super) id: WorkerId,
    /// The name of its place in the pool, which its successor takes over.
    pub(super) child: String,
    pub(super) link: Arc<dyn Link>,
    pub(super) commands: mpsc::UnboundedSender<ProcessCommand>,
    pub(super) ready_since: Instant,
}

/// Answers when it is done.
pub(super) type Done = oneshot::Sender<()>;

/// What is asked of a pool's manager.
pub(super) enum Request {
    /// To start the workers, for a first task with these wishes.
    Start(Meta),
    /// To have this many workers, and to say when that is noted.
    Scale(usize, Done),
    /// To note that the worker of this name could not be started, and why.
    FailedStart(String, String),
    /// To note that it could.
    Joined(String),
    /// To note that a worker waits for room, in the cluster's words, or does so no more.
    Waits(String, Option<String>),
    /// To note that a worker died young, without having had a task, while no other worked.
    DiedUnused(String),
    /// To note that one lived longer, or had tasks, or that others do.
    Lived,
    /// To end a worker that has been drained.
    Retire(String),
    /// To end the workers when no call is under way.
    Close,
    /// The same, and to say when it is done.
    Join(Done),
    /// To end the workers at once.
    Terminate(Arc<Shared>, Option<Done>),
}

impl Message for Request {
    type Result = ();
}

impl Shared {
    pub(super) fn new(
        runtime: &'static Runtime,
        name: String,
        max_message: usize,
        controller: Recipient<Request>,
    ) -> Shared {
        Shared {
            runtime,
            name,
            max_message,
            scheduler: Mutex::new(Scheduler::new()),
            idle: AtomicUsize::new(0),
            ahead: AtomicU64::new(LEAST),
            state: Mutex::new(State::Open),
            started: AtomicBool::new(false),
            ready: watch::Sender::new(Readiness::default()),
            broadcasts: Mutex::default(),
            controller,
        }
    }

    pub(super) fn refusal(&self, state: &State) -> Result<()> {
        let reason = match state {
            State::Open => return Ok(()),
            State::Closed => PoolEndReason::Closed,
            State::Ended(reason) => reason.clone(),
        };
        Err(Error::PoolEnded { pool: self.name.clone(), reason })
    }

    /// That the pool has not ended; it may be closed.
    pub(super) fn still_there(&self) -> Result<()> {
        let state = self.state.lock();
        if matches!(*state, State::Ended(_)) { self.refusal(&state) } else { Ok(()) }
    }

    pub(super) fn ensure_started(&self, meta: Meta) {
        if !self.started.swap(true, Ordering::AcqRel) {
            self.controller.do_send(Request::Start(meta));
        }
    }

    pub(super) async fn when_ready(&self, enough: impl Fn(&Readiness) -> bool) -> Result<()> {
        let mut ready = self.ready.subscribe();
        loop {
            {
                let now = ready.borrow_and_update();
                self.still_there()?;
                if now.wanted > 0 && enough(&now) {
                    return Ok(());
                }
            }
            // The sender lives in `self`.
            let _ = ready.changed().await;
        }
    }

    /// Changes the scheduler, and does what follows from it.
    pub(super) fn with_scheduler<T>(
        &self,
        change: impl FnOnce(
            &mut Scheduler<Arc<Worker>, Arc<Exchange>>,
            &mut Effects<Arc<Worker>, Arc<Exchange>>,
        ) -> T,
    ) -> T {
        let mut effects = Effects::default();
        let mut scheduler = self.scheduler.lock();
        let result = change(&mut scheduler, &mut effects);
        self.idle.store(scheduler.idle(), Ordering::Release);
        let all_done = scheduler.is_empty();
        drop(scheduler);
        self.perform(effects);
        if all_done && matches!(*self.state.lock(), State::Closed) {
            self.controller.do_send(Request::Close);
        }
        result
    }

    fn perform(&self, effects: Effects<Arc<Worker>, Arc<Exchange>>) {
        // A link or an attendant that is gone means that the worker is: its tasks are queued again
        // when that is known.
        for (worker, assignment) in effects.assignments {
            let _ = worker.link.send(ToWorker::Assignment(assignment).message());
        }
        for (worker, call) in effects.recalls {
            let _ = worker.link.send(ToWorker::Note(PoolNote::GiveBack { call }).message());
        }
        for (worker, reason) in effects.kills {
            let _ = worker.commands.send(ProcessCommand::Kill(reason));
        }
        for (worker, drained) in effects.retired {
            if drained {
                self.controller.do_send(Request::Retire(worker.child.clone()));
            } else {
                let _ = worker.commands.send(ProcessCommand::Shutdown);
            }
        }
        for (exchange, settled) in effects.settled {
            exchange.arrive(settled);
        }
    }

    pub(super) fn submit(&self, run: Run) {
        self.with_scheduler(|scheduler, effects| scheduler.submit(run, effects));
    }

    /// The caller has taken outcomes, so there may be room for those of tasks that were kept back.
    pub(super) fn resume(&self, call: CallId) {
        self.with_scheduler(|scheduler, effects| scheduler.resume(call, effects));
    }

    pub(super) fn finish_feeding(&self, call: CallId) {
        self.with_scheduler(|scheduler, _| scheduler.finish_feeding(call));
    }

    pub(super) fn cancel(&self, call: CallId, ending: Ending) {
        let concerned = self.with_scheduler(|scheduler, _| scheduler.cancel(call));
        for worker in concerned {
            let note = PoolNote::Cancel { call, kill: ending == Ending::Kill };
            let _ = worker.link.send(ToWorker::Note(note).message());
        }
    }

    #[inline]
    pub(super) fn has_idle(&self) -> bool {
        self.idle.load(Ordering::Acquire) > 0
    }

    #[inline]
    pub(super) fn ahead_at_least(&self) -> u64 {
        self.ahead.load(Ordering::Relaxed)
    }

    /// A worker has become ready.
    pub(super) fn join(&self, worker: Arc<Worker>, threads: u64, quota: Option<u64>) {
        let broadcasts = self.broadcasts.lock();
        for (id, value) in &*broadcasts {
            let _ =
                worker.link.send(ToWorker::Broadcast { id: *id, value: value.clone() }.message());
        }
        let child = worker.child.clone();
        let count = self.with_scheduler(|scheduler, effects| {
            scheduler.join(worker.id, worker, threads, quota, effects);
            scheduler.workers()
        });
        drop(broadcasts);
        self.ahead.fetch_max(LEAST * count as u64 * threads, Ordering::Relaxed);
        self.ready.send_modify(|readiness| readiness.ready = count);
        self.controller.do_send(Request::Joined(child));
    }

    /// A worker's process has ended.
    pub(super) fn lost(&self, worker: &Worker, exit: &Exit) {
        let is_young = |worker: &Worker| worker.ready_since.elapsed() < SHORT_LIFE;
        let (count, useless) = self.with_scheduler(|scheduler, effects| {
            let tasks = scheduler.lost(worker.id, exit, effects);
            let others_work =
                scheduler.is_of_use() || scheduler.handles().iter().any(|other| !is_young(other));
            (scheduler.workers(), tasks == Tasks::None && is_young(worker) && !others_work)
        });
        self.ready.send_modify(|readiness| readiness.ready = count);
        if useless {
            self.controller.do_send(Request::DiedUnused(exit.to_string()));
        } else {
            self.controller.do_send(Request::Lived);
        }
    }

    /// A worker has said something.
    pub(super) fn receive(&self, worker: &Worker, message: Bytes) {
        let id = worker.id;
        match FromWorker::read(message) {
            Ok(FromWorker::Results(results)) => {
                self.with_scheduler(|scheduler, effects| scheduler.complete(id, results, effects));
            }
            Ok(FromWorker::Note(note)) => self.with_scheduler(|scheduler, effects| match note {
                WorkerNote::Returned { call, first, count } => {
                    scheduler.returned(id, call, first, count, effects)
                }
                WorkerNote::Running { call, index } => scheduler.runs(id, call, index),
                WorkerNote::Overdue { call, index } => scheduler.overdue(id, call, index, effects),
                WorkerNote::RunsCancelled => scheduler.runs_cancelled(id, effects),
            }),
            Ok(FromWorker::Large { .. }) => unreachable!("large outcomes are read as results"),
            Err(error) => {
                let _ = worker
                    .commands
                    .send(ProcessCommand::Kill(ExitReason::LinkLost(error.to_string())));
            }
        }
    }

    pub(super) fn send_broadcast(&self, id: u64, value: Bytes) -> Result<()> {
        codec::check_size(value.len(), self.max_message as u64, || "a broadcast value".into())?;
        self.still_there()?;
        let mut broadcasts = self.broadcasts.lock();
        for worker in self.scheduler.lock().handles() {
            let _ = worker.link.send(ToWorker::Broadcast { id, value: value.clone() }.message());
        }
        broadcasts.insert(id, value);
        Ok(())
    }

    pub(super) fn forget_broadcast(&self, id: u64) {
        let mut broadcasts = self.broadcasts.lock();
        broadcasts.remove(&id);
        for worker in self.scheduler.lock().handles() {
            let _ = worker.link.send(ToWorker::Note(PoolNote::Forget { broadcast: id }).message());
        }
    }

    /// Fails what is under way, and all that comes.
    pub(super) fn end(&self, reason: PoolEndReason) {
        let mut state = self.state.lock();
        if matches!(*state, State::Ended(_)) {
            return;
        }
        *state = State::Ended(reason.clone());
        drop(state);
        let callers = self.scheduler.lock().abandon();
        for exchange in callers {
            exchange.end(Error::PoolEnded { pool: self.name.clone(), reason: reason.clone() });
        }
        self.ready.send_modify(|readiness| readiness.ready = 0);
    }
}
