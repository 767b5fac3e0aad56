//! The transitions of one child, in the order of its life.

use std::time::Duration;

use fiber_core::stats::Strategy;
use fiber_core::{Error, ExitReason};

use super::super::spec::{Restart, Shutdown};
use super::child::{ChildPhase, Ending, Origin, StartOrder, StopCause, StopStep, Stopping, Uptime};
use super::event::{Effect, Key, Request, Turn};
use super::state::{Phase, Sequence, StopMode, Supervision};
use super::timers::{Timer, is_over};

/// Time limit for the end of a killed child; after it, the supervisor goes on without waiting.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// The start.
impl Supervision {
    /// Starts the next incarnation of a child: pending or backing off → starting.
    pub(super) fn start_child(&mut self, key: Key, order: StartOrder, turn: &mut Turn<'_>) {
        let Some(child) = self.children.get_mut(&key) else { return };
        child.incarnation += 1;
        child.restarts_with_group = false;
        child.phase = ChildPhase::Starting(order);
        turn.push(Effect::Start { key, incarnation: child.incarnation });
    }

    /// Starting → running, unless the report comes from an earlier incarnation.
    pub(super) fn child_started(&mut self, key: Key, incarnation: u64, turn: &mut Turn<'_>) {
        let Some(child) = self.children.get_mut(&key) else { return };
        if child.incarnation != incarnation || !matches!(child.phase, ChildPhase::Starting(_)) {
            return;
        }
        child.phase = ChildPhase::Running { since: turn.now };
        turn.push(Effect::Started(key));
        if let Origin::Adding(request) = child.origin {
            child.origin = Origin::Added;
            turn.push(Effect::Answer(request, Ok(())));
        }
    }
}

/// The stop.
impl Supervision {
    /// Stops a child: running → stopping. A child that is starting ends at once. With `kill`, or if
    /// the specification says so, the child is killed for this reason. `waiter` gets its answer at
    /// the end.
    pub(super) fn stop_child(
        &mut self,
        key: Key,
        cause: StopCause,
        kill: Option<ExitReason>,
        waiter: Option<Request>,
        turn: &mut Turn<'_>,
    ) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let shutdown = child.rules.shutdown;
        let kill = kill.or_else(|| (shutdown == Shutdown::Kill).then_some(ExitReason::Shutdown));
        let limit = match (&kill, shutdown) {
            (Some(_), _) => Some(KILL_TIMEOUT),
            (None, Shutdown::After(limit)) => Some(limit),
            (None, Shutdown::Wait | Shutdown::Kill) => None,
        };
        let mut deadline = || self.timers.set(turn.now, limit?, Timer::Child(key));
        match &mut child.phase {
            ChildPhase::Running { since } => {
                child.phase = ChildPhase::Stopping(Stopping {
                    cause,
                    until: deadline(),
                    waiters: waiter.into_iter().collect(),
                    since: *since,
                    step: ask_or_kill(key, kill, turn),
                });
            }
            ChildPhase::Stopping(stopping) => {
                stopping.cause = stopping.cause.max(cause);
                stopping.waiters.extend(waiter);
                if let (Some(_), StopStep::Asked) = (&kill, &stopping.step) {
                    stopping.until = deadline();
                    stopping.step = ask_or_kill(key, kill, turn);
                }
            }
            ChildPhase::Starting(_) => {
                // Dropping the future of its start ends it.
                let reason = kill.unwrap_or(ExitReason::Shutdown);
                self.child_exited(key, reason, false, Some(cause), turn);
                turn.effects.extend(waiter.map(|waiter| Effect::Answer(waiter, Ok(()))));
            }
            ChildPhase::Pending | ChildPhase::BackingOff { .. } | ChildPhase::Finished => {}
        }
    }

    /// Handles a timer: backing off → starting, or the next step of a stop. It may have been set
    /// for an earlier phase.
    pub(super) fn timer_expired(&mut self, timer: Timer, turn: &mut Turn<'_>) {
        let key = match (timer, &self.sequence) {
            (Timer::Child(key), _) => key,
            (Timer::Group, Sequence::Paused(until)) if is_over(*until, turn.now) => {
                self.sequence = Sequence::InProgress;
                return;
            }
            (Timer::Group, _) => return,
        };
        let Some(child) = self.children.get_mut(&key) else { return };
        match &mut child.phase {
            ChildPhase::BackingOff { until } if is_over(*until, turn.now) => {
                self.start_child(key, StartOrder::Concurrent, turn);
            }
            ChildPhase::Stopping(stopping) if is_over(stopping.until, turn.now) => {
                match stopping.step.clone() {
                    StopStep::Asked => {
                        turn.push(Effect::Late(key));
                        stopping.step = ask_or_kill(key, Some(ExitReason::Shutdown), turn);
                        stopping.until = self.timers.set(turn.now, KILL_TIMEOUT, timer);
                    }
                    StopStep::Killed(reason) => {
                        turn.push(Effect::Unconfirmed(key));
                        self.child_exited(key, reason, false, None, turn);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The end.
impl Supervision {
    /// Handles the end of an incarnation. `cause` is why the supervisor stopped a child that was
    /// starting.
    pub(super) fn child_exited(
        &mut self,
        key: Key,
        reason: ExitReason,
        has_worked: bool,
        cause: Option<StopCause>,
        turn: &mut Turn<'_>,
    ) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let ran = |since| Uptime::Ran(turn.now.saturating_duration_since(since));
        let (uptime, cause, waiters) = match &mut child.phase {
            ChildPhase::Starting(order) => (Uptime::NotStarted(*order), cause, Vec::new()),
            ChildPhase::Running { since } => (ran(*since), None, Vec::new()),
            ChildPhase::Stopping(stopping) => {
                let waiters = std::mem::take(&mut stopping.waiters);
                (ran(stopping.since), Some(stopping.cause), waiters)
            }
            ChildPhase::Pending | ChildPhase::BackingOff { .. } | ChildPhase::Finished => return,
        };
        child.phase = ChildPhase::Pending;
        // If the group restart was about to stop the child, this end is part of that restart.
        let cause = cause.max(child.restarts_with_group.then_some(StopCause::Group));
        turn.push(Effect::Ended { key, reason: reason.clone() });
        let temporary = child.rules.restart == Restart::Temporary;
        match cause {
            _ if self.is_stopping() => self.remove(key, &reason, turn),
            Some(StopCause::Remove) => self.remove(key, &reason, turn),
            Some(StopCause::Group) if temporary => self.remove(key, &reason, turn),
            // It is pending.
            Some(StopCause::Group) => {}
            Some(StopCause::Kill) | None => {
                self.child_failed(key, Ending { reason, uptime, has_worked }, turn);
            }
        }
        turn.effects.extend(waiters.into_iter().map(|waiter| Effect::Answer(waiter, Ok(()))));
    }

    /// Decides what follows an end that the supervisor did not ask for.
    fn child_failed(&mut self, key: Key, ending: Ending, turn: &mut Turn<'_>) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let Ending { reason, uptime, has_worked } = ending;
        if let (Origin::Adding(request), Uptime::NotStarted(_)) = (child.origin, uptime) {
            child.origin = Origin::Added;
            let name = format!("{}/{}", self.path, child.name);
            self.remove(key, &reason, turn);
            return turn.push(Effect::Answer(request, Err(Error::Start { name, reason })));
        }
        if let (Phase::Starting, Uptime::NotStarted(StartOrder::Sequential), 1) =
            (&self.phase, uptime, child.incarnation)
        {
            let problem = match self.options.is_of_one {
                true => reason.start_problem(),
                false => format!("its child `{}` {reason}", child.name),
            };
            child.phase = ChildPhase::Finished;
            return self.stop_all(ExitReason::NotStarted(problem), StopMode::InOrder, turn);
        }
        if !child.rules.restart.follows(&reason) {
            if child.rules.restart == Restart::Temporary || child.is_added() {
                return self.remove(key, &reason, turn);
            }
            child.phase = ChildPhase::Finished;
            return turn.push(Effect::Finished(key));
        }
        if child.rules.gives_up_itself && matches!(reason, ExitReason::IntensityReached { .. }) {
            return self.give_up(key, reason, turn);
        }
        let mut pause = Duration::ZERO;
        if child.rules.counts.apply(&reason, uptime.ran()) {
            if self.failures.add(turn.now, &self.options.limits.intensity) {
                let reached = self.options.limits.intensity.reached(&child.name, reason);
                return self.give_up(key, reached, turn);
            }
            let backoff = &self.options.limits.backoff;
            let ran_long = uptime.ran().is_some_and(|ran| ran >= backoff.resets_after());
            if ran_long || has_worked {
                child.failures_in_a_row = 0;
            }
            pause = backoff.pause(child.failures_in_a_row, (turn.chance)());
            child.failures_in_a_row = child.failures_in_a_row.saturating_add(1);
        }
        let start_failed = uptime.ran().is_none();
        let is_repeated = std::mem::replace(&mut child.last_start_failed, start_failed);
        let is_repeated = is_repeated && start_failed;
        turn.push(Effect::Failed { key, reason, pause, is_repeated });
        self.restart(key, pause, turn);
    }

    /// Ends the supervisor after too many failures of a child.
    fn give_up(&mut self, key: Key, reached: ExitReason, turn: &mut Turn<'_>) {
        if let Some(child) = self.children.get_mut(&key) {
            child.phase = ChildPhase::Finished;
        }
        turn.push(Effect::GaveUp(reached.clone()));
        self.stop_all(reached, StopMode::InOrder, turn);
    }

    /// Restarts a failed child, and the siblings that the strategy restarts with it.
    fn restart(&mut self, key: Key, pause: Duration, turn: &mut Turn<'_>) {
        let first = match self.options.strategy {
            Strategy::OneForOne if pause.is_zero() => {
                return self.start_child(key, StartOrder::Concurrent, turn);
            }
            Strategy::OneForOne => {
                if let Some(child) = self.children.get_mut(&key) {
                    let until = self.timers.set(turn.now, pause, Timer::Child(key));
                    child.phase = ChildPhase::BackingOff { until };
                }
                return;
            }
            Strategy::OneForAll => Key(0),
            Strategy::RestForOne => key,
        };
        for (_, child) in self.children.iter_mut().filter(|(key, _)| **key >= first) {
            match child.phase {
                ChildPhase::Pending => {}
                ChildPhase::BackingOff { .. } | ChildPhase::Finished => {
                    child.phase = ChildPhase::Pending;
                }
                ChildPhase::Starting(_) | ChildPhase::Running { .. } | ChildPhase::Stopping(_) => {
                    child.restarts_with_group = true;
                }
            }
        }
        self.sequence = if pause.is_zero() {
            Sequence::InProgress
        } else {
            Sequence::Paused(self.timers.set(turn.now, pause, Timer::Group))
        };
    }
}

fn ask_or_kill(key: Key, kill: Option<ExitReason>, turn: &mut Turn<'_>) -> StopStep {
    match kill {
        Some(reason) => {
            turn.push(Effect::Kill(key, reason.clone()));
            StopStep::Killed(reason)
        }
        None => {
            turn.push(Effect::Shutdown(key));
            StopStep::Asked
        }
    }
}
