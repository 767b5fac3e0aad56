//! What a supervisor does with each of its children.

use std::time::{Duration, Instant};

use fiber_core::{Error, ExitReason};
use tokio::sync::oneshot;

use super::child::{Cause, Ending, Got, Origin, Phase, Plan, Stage, Turn};
use super::drive::{caught, guarded};
use super::event::{Event, Key, News, Task, Timer, Whose};
use super::identity::Life;
use super::machine::{Doing, Pace, Supervisor, Turns};
use super::spec::{Restart, Shutdown};
use super::start::{ChildContext, Control};
use super::strategy::Strategy;
use super::tree::{ChildKind, State};

/// How long a killed child may take to end before it is given up.
const GRACE: Duration = Duration::from_secs(5);

impl Supervisor {
    /// Starts the next incarnation of a child.
    pub(super) fn begin(&mut self, key: Key, turn: Turn) {
        let events = self.events.clone();
        let Some(child) = self.children.get_mut(&key) else { return };
        child.incarnation += 1;
        let incarnation = child.incarnation;
        child.plan = Plan::Keep;
        child.entry.update(|facts| {
            facts.incarnation = incarnation;
            facts.place = None;
            facts.enter(if incarnation == 1 { State::Starting } else { State::Restarting });
        });
        if incarnation > 1 {
            self.entry.update(|facts| {
                if let ChildKind::Supervisor { restarts, .. } = &mut facts.kind {
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
        let start = caught(|| child.spec.start.lock().start(context));
        let tell = move |news| {
            // A supervisor that is gone needs no news.
            let _ = events.send(Event::Child { key, incarnation, news });
        };
        let task = Task::spawn(async move {
            let started = match start {
                Ok(start) => guarded(start).await.and_then(|started| started),
                Err(reason) => Err(reason),
            };
            match started {
                Ok(running) => {
                    tell(News::Started { place: running.place, control: running.control });
                    tell(News::Ended(
                        guarded(running.exited).await.unwrap_or_else(|reason| reason),
                    ));
                }
                Err(reason) => tell(News::Ended(reason)),
            }
        });
        child.state = Phase::Starting { task, life: Life::new(child.spec.identity.clone()), turn };
    }

    /// Tells a child to end; [`ended`](Self::ended) follows. With `kill`, or if its specification
    /// says so, at once.
    pub(super) fn end(
        &mut self,
        key: Key,
        cause: Cause,
        kill: Option<ExitReason>,
        waiter: Option<oneshot::Sender<()>>,
    ) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let timer = |time| Timer::start(&self.events, Whose::Child(key), time);
        let kill = kill
            .or_else(|| (child.spec.shutdown == Shutdown::Kill).then_some(ExitReason::Shutdown));
        let limit = match (&kill, child.spec.shutdown) {
            (Some(_), _) => Some(timer(GRACE)),
            (None, Shutdown::After(limit)) => Some(timer(limit)),
            (None, Shutdown::Wait | Shutdown::Kill) => None,
        };
        child.state = match std::mem::replace(&mut child.state, Phase::Due) {
            Phase::Running { mut control, task, life, since } => {
                child.entry.update(|facts| facts.enter(State::Stopping));
                let stage = ask(&mut *control, kill);
                Phase::Ending(Ending {
                    control,
                    cause,
                    waiters: waiter.into_iter().collect(),
                    stage,
                    timer: limit,
                    _task: task,
                    life,
                    since,
                })
            }
            Phase::Ending(mut ending) => {
                ending.cause = ending.cause.max(cause);
                ending.waiters.extend(waiter);
                if let (Some(_), Stage::Asked) = (&kill, &ending.stage) {
                    ending.stage = ask(&mut *ending.control, kill);
                    ending.timer = limit;
                }
                Phase::Ending(ending)
            }
            starting @ Phase::Starting { .. } => {
                // What there is of it ends with its start's future.
                child.state = starting;
                return self.ended(key, kill.unwrap_or(ExitReason::Shutdown), Some(cause));
            }
            other => other,
        };
    }

    /// An incarnation has ended. `cause`: it was ended while it was being started.
    fn ended(&mut self, key: Key, reason: ExitReason, cause: Option<Cause>) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let (life, got, cause, waiters) = match std::mem::replace(&mut child.state, Phase::Due) {
            Phase::Starting { life, turn, .. } => (life, Got::NotStarted(turn), cause, Vec::new()),
            Phase::Running { life, since, .. } => {
                (life, Got::Ran(since.elapsed()), None, Vec::new())
            }
            Phase::Ending(Ending { life, since, cause, waiters, .. }) => {
                (life, Got::Ran(since.elapsed()), Some(cause), waiters)
            }
            not_alive => {
                child.state = not_alive;
                return;
            }
        };
        // It was about to be ended with its siblings: this failure is part of theirs.
        let cause = cause.max((child.plan == Plan::EndAndStart).then_some(Cause::Group));
        life.end(&reason);
        child.entry.update(|facts| {
            facts.last_exit = Some(reason.clone());
            facts.place = None;
            facts.enter(State::Restarting);
        });
        let temporary = child.spec.restart == Restart::Temporary;
        match cause {
            _ if self.is_ending() => self.remove(key, &reason),
            Some(Cause::Terminate) => self.remove(key, &reason),
            Some(Cause::Group) if temporary => self.remove(key, &reason),
            // It is due.
            Some(Cause::Group) => {}
            Some(Cause::Kill) | None => self.failed(key, reason, got),
        }
        for waiter in waiters {
            let _ = waiter.send(());
        }
    }

    /// A child ended though nobody had planned it, or could not be started.
    fn failed(&mut self, key: Key, reason: ExitReason, got: Got) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let path = child.spec.identity.path().to_string();
        let first = child.incarnation == 1;
        match (std::mem::replace(&mut child.origin, Origin::Added), got) {
            (Origin::Adding(answer), Got::NotStarted(_)) => {
                self.remove(key, &reason);
                // Who asked may have gone since.
                let _ =
                    answer.send(Err(Error::Start { name: path, problem: reason.start_problem() }));
                return;
            }
            (origin, _) => child.origin = origin,
        }
        if let (Doing::Launching(_), Got::NotStarted(Turn::InTurn), true) =
            (&self.doing, got, first)
        {
            let problem = format!("its child `{}` {reason}", child.spec.name());
            child.state = Phase::Ended;
            return self.conclude(ExitReason::NotStarted(problem), Pace::InTurn);
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
            child.entry.update(|facts| facts.enter(State::Ended));
            child.state = Phase::Ended;
            return;
        }
        let mut pause = Duration::ZERO;
        if child.spec.counts.apply(&reason, got.ran()) {
            if self.failures.add(Instant::now(), &self.options.intensity) {
                let reached = self.options.intensity.reached(child.spec.name(), reason);
                tracing::error!("supervisor `{}` {reached}", self.identity.path());
                child.state = Phase::Ended;
                return self.conclude(reached, Pace::InTurn);
            }
            let backoff = &self.options.backoff;
            if got.ran().is_some_and(|ran| ran >= backoff.resets_after()) {
                child.streak = 0;
            }
            pause = backoff.pause(child.streak, fiber_core::random_fraction());
            child.streak = child.streak.saturating_add(1);
        }
        // A shortage may last for hours: starts that fail in a row are logged once.
        let start_failed = got.ran().is_none();
        if std::mem::replace(&mut child.start_failed, start_failed) && start_failed {
            tracing::debug!("`{path}` {reason}; it is restarted in {pause:?}");
        } else {
            tracing::warn!("`{path}` {reason}; it is restarted in {pause:?}");
        }
        self.restart(key, pause);
    }

    /// Restarts a failed child, and those that the strategy restarts with it.
    fn restart(&mut self, key: Key, pause: Duration) {
        let first = match self.options.strategy {
            Strategy::OneForOne if pause.is_zero() => return self.begin(key, Turn::Alone),
            Strategy::OneForOne => {
                if let Some(child) = self.children.get_mut(&key) {
                    child.state =
                        Phase::Waiting(Timer::start(&self.events, Whose::Child(key), pause));
                }
                return;
            }
            Strategy::OneForAll => Key(0),
            Strategy::RestForOne => key,
        };
        for child in self.children.range_mut(first..).map(|(_, child)| child) {
            match child.state {
                Phase::Due => {}
                Phase::Waiting(_) | Phase::Ended => child.state = Phase::Due,
                Phase::Starting { .. } | Phase::Running { .. } | Phase::Ending(_) => {
                    child.plan = Plan::EndAndStart
                }
            }
        }
        self.turns = if pause.is_zero() {
            Turns::Busy
        } else {
            Turns::Paused(Timer::start(&self.events, Whose::Pause, pause))
        };
    }

    pub(super) fn news(&mut self, key: Key, incarnation: u64, news: News) {
        let Some(child) =
            self.children.get_mut(&key).filter(|child| child.incarnation == incarnation)
        else {
            return;
        };
        let (place, control) = match news {
            News::Ended(reason) => return self.ended(key, reason, None),
            News::Started { place, control } => (place, control),
        };
        child.state = match std::mem::replace(&mut child.state, Phase::Due) {
            Phase::Starting { task, life, .. } => {
                Phase::Running { control, task, life, since: Instant::now() }
            }
            other => {
                child.state = other;
                return;
            }
        };
        child.entry.update(|facts| {
            facts.place = place.or(facts.place.take());
            facts.enter(State::Running);
        });
        match std::mem::replace(&mut child.origin, Origin::Added) {
            Origin::Adding(answer) => {
                // Who asked may have gone since.
                let _ = answer.send(Ok(()));
            }
            origin => child.origin = origin,
        }
    }

    pub(super) fn time_over(&mut self, timer: u64, whose: Whose) {
        let key = match (whose, &self.turns) {
            (Whose::Child(key), _) => key,
            (Whose::Pause, Turns::Paused(pause)) if pause.id == timer => {
                self.turns = Turns::Busy;
                return;
            }
            (Whose::Pause, _) => return,
        };
        let Some(child) = self.children.get_mut(&key) else { return };
        match &mut child.state {
            Phase::Waiting(pause) if pause.id == timer => self.begin(key, Turn::Alone),
            Phase::Ending(ending)
                if ending.timer.as_ref().is_some_and(|running| running.id == timer) =>
            {
                let path = child.spec.identity.path();
                match &ending.stage {
                    Stage::Asked => {
                        tracing::warn!("`{path}` did not end in time: it is killed");
                        ending.stage = ask(&mut *ending.control, Some(ExitReason::Shutdown));
                        ending.timer = Some(Timer::start(&self.events, whose, GRACE));
                    }
                    Stage::Killed(reason) => {
                        tracing::error!("`{path}` was killed, but did not end: it is given up");
                        let reason = reason.clone();
                        self.ended(key, reason, None);
                    }
                }
            }
            // The state has changed since.
            _ => {}
        }
    }
}

/// Asks a child to end, or kills it.
fn ask(control: &mut dyn Control, kill: Option<ExitReason>) -> Stage {
    match kill {
        Some(reason) => {
            control.kill(reason.clone());
            Stage::Killed(reason)
        }
        None => {
            control.shutdown();
            Stage::Asked
        }
    }
}
