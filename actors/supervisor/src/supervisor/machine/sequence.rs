//! The order in which children start and stop.

use fiber_core::ExitReason;

use super::child::{Child, ChildPhase, StartOrder, StopCause};
use super::event::{Effect, Key, Turn};
use super::state::{Phase, Sequence, StopMode, Supervision};
use fiber_core::stats::Strategy;

enum Step {
    /// There may be more to do now.
    Again,
    /// An event must come first.
    Wait,
}

impl Supervision {
    /// Starts and stops the children whose turn it is, or ends.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>) {
        loop {
            let step = match (&self.phase, &self.sequence) {
                (Phase::Ended, _) => Step::Wait,
                (Phase::Stopping(reason), _) if self.children.is_empty() => {
                    turn.push(Effect::End(reason.clone()));
                    self.phase = Phase::Ended;
                    Step::Wait
                }
                (Phase::Stopping(_), _) => self.stop_last(turn),
                (Phase::Starting | Phase::Running, Sequence::Idle) => Step::Wait,
                (Phase::Starting | Phase::Running, Sequence::Paused(_)) => {
                    self.stop_next_of_group(turn)
                }
                (Phase::Starting | Phase::Running, Sequence::InProgress) => {
                    if self
                        .children
                        .values()
                        .any(|child| child.is_alive() && child.restarts_with_group)
                    {
                        self.stop_next_of_group(turn)
                    } else {
                        self.start_next(turn)
                    }
                }
            };
            if let Step::Wait = step {
                return;
            }
        }
    }

    /// Begins to stop the supervisor, or hurries a stop that has begun.
    pub(super) fn stop_all(&mut self, reason: ExitReason, mode: StopMode, turn: &mut Turn<'_>) {
        match self.phase {
            Phase::Stopping(_) if mode == StopMode::InOrder => return,
            Phase::Stopping(_) | Phase::Ended => {}
            Phase::Starting | Phase::Running => self.phase = Phase::Stopping(reason.clone()),
        }
        self.sequence = Sequence::Idle;
        let not_alive: Vec<Key> = self
            .children
            .iter()
            .filter(|(_, child)| !child.is_alive())
            .map(|(key, _)| *key)
            .collect();
        for key in not_alive {
            self.remove(key, &reason, turn);
        }
        // Added children of a one-for-one supervisor don't depend on each other.
        let concurrent = self.options.strategy == Strategy::OneForOne;
        let now = |child: &Child| mode == StopMode::AtOnce || (concurrent && child.is_added());
        let keys: Vec<Key> =
            self.children.iter().filter(|(_, child)| now(child)).map(|(key, _)| *key).collect();
        for key in keys.into_iter().rev() {
            let kill = (mode == StopMode::AtOnce).then(|| reason.clone());
            self.stop_child(key, StopCause::Group, kill, None, turn);
        }
    }

    /// Stops the last child, unless it is stopping already.
    fn stop_last(&mut self, turn: &mut Turn<'_>) -> Step {
        let last = self.children.iter().next_back();
        let not_stopping =
            last.filter(|(_, child)| !matches!(child.phase, ChildPhase::Stopping(_)));
        let Some((&key, _)) = not_stopping else { return Step::Wait };
        self.stop_child(key, StopCause::Group, None, None, turn);
        Step::Again
    }

    /// Stops the last child that is alive and restarts with the group.
    fn stop_next_of_group(&mut self, turn: &mut Turn<'_>) -> Step {
        let next = self
            .children
            .iter()
            .rev()
            .find(|(_, child)| child.is_alive() && child.restarts_with_group);
        let Some((&key, child)) = next else { return Step::Wait };
        match &child.phase {
            ChildPhase::Stopping(stopping) if stopping.cause >= StopCause::Group => Step::Wait,
            // It stops already, from now on for the group too.
            ChildPhase::Stopping(_) => {
                self.stop_child(key, StopCause::Group, None, None, turn);
                Step::Wait
            }
            _ => {
                self.stop_child(key, StopCause::Group, None, None, turn);
                Step::Again
            }
        }
    }

    /// Starts the first pending child, unless another one is starting in sequence.
    fn start_next(&mut self, turn: &mut Turn<'_>) -> Step {
        let mut next = None;
        for (&key, child) in self.children.iter() {
            match child.phase {
                ChildPhase::Starting(StartOrder::Sequential) => return Step::Wait,
                ChildPhase::Pending if next.is_none() => next = Some(key),
                _ => {}
            }
        }
        if let Some(key) = next {
            self.start_child(key, StartOrder::Sequential, turn);
            return Step::Wait;
        }
        self.sequence = Sequence::Idle;
        if let Phase::Starting = self.phase {
            self.phase = Phase::Running;
            turn.push(Effect::Ready);
        }
        Step::Again
    }
}
