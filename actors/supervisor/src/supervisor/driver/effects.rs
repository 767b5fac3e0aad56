//! Carries out the effects of the machine.

use fiber_core::stats::EventKind;
use fiber_core::{ExitReason, rounded};
use fiber_runtime::events::emit;
use fiber_runtime::runtime::Runtime;

use super::super::actor_loop::catch_panic;
use super::super::inside::announce_restart;
use super::super::machine::{Effect, Event, Key};
use super::super::start::Within;
use super::super::tree::{ChildKind, ChildState};
use super::Supervisor;

impl Supervisor {
    pub(super) fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Start { key, incarnation } => self.start_child(key, incarnation),
            Effect::Started(key) => self.keep_started(key),
            Effect::Shutdown(key) => self.stop_child(key, None),
            Effect::Kill(key, reason) => self.stop_child(key, Some(reason)),
            Effect::Ended { key, reason } => self.let_go(key, reason),
            Effect::Finished(key) => {
                if let Some(child) = self.children.get(&key) {
                    child.entry.update(|data| data.enter(ChildState::Ended));
                    child.spec.finished(&child.entry.last_exit().unwrap_or(ExitReason::Normal));
                }
            }
            Effect::Remove { key, reason, is_final } => {
                let Some(child) = self.children.remove(&key) else { return };
                let spec = child.release();
                if is_final {
                    self.directory.remove(spec.name());
                    spec.removed(&reason);
                }
            }
            Effect::Answer(request, answer) => self.answer(request, answer),
            Effect::Failed { key, reason, pause, is_repeated } => {
                let path = self.path_of(key);
                // Starts may fail for hours, for lack of resources: only the first is a warning. A
                // program that ends kills its children itself.
                if is_repeated || Runtime::current().is_some_and(Runtime::is_exiting) {
                    tracing::debug!("`{path}` {reason}; restarting it in {pause:?}");
                } else {
                    tracing::warn!("`{path}` {reason}; restarting it in {}", rounded(pause));
                }
            }
            Effect::Late(key) => {
                tracing::warn!("`{}` did not stop in time: killing it", self.path_of(key));
            }
            Effect::Unconfirmed(key) => {
                let path = self.path_of(key);
                tracing::error!("`{path}` did not end after its kill: going on without it");
            }
            Effect::GaveUp(reached) => {
                let child = self.identity.path().to_string();
                tracing::error!("supervisor `{child}` {reached}");
                if !self.options.is_quiet {
                    emit(EventKind::GaveUp { child, reason: reached });
                }
            }
            Effect::Ready => {
                let started = self.started.take();
                if started.is_some_and(|started| started.send(()).is_err()) {
                    self.feed(Event::Stop);
                }
            }
            Effect::End(reason) => {
                let _ = self.exit.set(reason);
            }
        }
    }

    fn start_child(&mut self, key: Key, incarnation: u64) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let is_first = incarnation == 1;
        child.entry.update(|data| {
            data.incarnation = incarnation;
            data.place = None;
            data.enter(if is_first { ChildState::Starting } else { ChildState::Restarting });
        });
        child.start(key, incarnation, self.inputs.clone());
        if !is_first {
            self.note_restart(key);
        }
    }

    /// Counts and announces a restart.
    fn note_restart(&self, key: Key) {
        let Some(child) = self.children.get(&key) else { return };
        if !self.options.is_quiet {
            announce_restart(child.spec.identity.path().to_string(), &child.entry);
        }
        self.entry.update(|data| {
            if let ChildKind::Supervisor { restarts, .. } = &mut data.kind {
                *restarts += 1;
            }
        });
    }

    /// Shows what has happened in a child that restarts itself.
    pub(super) fn note_within(&mut self, key: Key, incarnation: u64, event: Within) {
        let child = self.children.get_mut(&key).filter(|child| child.runs(incarnation));
        let Some(child) = child else { return };
        child.note_within(&event);
        if let Within::Failed(reason) = &event {
            tracing::warn!("`{}` {reason}", child.spec.identity.path());
        }
        let is_restart = matches!(event, Within::Restarted);
        child.entry.update(|data| data.note_within(event));
        if is_restart {
            self.note_restart(key);
        }
    }

    fn keep_started(&mut self, key: Key) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let Some((control, place)) = self.arriving.take() else { return };
        child.started(control);
        child.entry.update(|data| {
            data.place = place.or(data.place.take());
            data.enter(ChildState::Running);
        });
    }

    /// Stops a child in order, or kills it.
    fn stop_child(&mut self, key: Key, kill: Option<ExitReason>) {
        let Some(child) = self.children.get_mut(&key) else { return };
        child.entry.update(|data| data.enter(ChildState::Stopping));
        let Some(control) = child.control() else { return };
        // A panic is no reason to end the other children: this one is killed at its deadline.
        let asked = catch_panic(|| match kill {
            Some(reason) => control.kill(reason),
            None => control.shutdown(),
        });
        if let Err(reason) = asked {
            tracing::error!("`{}` {reason} when it was asked to end", self.path_of(key));
        }
    }

    fn let_go(&mut self, key: Key, reason: ExitReason) {
        let Some(child) = self.children.get_mut(&key) else { return };
        if let Some(down_guard) = child.end() {
            down_guard.finish(&reason);
        }
        child.entry.update(|data| {
            data.last_exit = Some(reason);
            data.place = None;
            data.enter(ChildState::Restarting);
        });
    }

    pub(super) fn path_of(&self, key: Key) -> &str {
        self.children.get(&key).map_or("", |child| child.spec.identity.path())
    }
}
