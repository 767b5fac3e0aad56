//! A child's life, from its job to its end, as a state machine: events go in, effects come out.
//!
//! It decides why a child has died. It has no clock, no process and no link:
//! [`child`](super::child) feeds it, carries its effects out, and asks it for the next
//! [deadline](ChildLife::deadline).
//!
//! - A child ends exactly once, and nothing happens after its end.
//! - The first cause counts: a command to kill it, lost heartbeats, a closed link, or its exit. An
//!   engine's reason for the end, such as an eviction, explains a silence.
//! - The owner gets no message before the child is ready, and none after its end.
//! - A killed child's end is confirmed within [`Limits::kill`], or given up.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use fiber_backends::{JobState, WaitReason};
use fiber_core::{Config, Exit, ExitReason};

use super::failure::{IS_INIT_FIRST, explain_early_end, not_accepted};
use super::{MAX_LAG, ProcessCommand};
use crate::runtime::child_exit::ChildExit;

const SIGKILL: i32 = 9;

/// Time limit for the end of a killed process; after it, the parent goes on without waiting.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limits of a life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// From a job that starts to a child that is ready.
    pub(super) start: Duration,
    /// For a job that waits for resources.
    pub(super) schedule: Duration,
    /// For a job that waits for its image.
    pub(super) pull: Duration,
    /// Without a heartbeat, for the text of the reason.
    pub(super) silence: Duration,
    /// Between the close of a link and the end of its process.
    pub(super) lag: Duration,
    /// From a kill to its confirmation.
    pub(super) kill: Duration,
}

/// The rest of the program, as far as a decision depends on it.
pub(super) trait Surroundings {
    /// Returns why this process could not accept connections since the child's start, if it could
    /// not.
    fn accept_failure(&self) -> Option<String>;

    /// Returns whether the child's host is being lost.
    fn is_host_failing(&self) -> bool;

    /// Returns whether the child may wait longer for resources than its limit.
    fn may_wait_longer(&self) -> bool;
}

/// An event in a child's life.
#[derive(Debug)]
pub(super) enum Event {
    /// Its job has another state.
    Job(JobState),
    /// It has connected, or its handshake has failed.
    Connected(Result<(), String>),
    /// It has sent a message.
    Message(MessageKind),
    /// Its link has closed.
    LinkClosed(LinkEnd),
    /// There was no message for longer than `heartbeat_timeout`.
    Silent,
    /// It runs, but this process can't accept its connection for a while.
    NotAccepted(String),
    Command(ProcessCommand),
    /// Its owner has gone away before it was ready.
    Unowned,
    /// The deadline has come.
    Deadline,
}

/// The messages of a child, as far as its life depends on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// Its work has started.
    Ready,
    /// Its work can't start.
    Failed(String),
    /// A heartbeat, or an answer to a question.
    Control,
    /// For the mesh or the telemetry: a child may send these before it is ready.
    Aside,
    /// A message of its main, for its owner.
    Main,
}

/// How a link has closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LinkEnd {
    Closed(String),
    /// A message could not be read.
    Unreadable(String),
}

impl LinkEnd {
    fn problem(self) -> String {
        match self {
            LinkEnd::Closed(problem) | LinkEnd::Unreadable(problem) => problem,
        }
    }
}

/// A step that the driver takes for a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Tell its owner why it can't be scheduled; `None`: it can.
    Unschedulable(Option<String>),
    /// Send it its work.
    Begin,
    /// Pass the message on that has just come.
    Deliver,
    /// Tell its owner that it is ready.
    Ready,
    /// Ask it to end when its work is done.
    Shutdown,
    /// Send SIGTERM.
    Terminate,
    /// Kill it, by its job and its link.
    Kill,
    /// Let others know that it is being lost, which takes a while.
    Failing,
    CloseLink,
    /// Log that its end was not confirmed.
    Unconfirmed,
    /// Tell its owner that it has ended. No effect follows.
    End(Exit),
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct ChildLife {
    limits: Limits,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// It is not ready.
    Starting(Starting),
    /// Its start has failed. Its last output comes with its end.
    Failing {
        reason: ExitReason,
        until: Option<Instant>,
    },
    Working,
    /// Its link has closed. Its exit explains more than that.
    Unlinked {
        problem: String,
        until: Option<Instant>,
    },
    Killed {
        verdict: ExitReason,
        is_linked: bool,
        until: Option<Instant>,
    },
    /// Its process has ended. Messages from before the end may still arrive.
    LastMessages {
        verdict: Option<ExitReason>,
        exit: Exit,
        until: Option<Instant>,
    },
    Ended,
}

/// A child that is not ready.
#[derive(Debug)]
struct Starting {
    phase: Phase,
    job: JobState,
    /// The end of the current step of its job. Each step has the full time.
    until: Option<Instant>,
    /// Commands that need a child at work.
    deferred: Vec<Effect>,
}

#[derive(Debug)]
enum Phase {
    Unconnected,
    Connected,
    /// Its link has closed. Its exit explains more than that.
    Unlinked {
        until: Option<Instant>,
    },
    /// Its process has ended. It may have been ready before, and its message may still arrive.
    Exited {
        exit: Exit,
        until: Option<Instant>,
    },
}

impl Starting {
    fn is_connected(&self) -> bool {
        !matches!(self.phase, Phase::Unconnected)
    }

    /// Returns the text for a step that has taken too long.
    fn too_late(&self, limits: &Limits) -> String {
        match &self.job {
            JobState::Waiting(WaitReason::Resources(message)) => format!(
                "it was not scheduled within {:?} (`schedule_timeout` sets the limit): {message}",
                limits.schedule
            ),
            JobState::Waiting(WaitReason::Node(message)) => format!(
                "its node did not begin to start it within {:?} (`schedule_timeout` sets the \
                 limit): {message}",
                limits.schedule
            ),
            JobState::Waiting(WaitReason::Image(message)) => format!(
                "its container was not created within {:?} (`pull_timeout` sets the limit): \
                 {message}",
                limits.pull
            ),
            _ if self.is_connected() => format!(
                "it connected, but did not get ready within {:?}: does its initializer take that \
                 long? (`start_timeout` sets the limit)",
                limits.start
            ),
            _ => format!(
                "it did not connect and get ready within {:?}: {IS_INIT_FIRST} (`start_timeout` \
                 sets the limit)",
                limits.start
            ),
        }
    }
}

impl ChildLife {
    /// Begins the life of a child whose job has just been created.
    pub(super) fn new(now: Instant, limits: Limits) -> ChildLife {
        let (phase, job) = (Phase::Unconnected, JobState::Starting);
        let until = now.checked_add(limits.start);
        let starting = Starting { phase, job, until, deferred: Vec::new() };
        ChildLife { limits, stage: Stage::Starting(starting) }
    }

    /// Returns when the life goes on although nothing happens.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Starting(starting) => match starting.phase {
                Phase::Exited { until, .. } => until,
                Phase::Unlinked { until } => [until, starting.until].into_iter().flatten().min(),
                Phase::Unconnected | Phase::Connected => starting.until,
            },
            Stage::Failing { until, .. }
            | Stage::Unlinked { until, .. }
            | Stage::Killed { until, .. }
            | Stage::LastMessages { until, .. } => *until,
            Stage::Working | Stage::Ended => None,
        }
    }

    /// Returns whether silence counts against the child.
    pub(super) fn must_send(&self) -> bool {
        match &self.stage {
            Stage::Starting(starting) => matches!(starting.phase, Phase::Connected),
            Stage::Working => true,
            _ => false,
        }
    }

    /// Returns whether it has not connected, so that a connection of it counts.
    pub(super) fn awaits_connection(&self) -> bool {
        matches!(&self.stage, Stage::Starting(starting) if !starting.is_connected())
    }

    /// Handles an event at the time `now`.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        event: Event,
        surroundings: &dyn Surroundings,
        effects: &mut Vec<Effect>,
    ) {
        let is_early = |until: Option<Instant>| until.is_none_or(|until| now < until);
        if matches!(event, Event::Deadline) && is_early(self.deadline()) {
            return;
        }
        let mut step = Step { now, limits: self.limits, surroundings, effects };
        // Most events are messages of a child at work.
        if let (Stage::Working, Event::Message(_)) = (&self.stage, &event) {
            return step.effects.push(Effect::Deliver);
        }
        self.stage = match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Starting(starting) => step.starting(starting, event),
            Stage::Failing { reason, until } => step.failing(reason, until, event),
            Stage::Working => step.working(event),
            Stage::Unlinked { problem, until } => step.unlinked(problem, until, event),
            Stage::Killed { verdict, is_linked, until } => {
                step.killed(verdict, is_linked, until, event)
            }
            Stage::LastMessages { verdict, exit, until } => {
                step.last_messages(verdict, exit, until, event)
            }
            Stage::Ended => Stage::Ended,
        };
    }
}

impl Limits {
    /// Returns the limits of a configuration, for a child whose process and link end within `lag`.
    pub(super) fn new(config: &Config, lag: Duration) -> Limits {
        Limits {
            start: config.start_timeout,
            schedule: config.schedule_timeout,
            pull: config.pull_timeout,
            silence: config.heartbeat_timeout,
            lag,
            kill: KILL_TIMEOUT,
        }
    }

    /// Returns the time of the step to which a job's state belongs.
    fn of_step(&self, job: &JobState) -> Option<Duration> {
        match job {
            JobState::Starting | JobState::Running => Some(self.start),
            JobState::Waiting(WaitReason::Resources(_) | WaitReason::Node(_)) => {
                Some(self.schedule)
            }
            JobState::Waiting(WaitReason::Image(_)) => Some(self.pull),
            JobState::AwaitsHost | JobState::Ended(_) => None,
        }
    }
}

/// Returns whether two states of a job belong to one step, which has one time limit.
fn is_same_step(one: &JobState, other: &JobState) -> bool {
    let step = |job: &JobState| match job {
        JobState::Starting | JobState::Running => 0,
        JobState::Waiting(WaitReason::Resources(_)) => 1,
        JobState::Waiting(WaitReason::Image(_)) => 2,
        JobState::Waiting(WaitReason::Node(_)) => 3,
        JobState::AwaitsHost => 4,
        JobState::Ended(_) => 5,
    };
    step(one) == step(other)
}

fn unschedulable(job: &JobState) -> Option<String> {
    match job {
        JobState::Waiting(WaitReason::Resources(message) | WaitReason::Node(message)) => {
            Some(message.clone())
        }
        _ => None,
    }
}

/// One event's way through the life: each method takes the data of a stage, and returns the next.
struct Step<'a> {
    now: Instant,
    limits: Limits,
    surroundings: &'a dyn Surroundings,
    effects: &'a mut Vec<Effect>,
}

impl Step<'_> {
    fn after(&self, limit: Duration) -> Option<Instant> {
        self.now.checked_add(limit)
    }

    fn do_now(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn end(&mut self, exit: Exit) -> Stage {
        self.do_now(Effect::End(exit));
        Stage::Ended
    }

    fn starting(&mut self, mut starting: Starting, event: Event) -> Stage {
        match (&starting.phase, event) {
            (_, Event::Command(ProcessCommand::Kill(reason))) => {
                self.do_now(Effect::Kill);
                return self.end(Exit::new(reason, Vec::new()));
            }
            (_, Event::Unowned) => {
                self.do_now(Effect::Kill);
                return self.end(Exit::new(ExitReason::Shutdown, Vec::new()));
            }
            (_, Event::Command(ProcessCommand::Shutdown)) => {
                starting.deferred.push(Effect::Shutdown);
            }
            (_, Event::Command(ProcessCommand::Terminate)) => {
                starting.deferred.push(Effect::Terminate);
            }

            (Phase::Unconnected, Event::Connected(Ok(()))) => {
                self.do_now(Effect::Begin);
                starting.phase = Phase::Connected;
            }
            (Phase::Unconnected, Event::Connected(Err(problem))) => {
                return self.unusable(&starting, problem);
            }
            (Phase::Unconnected, Event::NotAccepted(problem))
                if starting.job == JobState::Running =>
            {
                return self.fail(&starting, ExitReason::NotStarted(not_accepted(&problem)));
            }

            // Messages count also after the process's end: it may have got ready, done its work and
            // ended before this process has looked.
            (Phase::Connected | Phase::Exited { .. }, Event::Message(kind)) => {
                return self.answered(starting, kind);
            }
            (
                Phase::Connected | Phase::Exited { .. },
                Event::LinkClosed(LinkEnd::Unreadable(problem)),
            ) => {
                return self.unusable(&starting, format!("its answer can't be read: {problem}"));
            }
            (Phase::Connected, Event::LinkClosed(LinkEnd::Closed(_))) => {
                starting.phase = Phase::Unlinked { until: self.after(self.limits.lag) };
            }
            (Phase::Exited { exit, .. }, Event::LinkClosed(LinkEnd::Closed(_))) => {
                return self.end(explain_end(None, exit.clone()));
            }
            (Phase::Connected, Event::Silent) => {
                return self.fail(&starting, ExitReason::HeartbeatLost(self.limits.silence));
            }

            (_, Event::Job(JobState::Ended(exit))) => return self.exited(starting, exit),
            (_, Event::Job(job)) => {
                if !is_same_step(&starting.job, &job) {
                    self.do_now(Effect::Unschedulable(unschedulable(&job)));
                    starting.until = self.limits.of_step(&job).and_then(|limit| self.after(limit));
                }
                starting.job = job;
            }
            (_, Event::Deadline) => return self.start_is_late(starting),
            _ => {}
        }
        Stage::Starting(starting)
    }

    /// The process has ended before this process knew that it was ready.
    fn exited(&mut self, mut starting: Starting, exit: Exit) -> Stage {
        match starting.phase {
            Phase::Unconnected => {
                self.end(explain_early_end(exit, self.surroundings.accept_failure()))
            }
            Phase::Connected => {
                starting.phase = Phase::Exited { exit, until: self.after(MAX_LAG) };
                Stage::Starting(starting)
            }
            Phase::Unlinked { .. } => self.end(explain_end(None, exit)),
            Phase::Exited { .. } => Stage::Starting(starting),
        }
    }

    /// A child that is not ready has sent a message.
    fn answered(&mut self, starting: Starting, kind: MessageKind) -> Stage {
        match kind {
            MessageKind::Ready => {
                self.do_now(Effect::Ready);
                for effect in starting.deferred {
                    self.do_now(effect);
                }
                match starting.phase {
                    Phase::Exited { exit, .. } => {
                        Stage::LastMessages { verdict: None, exit, until: self.after(MAX_LAG) }
                    }
                    _ => Stage::Working,
                }
            }
            MessageKind::Failed(problem) => self.unusable(&starting, problem),
            MessageKind::Control => Stage::Starting(starting),
            MessageKind::Aside => {
                self.do_now(Effect::Deliver);
                Stage::Starting(starting)
            }
            MessageKind::Main => {
                let problem = "it sent an unexpected message before it was ready";
                self.unusable(&starting, problem.into())
            }
        }
    }

    /// The deadline of a start has come.
    fn start_is_late(&mut self, mut starting: Starting) -> Stage {
        let is_over = |until: Option<Instant>| until.is_some_and(|until| until <= self.now);
        match &starting.phase {
            Phase::Exited { exit, until } if is_over(*until) => {
                return self.end(explain_end(None, exit.clone()));
            }
            Phase::Unlinked { until } if is_over(*until) => {
                return self.unusable(&starting, "its link broke before it was ready".into());
            }
            _ => {}
        }
        if !is_over(starting.until) {
            return Stage::Starting(starting);
        }
        // Room may come at any time. A lost node keeps its job, and another job finds another node.
        let waits_for_room = matches!(starting.job, JobState::Waiting(WaitReason::Resources(_)));
        if waits_for_room && self.surroundings.may_wait_longer() {
            self.do_now(Effect::Unschedulable(unschedulable(&starting.job)));
            starting.until = self.after(self.limits.schedule);
            return Stage::Starting(starting);
        }
        let problem = starting.too_late(&self.limits);
        self.unusable(&starting, problem)
    }

    /// The child is alive, but can't work.
    fn unusable(&mut self, starting: &Starting, problem: String) -> Stage {
        // If it never connected and connections could not be accepted, that is the reason.
        let accept_failure = match starting.is_connected() {
            true => None,
            false => self.surroundings.accept_failure(),
        };
        let problem = accept_failure.map_or(problem, |problem| not_accepted(&problem));
        self.fail(starting, ExitReason::NotStarted(problem))
    }

    fn fail(&mut self, starting: &Starting, reason: ExitReason) -> Stage {
        self.do_now(Effect::Kill);
        match &starting.phase {
            Phase::Exited { exit, .. } => self.end(Exit::new(reason, exit.tail.clone())),
            _ => Stage::Failing { reason, until: self.after(MAX_LAG) },
        }
    }

    fn failing(&mut self, reason: ExitReason, until: Option<Instant>, event: Event) -> Stage {
        match event {
            Event::Job(JobState::Ended(exit)) => self.end(Exit::new(reason, exit.tail)),
            Event::Deadline => self.end(Exit::new(reason, Vec::new())),
            _ => Stage::Failing { reason, until },
        }
    }

    fn working(&mut self, event: Event) -> Stage {
        match event {
            Event::Command(ProcessCommand::Shutdown) => self.do_now(Effect::Shutdown),
            Event::Command(ProcessCommand::Terminate) => self.do_now(Effect::Terminate),
            Event::Command(ProcessCommand::Kill(reason)) => return self.kill(reason, true),
            // The host's exit will give the reason.
            Event::Silent if self.surroundings.is_host_failing() => {}
            Event::Silent => {
                return self.kill(ExitReason::HeartbeatLost(self.limits.silence), true);
            }
            Event::LinkClosed(end) => {
                self.do_now(Effect::Failing);
                self.do_now(Effect::CloseLink);
                let until = self.after(self.limits.lag);
                return Stage::Unlinked { problem: end.problem(), until };
            }
            Event::Job(JobState::Ended(exit)) => {
                return Stage::LastMessages { verdict: None, exit, until: self.after(MAX_LAG) };
            }
            _ => {}
        }
        Stage::Working
    }

    fn kill(&mut self, verdict: ExitReason, is_linked: bool) -> Stage {
        self.do_now(Effect::Failing);
        self.do_now(Effect::Kill);
        Stage::Killed { verdict, is_linked, until: self.after(self.limits.kill) }
    }

    fn unlinked(&mut self, problem: String, until: Option<Instant>, event: Event) -> Stage {
        match event {
            Event::Job(JobState::Ended(exit)) => {
                let found_it_closed = ChildExit::of(&exit.reason) == Some(ChildExit::LinkLost);
                let verdict = found_it_closed.then_some(ExitReason::LinkLost(problem));
                self.end(explain_end(verdict, exit))
            }
            Event::Deadline => self.kill(ExitReason::LinkLost(problem), false),
            _ => Stage::Unlinked { problem, until },
        }
    }

    fn killed(
        &mut self,
        verdict: ExitReason,
        mut is_linked: bool,
        until: Option<Instant>,
        event: Event,
    ) -> Stage {
        match event {
            Event::Message(_) if is_linked => self.do_now(Effect::Deliver),
            Event::LinkClosed(_) => {
                self.do_now(Effect::CloseLink);
                is_linked = false;
            }
            Event::Job(JobState::Ended(exit)) if is_linked => {
                let until = self.after(MAX_LAG);
                return Stage::LastMessages { verdict: Some(verdict), exit, until };
            }
            Event::Job(JobState::Ended(exit)) => {
                return self.end(explain_end(Some(verdict), exit));
            }
            Event::Command(ProcessCommand::Kill(_)) => self.do_now(Effect::Kill),
            Event::Deadline => {
                self.do_now(Effect::Unconfirmed);
                let exit = Exit::new(ExitReason::Signal(SIGKILL), Vec::new());
                return self.end(explain_end(Some(verdict), exit));
            }
            _ => {}
        }
        Stage::Killed { verdict, is_linked, until }
    }

    fn last_messages(
        &mut self,
        verdict: Option<ExitReason>,
        exit: Exit,
        mut until: Option<Instant>,
        event: Event,
    ) -> Stage {
        match event {
            Event::Message(kind) => {
                self.do_now(Effect::Deliver);
                // Heartbeats don't count: the process of a deleted pod may still run.
                if kind != MessageKind::Control {
                    until = self.after(MAX_LAG);
                }
            }
            Event::LinkClosed(_) | Event::Deadline => {
                self.do_now(Effect::CloseLink);
                return self.end(explain_end(verdict, exit));
            }
            _ => {}
        }
        Stage::LastMessages { verdict, exit, until }
    }
}

/// Chooses the reason of an exit: the verdict of this process, the cluster's reason if it explains
/// why the child fell silent, or the exit itself.
fn explain_end(verdict: Option<ExitReason>, exit: Exit) -> Exit {
    let reason = match (verdict, exit.reason) {
        (
            Some(ExitReason::LinkLost(_) | ExitReason::HeartbeatLost(_)),
            reason @ (ExitReason::Evicted(_)
            | ExitReason::Preempted(_)
            | ExitReason::Cancelled(_)
            | ExitReason::OutOfMemory),
        ) => reason,
        (None, reason) if ChildExit::of(&reason) == Some(ChildExit::LinkLost) => {
            ExitReason::LinkLost("its process found it closed".into())
        }
        (verdict, reason) => verdict.unwrap_or(reason),
    };
    Exit::new(reason, exit.tail)
}
