//! Whose turn it is: the order in which children are started and ended.

use fiber_core::ExitReason;

use super::child::{Cause, Child, Phase, Plan, Turn};
use super::event::Key;
use super::machine::{Doing, Pace, Supervisor, Turns};
use super::strategy::Strategy;

/// What a step came to.
enum Step {
    /// There may be more to do.
    Again,
    /// Something must happen first.
    Wait,
}

impl Supervisor {
    /// Does what can be done now. `true` if the supervisor has ended.
    pub(super) fn advance(&mut self) -> bool {
        loop {
            let step = match (&self.doing, &self.turns) {
                (Doing::Ending { reason }, _) if self.children.is_empty() => {
                    let reason = reason.clone();
                    self.finish(reason);
                    return true;
                }
                (Doing::Ending { .. }, _) => self.end_last(),
                (Doing::Launching(_) | Doing::Working, Turns::Idle) => Step::Wait,
                (Doing::Launching(_) | Doing::Working, Turns::Paused(_)) => {
                    self.end_next_of_group()
                }
                (Doing::Launching(_) | Doing::Working, Turns::Busy) => {
                    if self
                        .children
                        .values()
                        .any(|child| child.is_alive() && child.plan == Plan::EndAndStart)
                    {
                        self.end_next_of_group()
                    } else {
                        self.start_next()
                    }
                }
            };
            if let Step::Wait = step {
                return false;
            }
        }
    }

    /// The supervisor ends, and its children before it.
    pub(super) fn conclude(&mut self, reason: ExitReason, pace: Pace) {
        match self.doing {
            // It ends already; it can only be hurried.
            Doing::Ending { .. } if pace == Pace::InTurn => return,
            Doing::Ending { .. } => {}
            Doing::Launching(_) | Doing::Working => {
                self.doing = Doing::Ending { reason: reason.clone() }
            }
        }
        self.turns = Turns::Idle;
        let idle: Vec<Key> = self
            .children
            .iter()
            .filter(|(_, child)| !child.is_alive())
            .map(|(key, _)| *key)
            .collect();
        for key in idle {
            self.remove(key, &reason);
        }
        // Added children of a one-for-one supervisor don't depend on each other: they end together.
        let together = self.options.strategy == Strategy::OneForOne;
        let now = |child: &Child| pace == Pace::AtOnce || (together && child.is_added());
        let keys: Vec<Key> =
            self.children.iter().filter(|(_, child)| now(child)).map(|(key, _)| *key).collect();
        for key in keys.into_iter().rev() {
            let kill = (pace == Pace::AtOnce).then(|| reason.clone());
            self.end(key, Cause::Group, kill, None);
        }
    }

    /// Ends the last child, unless it is ending already.
    fn end_last(&mut self) -> Step {
        match self.children.last_key_value() {
            Some((&key, child)) if !matches!(child.state, Phase::Ending(_)) => {
                self.end(key, Cause::Group, None, None);
                Step::Again
            }
            _ => Step::Wait,
        }
    }

    fn end_next_of_group(&mut self) -> Step {
        let next = self
            .children
            .iter()
            .rev()
            .find(|(_, child)| child.is_alive() && child.plan == Plan::EndAndStart);
        let Some((&key, child)) = next else { return Step::Wait };
        match &child.state {
            // It ends for the group as well now; this is said once.
            Phase::Ending(ending) if ending.cause >= Cause::Group => Step::Wait,
            Phase::Ending(_) => {
                self.end(key, Cause::Group, None, None);
                Step::Wait
            }
            _ => {
                self.end(key, Cause::Group, None, None);
                Step::Again
            }
        }
    }

    fn start_next(&mut self) -> Step {
        let mut next = None;
        for (&key, child) in &self.children {
            match child.state {
                Phase::Starting { turn: Turn::InTurn, .. } => return Step::Wait,
                Phase::Due if next.is_none() => next = Some(key),
                _ => {}
            }
        }
        if let Some(key) = next {
            self.begin(key, Turn::InTurn);
            return Step::Wait;
        }
        self.turns = Turns::Idle;
        match std::mem::replace(&mut self.doing, Doing::Working) {
            // Nobody waits for it any more, so nobody could ever end it.
            Doing::Launching(launched) => {
                if launched.send(()).is_err() {
                    self.conclude(ExitReason::Shutdown, Pace::InTurn);
                }
            }
            doing => self.doing = doing,
        }
        Step::Again
    }
}
