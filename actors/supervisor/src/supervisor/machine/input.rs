//! Each event is one transition of a child, or of the supervision.

use fiber_core::ExitReason;

use super::super::directory::unknown;
use super::child::{Child, StartOrder, StopCause};
use super::event::{Effect, Event, Request, StopMethod, Turn};
use super::state::{Phase, StopMode, Supervision};

impl Supervision {
    /// Handles an event. After [`Effect::End`], it ignores all others.
    pub(in crate::supervisor) fn handle(&mut self, event: Event, turn: &mut Turn<'_>) {
        if matches!(self.phase, Phase::Ended) {
            return;
        }
        match event {
            Event::Begin => {}
            Event::Added(key) => self.start_child(key, StartOrder::Concurrent, turn),
            Event::Started { key, incarnation } => self.child_started(key, incarnation, turn),
            Event::Exited { key, incarnation, reason, has_worked } => {
                let is_current = |child: &Child| child.incarnation == incarnation;
                if self.children.get(&key).is_some_and(is_current) {
                    self.child_exited(key, reason, has_worked, None, turn);
                }
            }
            Event::StopChild { name, method, request } => {
                self.stop_named_child(&name, method, request, turn);
            }
            Event::Stop => self.stop_all(ExitReason::Shutdown, StopMode::InOrder, turn),
            Event::Kill(reason) => self.stop_all(reason, StopMode::AtOnce, turn),
            Event::Deadline => {
                for timer in self.timers.take_due(turn.now) {
                    self.timer_expired(timer, turn);
                    self.advance(turn);
                }
                return;
            }
        }
        self.advance(turn);
    }

    /// Stops or kills a child. The answer comes when it has ended.
    fn stop_named_child(
        &mut self,
        name: &str,
        method: StopMethod,
        request: Request,
        turn: &mut Turn<'_>,
    ) {
        let Some(&key) = self.names.get(name) else {
            return turn.push(Effect::Answer(request, Err(unknown(&self.path, name))));
        };
        let alive = self.children.get(&key).is_some_and(Child::is_alive);
        match (method, alive) {
            (StopMethod::Kill(reason), true) => {
                return self.stop_child(key, StopCause::Kill, Some(reason), Some(request), turn);
            }
            (StopMethod::Stop, true) => {
                return self.stop_child(key, StopCause::Remove, None, Some(request), turn);
            }
            (StopMethod::Stop, false) => self.remove(key, &ExitReason::Shutdown, turn),
            (StopMethod::Kill(_), false) => {}
        }
        turn.push(Effect::Answer(request, Ok(())));
    }
}
