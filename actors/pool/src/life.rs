//! A pool's life as a state machine: events go in, effects come out.
//!
//! It knows the tasks, by its [`Scheduler`], and the workers that are to run them. It has no clock,
//! no lock and no process: [`PoolState`](super::state::PoolState) feeds it under one lock and
//! performs its [`Effects`], and the [controller](super::controller) does what it
//! [requests](ControllerRequest).
//!
//! - A pool takes calls until it is closed. It ends once: when it is closed and its calls are done,
//!   when it is killed, or when no worker can be expected any more.
//! - A worker has a number for all its incarnations. The supervisor replaces each that ends; the
//!   pool adds and removes workers until there are as many as wanted.
//! - A worker that the pool does not want gets no tasks, and is stopped.

mod disrupted;
mod missing;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use fiber_core::stats::PoolPhase;
use fiber_core::{Exit, ExitReason, Meta, PoolEndReason, SortedMap};

use self::disrupted::DisruptedWorkers;
use self::missing::{GiveUp, MissingCause, MissingWorkers, Warning};
use super::controller::{ControllerRequest, WorkerNumber};
use super::scheduler::{Effects, Notice, Retirement, Scheduler, WorkerId};
use super::verdict::{Lesson, Verdict, judge};
use fiber_runtime::runtime::HostNumber;

/// After how many looks in a row at which fewer workers were enough a scaling pool removes some.
const LOOKS_BEFORE_SHRINKING: u32 = 20;

/// The handle of a worker's incarnation.
pub(crate) trait Incarnation: Clone {
    fn number(&self) -> WorkerNumber;

    /// Returns whether it became ready a moment ago.
    fn is_young(&self, now: Instant) -> bool;
}

/// The rest of the program, as far as a decision depends on it.
pub(crate) struct Surroundings {
    pub(crate) now: Instant,
    /// How long a pool whose workers have worked keeps trying to start some.
    pub(crate) start_timeout: Duration,
    /// Whether this process can start no more processes.
    pub(crate) starts_are_over: bool,
}

/// How many workers are ready, for callers that wait for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    pub(crate) ready: usize,
    /// The number of workers that callers wait for; 0 before a call has needed some.
    pub(crate) wanted: usize,
    pub(crate) has_ended: bool,
}

/// See the module's documentation. `W` is the handle of a worker, `C` the handle of a caller.
pub(crate) struct PoolLife<W, C> {
    pub(crate) scheduler: Scheduler<W, C>,
    phase: PoolPhase,
    /// Why it takes no calls, if it takes none.
    refusal: Option<PoolEndReason>,
    /// Whether a call has needed workers.
    is_started: bool,
    /// Whether the supervisor of the workers runs.
    is_supervised: bool,
    /// The least and the largest number of workers.
    bounds: RangeInclusive<usize>,
    /// The threads of each worker.
    threads: u64,
    /// The number of tasks after which a worker is replaced.
    quota: Option<u64>,
    wanted: usize,
    /// The number of the next worker.
    next: WorkerNumber,
    /// The workers that the pool wants.
    children: SortedMap<WorkerNumber, ()>,
    /// Looks in a row at which fewer workers were enough.
    looks_below: u32,
    missing: MissingWorkers,
    disrupted: DisruptedWorkers,
    /// The readiness that callers know.
    known: Readiness,
    /// The number of workers that callers wait for.
    awaited: usize,
}

impl<W: Incarnation, C: Clone> PoolLife<W, C> {
    pub(crate) fn new(
        bounds: RangeInclusive<usize>,
        threads: u64,
        quota: Option<u64>,
    ) -> PoolLife<W, C> {
        PoolLife {
            scheduler: Scheduler::new(),
            phase: PoolPhase::Open,
            refusal: None,
            is_started: false,
            is_supervised: false,
            wanted: *bounds.start(),
            bounds,
            threads,
            quota,
            next: 1,
            children: SortedMap::new(),
            looks_below: 0,
            missing: MissingWorkers::default(),
            disrupted: DisruptedWorkers::default(),
            known: Readiness::default(),
            awaited: 0,
        }
    }

    pub(crate) fn phase(&self) -> PoolPhase {
        self.phase
    }

    /// Returns why the pool takes no calls, if it takes none.
    pub(crate) fn refusal(&self) -> Option<PoolEndReason> {
        self.refusal.clone()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.phase == PoolPhase::Ended
    }

    /// Returns whether a call has needed workers.
    pub(crate) fn is_started(&self) -> bool {
        self.is_started
    }

    /// Returns whether the number of workers follows the number of tasks.
    pub(crate) fn scales(&self) -> bool {
        self.bounds.start() < self.bounds.end()
    }

    pub(crate) fn readiness(&self) -> Readiness {
        let has_ended = self.has_ended();
        let ready = if has_ended { 0 } else { self.scheduler.workers() };
        Readiness { ready, wanted: self.awaited, has_ended }
    }

    /// Returns whether the readiness has changed since the last time.
    pub(crate) fn note_readiness(&mut self) -> bool {
        let now = self.readiness();
        std::mem::replace(&mut self.known, now) != now
    }

    /// Starts the workers when a call needs some for the first time, with the resources that its
    /// function requests.
    pub(crate) fn start(&mut self, meta: Meta, effects: &mut Effects<W, C>) {
        if !self.is_started && !self.has_ended() {
            self.is_started = true;
            self.await_workers();
            effects.requests.push(ControllerRequest::Start(meta));
        }
    }

    /// Notes that the supervisor of the workers runs.
    pub(crate) fn supervisor_started(&mut self, effects: &mut Effects<W, C>) {
        self.is_supervised = true;
        self.adjust(effects);
    }

    /// Takes no more calls.
    pub(crate) fn close(&mut self) {
        if self.phase == PoolPhase::Open {
            (self.phase, self.refusal) = (PoolPhase::Closed, Some(PoolEndReason::Closed));
        }
    }

    /// Returns whether the pool is closed and has no calls.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == PoolPhase::Closed && self.scheduler.is_empty()
    }

    /// Ends a pool that is over.
    pub(crate) fn end_if_over(&mut self, effects: &mut Effects<W, C>) {
        if self.is_over() {
            self.end(PoolEndReason::Stopped, effects);
        }
    }

    /// Ends the pool and kills its workers.
    pub(crate) fn kill(&mut self, reason: PoolEndReason, effects: &mut Effects<W, C>) {
        self.end(reason, effects);
        let workers = self.scheduler.handles().into_iter();
        effects.kills.extend(workers.map(|worker| (worker, ExitReason::Shutdown)));
    }

    /// Ends the pool: fails all calls, also later ones, and stops the workers.
    pub(crate) fn end(&mut self, reason: PoolEndReason, effects: &mut Effects<W, C>) {
        if !self.has_ended() {
            (self.phase, self.refusal) = (PoolPhase::Ended, Some(reason.clone()));
            effects.ended = Some((reason, self.scheduler.abandon()));
            effects.requests.push(ControllerRequest::Stop);
        }
    }

    /// Sets the number of workers.
    pub(crate) fn scale(&mut self, wanted: usize, effects: &mut Effects<W, C>) {
        self.wanted = wanted;
        self.adjust(effects);
        self.await_workers();
    }

    /// Sets the number of workers that the open tasks need.
    pub(crate) fn scale_with_tasks(&mut self, effects: &mut Effects<W, C>) {
        if !self.replaces_workers() {
            return;
        }
        let needed = self.scheduler.open().div_ceil(self.threads);
        let needed = usize::try_from(needed).unwrap_or(usize::MAX);
        let needed = needed.clamp(*self.bounds.start(), *self.bounds.end());
        self.looks_below = if needed < self.wanted { self.looks_below + 1 } else { 0 };
        if needed > self.wanted || self.looks_below > LOOKS_BEFORE_SHRINKING {
            self.looks_below = 0;
            self.scale(needed, effects);
        }
    }

    /// Adds an incarnation of a worker that is ready.
    pub(crate) fn worker_ready(
        &mut self,
        id: WorkerId,
        worker: W,
        host: Option<HostNumber>,
        effects: &mut Effects<W, C>,
    ) {
        let number = worker.number();
        self.missing.ready(number);
        if !self.children.contains_key(&number) {
            // A drained worker died before it stopped, and the supervisor replaced it.
            self.scheduler.join(id, worker, self.threads, Some(0), host, effects);
            return self.scheduler.drain(id, Retirement::Superfluous, effects);
        }
        self.scheduler.join(id, worker, self.threads, self.quota, host, effects);
        if self.missing.warning == Warning::Logged
            && self.missing.is_empty()
            && self.scheduler.workers() >= self.wanted
        {
            self.missing.warning = Warning::None;
            let whole = format!(" has all its {} workers again", self.wanted);
            effects.notices.push(Notice::Info(whole));
        }
        // The pool may have been scaled down during the start.
        self.adjust(effects);
        self.await_workers();
    }

    /// Notes that the process of a worker has ended, which was the incarnation `id` if it was
    /// ready. Returns what its end means.
    pub(crate) fn worker_ended(
        &mut self,
        number: WorkerNumber,
        id: Option<WorkerId>,
        exit: Exit,
        around: &Surroundings,
        effects: &mut Effects<W, C>,
    ) -> Verdict {
        let is_young = |worker: &W| worker.is_young(around.now);
        let lived = id.map(|id| self.scheduler.life(id, is_young)).unwrap_or_default();
        let verdict = judge(exit, lived);
        if let Some(id) = id {
            self.scheduler.lost(id, &verdict, effects);
        }
        let reason = &verdict.exit.reason;
        if reason.is_disruption()
            && let Some(workers) = self.disrupted.add(self.scheduler.done())
        {
            effects.notices.push(Notice::Warning(format!(
                ": {workers} workers in a row have ended from outside before any task was \
                 completed; the last {reason}. The pool goes on; shorter tasks or a longer `grace` \
                 would let it finish"
            )));
        }
        match verdict.lesson {
            Lesson::Nothing => {}
            Lesson::HadTask | Lesson::Lives => self.missing.worked(),
            Lesson::StartFailed => {
                self.start_failed(number, reason.start_problem(), around, effects);
            }
            Lesson::DiedUnused => {
                self.missing.died_unused(around.now);
                self.give_up_if_hopeless(&verdict.exit.to_string(), around, effects);
            }
        }
        verdict
    }

    /// Notes that a worker waits for room, for `reason`, or does not wait any more. Meanwhile the
    /// pool works with the others.
    pub(crate) fn scheduling_changed(
        &mut self,
        number: WorkerNumber,
        reason: Option<String>,
        effects: &mut Effects<W, C>,
    ) {
        match reason {
            Some(reason) if self.children.contains_key(&number) => {
                self.missing.no_room(number, reason);
                self.warn_later(effects);
            }
            Some(_) => {}
            None => self.missing.found_room(number),
        }
        self.await_workers();
    }

    /// Logs one warning once each worker is either ready or missing. It is the answer to
    /// [`ControllerRequest::WarnLater`].
    pub(crate) fn warn_of_missing(&mut self, effects: &mut Effects<W, C>) {
        self.missing.warning = Warning::None;
        let Some(cause) = self.missing.cause().cloned() else { return };
        let (ready, wanted) = (self.readiness().ready, self.wanted);
        if ready == 0 || ready + self.missing.len() < wanted {
            return self.warn_later(effects);
        }
        self.missing.warning = Warning::Logged;
        self.await_workers();
        let missing = match cause {
            MissingCause::NoRoom(message) => {
                format!("grows when there is room for the others: {message}")
            }
            MissingCause::StartFailed(problem) => {
                format!("goes on trying to start the others; a start failed: {problem}")
            }
        };
        let notice = format!(" works with {ready} of {wanted} workers, and {missing}");
        effects.notices.push(Notice::Warning(notice));
    }

    /// Notes that a worker could not be started. The pool works with the others, and the supervisor
    /// tries again.
    fn start_failed(
        &mut self,
        number: WorkerNumber,
        problem: String,
        around: &Surroundings,
        effects: &mut Effects<W, C>,
    ) {
        if !self.replaces_workers() {
            return;
        }
        if !self.children.contains_key(&number) {
            return effects.requests.push(ControllerRequest::StopWorker(number));
        }
        let ready = self.scheduler.workers();
        self.missing.start_failed(number, problem.clone(), ready, around.now);
        if around.starts_are_over {
            self.missing.starts_are_over();
        }
        self.await_workers();
        self.warn_later(effects);
        self.give_up_if_hopeless(&problem, around, effects);
    }

    /// Ends the pool if no worker can be expected any more. `last` describes the last failure.
    fn give_up_if_hopeless(
        &mut self,
        last: &str,
        around: &Surroundings,
        effects: &mut Effects<W, C>,
    ) {
        let give_up = self.missing.give_up(&self.children, around.start_timeout, around.now);
        let Some(give_up) = give_up else { return };
        let problem = match give_up {
            GiveUp::NoneStarted => format!("its workers could not be started: {last}"),
            GiveUp::StartsFailed(count) => {
                format!("{count} starts of workers in a row failed; the last: {last}")
            }
            GiveUp::DiedUnused(count) => {
                format!(
                    "{count} workers in a row died young, before they had a task; the last {last}"
                )
            }
        };
        self.end(PoolEndReason::Failed(problem), effects);
    }

    fn warn_later(&mut self, effects: &mut Effects<W, C>) {
        if self.missing.warning == Warning::None {
            self.missing.warning = Warning::Scheduled;
            effects.requests.push(ControllerRequest::WarnLater);
        }
    }

    /// Returns whether workers that end are replaced.
    fn replaces_workers(&self) -> bool {
        self.is_supervised && !self.has_ended()
    }

    /// Lets callers wait for the workers that are not missing.
    fn await_workers(&mut self) {
        // At least one: a pool without workers is not ready.
        self.awaited = self.wanted.saturating_sub(self.missing.excused()).max(1);
    }

    /// Adds or removes workers until there are as many as wanted.
    fn adjust(&mut self, effects: &mut Effects<W, C>) {
        if !self.replaces_workers() {
            return;
        }
        if self.children.len() < self.wanted {
            let first = self.next;
            while self.children.len() < self.wanted {
                self.children.insert(self.next, ());
                self.next += 1;
            }
            effects.requests.push(ControllerRequest::AddWorkers(first..self.next));
        }
        // Missing workers go first.
        while self.children.len() > self.wanted
            && let Some(number) = self.missing.pop()
        {
            self.children.remove(&number);
            effects.requests.push(ControllerRequest::StopWorker(number));
        }
        let superfluous = self.children.len().saturating_sub(self.wanted);
        if superfluous > 0 {
            for worker in self.scheduler.retire_some(superfluous, effects) {
                self.children.remove(&worker.number());
            }
        }
    }
}
