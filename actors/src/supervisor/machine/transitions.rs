//! The transitions of one child, in the order of its life.

use std::time::{Duration, Instant};

use fiber_core::{Error, ExitReason, rounded};
use tokio::sync::oneshot;

use super::super::actor_loop::{catch_panic, catch_panic_async};
use super::super::identity::DownGuard;
use super::super::spec::{Restart, Shutdown};
use super::super::start::{ChildContext, Control};
use super::super::tree::{ChildKind, ChildState};
use super::child::{ChildPhase, Origin, StartOrder, StopCause, StopStep, Stopping, Uptime};
use super::event::{ChildEvent, Event, Key, Task, Timer, TimerPurpose};
use super::state::{Phase, Sequence, StopMode, Supervisor};
use fiber_core::stats::Strategy;

/// Time limit for the end of a killed child; after it, the supervisor goes on without waiting.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// The start.
impl Supervisor {
    /// Starts the next incarnation of a child: pending or backing off → starting.
    pub(super) fn start_child(&mut self, key: Key, order: StartOrder) {
        let events = self.events.clone();
        let Some(child) = self.children.get_mut(&key) else { return };
        child.incarnation += 1;
        let incarnation = child.incarnation;
        child.restarts_with_group = false;
        child.entry.update(|data| {
            data.incarnation = incarnation;
            data.place = None;
            data.enter(if incarnation == 1 {
                ChildState::Starting
            } else {
                ChildState::Restarting
            });
        });
        if incarnation > 1 {
            if !self.options.is_quiet {
                child.announce_restart();
            }
            self.entry.update(|data| {
                if let ChildKind::Supervisor { restarts, .. } = &mut data.kind {
                    *restarts += 1;
                }
            });
        }
        let context = ChildContext {
            identity: child.spec.identity.clone(),
            incarnation,
            entry: child.entry.id(),
            arbiter: child.spec.arbiter.clone(),
        };
        let start = catch_panic(|| child.spec.start.lock().start(context));
        let report = move |event| {
            // The supervisor may be gone.
            let _ = events.send(Event::Child { key, incarnation, event });
        };
        let task = Task::spawn(async move {
            let started = match start {
                Ok(start) => catch_panic_async(start).await.and_then(|started| started),
                Err(reason) => Err(reason),
            };
            match started {
                Ok(running) => {
                    report(ChildEvent::Started { place: running.place, control: running.control });
                    let exit = catch_panic_async(running.exited).await;
                    report(ChildEvent::Exited(exit.unwrap_or_else(|reason| reason)));
                }
                Err(reason) => report(ChildEvent::Exited(reason)),
            }
        });
        let down_guard = DownGuard::new(child.spec.identity.clone());
        child.phase = ChildPhase::Starting { task, down_guard, order };
    }

    /// Handles an event of a child, unless it comes from an earlier incarnation.
    pub(super) fn child_event(&mut self, key: Key, incarnation: u64, event: ChildEvent) {
        let current = self.children.get(&key).is_some_and(|child| child.incarnation == incarnation);
        match event {
            _ if !current => {}
            ChildEvent::Started { place, control } => self.child_started(key, place, control),
            ChildEvent::Exited(reason) => self.child_exited(key, reason, None),
        }
    }

    /// Starting → running.
    fn child_started(&mut self, key: Key, place: Option<String>, control: Box<dyn Control>) {
        let Some(child) = self.children.get_mut(&key) else { return };
        child.phase = match std::mem::replace(&mut child.phase, ChildPhase::Pending) {
            ChildPhase::Starting { task, down_guard, .. } => {
                ChildPhase::Running { control, task, down_guard, since: Instant::now() }
            }
            other => {
                child.phase = other;
                return;
            }
        };
        child.entry.update(|data| {
            data.place = place.or(data.place.take());
            data.enter(ChildState::Running);
        });
        match std::mem::replace(&mut child.origin, Origin::Added) {
            Origin::Adding(answer) => {
                // The caller may have gone meanwhile.
                let _ = answer.send(Ok(()));
            }
            origin => child.origin = origin,
        }
    }
}

/// The stop.
impl Supervisor {
    /// Stops a child: running → stopping. A child that is starting ends at once. With `kill`, or if
    /// the specification says so, the child is killed for this reason. `waiter` resolves at its
    /// end.
    pub(super) fn stop_child(
        &mut self,
        key: Key,
        cause: StopCause,
        kill: Option<ExitReason>,
        waiter: Option<oneshot::Sender<()>>,
    ) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let timer = |time| Timer::start(&self.events, TimerPurpose::Child(key), time);
        let kill = kill
            .or_else(|| (child.spec.shutdown == Shutdown::Kill).then_some(ExitReason::Shutdown));
        let deadline = match (&kill, child.spec.shutdown) {
            (Some(_), _) => Some(timer(KILL_TIMEOUT)),
            (None, Shutdown::After(limit)) => Some(timer(limit)),
            (None, Shutdown::Wait | Shutdown::Kill) => None,
        };
        child.phase = match std::mem::replace(&mut child.phase, ChildPhase::Pending) {
            ChildPhase::Running { mut control, task, down_guard, since } => {
                child.entry.update(|data| data.enter(ChildState::Stopping));
                let step = ask_or_kill(&mut *control, kill);
                ChildPhase::Stopping(Stopping {
                    control,
                    cause,
                    waiters: waiter.into_iter().collect(),
                    step,
                    timer: deadline,
                    _task: task,
                    down_guard,
                    since,
                })
            }
            ChildPhase::Stopping(mut stopping) => {
                stopping.cause = stopping.cause.max(cause);
                stopping.waiters.extend(waiter);
                if let (Some(_), StopStep::Asked) = (&kill, &stopping.step) {
                    stopping.step = ask_or_kill(&mut *stopping.control, kill);
                    stopping.timer = deadline;
                }
                ChildPhase::Stopping(stopping)
            }
            starting @ ChildPhase::Starting { .. } => {
                // Dropping the future of its start ends it.
                child.phase = starting;
                return self.child_exited(key, kill.unwrap_or(ExitReason::Shutdown), Some(cause));
            }
            other => other,
        };
    }

    /// Handles a timer: backing off → starting, or the next step of a stop.
    pub(super) fn timer_expired(&mut self, timer: u64, purpose: TimerPurpose) {
        let key = match (purpose, &self.sequence) {
            (TimerPurpose::Child(key), _) => key,
            (TimerPurpose::Group, Sequence::Paused(pause)) if pause.id == timer => {
                self.sequence = Sequence::InProgress;
                return;
            }
            (TimerPurpose::Group, _) => return,
        };
        let Some(child) = self.children.get_mut(&key) else { return };
        match &mut child.phase {
            ChildPhase::BackingOff(pause) if pause.id == timer => {
                self.start_child(key, StartOrder::Concurrent);
            }
            ChildPhase::Stopping(stopping)
                if stopping.timer.as_ref().is_some_and(|running| running.id == timer) =>
            {
                let path = child.spec.identity.path();
                match &stopping.step {
                    StopStep::Asked => {
                        tracing::warn!("`{path}` did not stop in time: killing it");
                        stopping.step =
                            ask_or_kill(&mut *stopping.control, Some(ExitReason::Shutdown));
                        stopping.timer = Some(Timer::start(&self.events, purpose, KILL_TIMEOUT));
                    }
                    StopStep::Killed(reason) => {
                        tracing::error!("`{path}` did not end after its kill: going on without it");
                        let reason = reason.clone();
                        self.child_exited(key, reason, None);
                    }
                }
            }
            // The timer was set for an earlier phase.
            _ => {}
        }
    }
}

/// The end.
impl Supervisor {
    /// Handles the end of an incarnation. `cause` is why the supervisor stopped a child that was
    /// starting.
    fn child_exited(&mut self, key: Key, reason: ExitReason, cause: Option<StopCause>) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let (down_guard, uptime, cause, waiters) =
            match std::mem::replace(&mut child.phase, ChildPhase::Pending) {
                ChildPhase::Starting { down_guard, order, .. } => {
                    (down_guard, Uptime::NotStarted(order), cause, Vec::new())
                }
                ChildPhase::Running { down_guard, since, .. } => {
                    (down_guard, Uptime::Ran(since.elapsed()), None, Vec::new())
                }
                ChildPhase::Stopping(Stopping { down_guard, since, cause, waiters, .. }) => {
                    (down_guard, Uptime::Ran(since.elapsed()), Some(cause), waiters)
                }
                not_alive => {
                    child.phase = not_alive;
                    return;
                }
            };
        // If the group restart was about to stop the child, this end is part of that restart.
        let cause = cause.max(child.restarts_with_group.then_some(StopCause::Group));
        down_guard.finish(&reason);
        child.entry.update(|data| {
            data.last_exit = Some(reason.clone());
            data.place = None;
            data.enter(ChildState::Restarting);
        });
        let temporary = child.spec.restart == Restart::Temporary;
        match cause {
            _ if self.is_stopping() => self.remove(key, &reason),
            Some(StopCause::Remove) => self.remove(key, &reason),
            Some(StopCause::Group) if temporary => self.remove(key, &reason),
            // It is pending.
            Some(StopCause::Group) => {}
            Some(StopCause::Kill) | None => self.child_failed(key, reason, uptime),
        }
        for waiter in waiters {
            let _ = waiter.send(());
        }
    }

    /// Decides what follows an end that the supervisor did not ask for.
    fn child_failed(&mut self, key: Key, reason: ExitReason, uptime: Uptime) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let path = child.spec.identity.path().to_string();
        let first = child.incarnation == 1;
        match (std::mem::replace(&mut child.origin, Origin::Added), uptime) {
            (Origin::Adding(answer), Uptime::NotStarted(_)) => {
                self.remove(key, &reason);
                // The caller may have gone meanwhile.
                let _ = answer.send(Err(Error::Start { name: path, reason }));
                return;
            }
            (origin, _) => child.origin = origin,
        }
        if let (Phase::Starting(_), Uptime::NotStarted(StartOrder::Sequential), true) =
            (&self.phase, uptime, first)
        {
            let problem = format!("its child `{}` {reason}", child.spec.name());
            child.phase = ChildPhase::Finished;
            return self.stop_all(ExitReason::NotStarted(problem), StopMode::InOrder);
        }
        let restart = match child.spec.restart {
            Restart::Permanent => true,
            Restart::Transient => !reason.is_normal(),
            Restart::Temporary => false,
        };
        if !restart {
            if child.spec.restart == Restart::Temporary || child.is_added() {
                return self.remove(key, &reason);
            }
            child.entry.update(|data| data.enter(ChildState::Ended));
            child.phase = ChildPhase::Finished;
            return;
        }
        let mut pause = Duration::ZERO;
        if child.spec.counts.apply(&reason, uptime.ran()) {
            if self.failures.add(Instant::now(), &self.options.intensity) {
                let reached = self.options.intensity.reached(child.spec.name(), reason);
                tracing::error!("supervisor `{}` {reached}", self.identity.path());
                child.phase = ChildPhase::Finished;
                return self.stop_all(reached, StopMode::InOrder);
            }
            let backoff = &self.options.backoff;
            if uptime.ran().is_some_and(|ran| ran >= backoff.resets_after()) {
                child.failures_in_a_row = 0;
            }
            pause = backoff.pause(child.failures_in_a_row, fiber_core::random_fraction());
            child.failures_in_a_row = child.failures_in_a_row.saturating_add(1);
        }
        // Starts may fail for hours, for lack of resources: only the first failure is a warning.
        let start_failed = uptime.ran().is_none();
        if std::mem::replace(&mut child.last_start_failed, start_failed) && start_failed {
            tracing::debug!("`{path}` {reason}; restarting it in {pause:?}");
        } else {
            tracing::warn!("`{path}` {reason}; restarting it in {}", rounded(pause));
        }
        self.restart(key, pause);
    }

    /// Restarts a failed child, and the siblings that the strategy restarts with it.
    fn restart(&mut self, key: Key, pause: Duration) {
        let first = match self.options.strategy {
            Strategy::OneForOne if pause.is_zero() => {
                return self.start_child(key, StartOrder::Concurrent);
            }
            Strategy::OneForOne => {
                if let Some(child) = self.children.get_mut(&key) {
                    let timer = Timer::start(&self.events, TimerPurpose::Child(key), pause);
                    child.phase = ChildPhase::BackingOff(timer);
                }
                return;
            }
            Strategy::OneForAll => Key(0),
            Strategy::RestForOne => key,
        };
        for child in self.children.range_mut(first..).map(|(_, child)| child) {
            match child.phase {
                ChildPhase::Pending => {}
                ChildPhase::BackingOff(_) | ChildPhase::Finished => {
                    child.phase = ChildPhase::Pending;
                }
                ChildPhase::Starting { .. }
                | ChildPhase::Running { .. }
                | ChildPhase::Stopping(_) => child.restarts_with_group = true,
            }
        }
        self.sequence = if pause.is_zero() {
            Sequence::InProgress
        } else {
            Sequence::Paused(Timer::start(&self.events, TimerPurpose::Group, pause))
        };
    }
}

fn ask_or_kill(control: &mut dyn Control, kill: Option<ExitReason>) -> StopStep {
    match kill {
        Some(reason) => {
            control.kill(reason.clone());
            StopStep::Killed(reason)
        }
        None => {
            control.shutdown();
            StopStep::Asked
        }
    }
}
