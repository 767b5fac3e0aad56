//! A child of a supervisor, as its driver holds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::super::actor_loop::{catch_panic, catch_panic_async};
use super::super::identity::DownGuard;
use super::super::machine::Key;
use super::super::spec::ChildSpec;
use super::super::start::{ChildContext, Control};
use super::super::tree::{Entry, EntryId};
use super::{Input, Task};

pub(super) struct HeldChild {
    pub(super) spec: ChildSpec,
    pub(super) incarnation: Incarnation,
    pub(super) entry: Entry,
}

/// The current incarnation of a child.
pub(super) enum Incarnation {
    None,
    Starting { task: Task, down_guard: DownGuard },
    Started { control: Box<dyn Control>, _task: Task, down_guard: DownGuard },
}

impl HeldChild {
    pub(super) fn new(spec: ChildSpec, supervisor: EntryId) -> HeldChild {
        let kind = spec.start.lock().kind();
        let entry = Entry::new(Some(supervisor), spec.name(), kind);
        HeldChild { spec, incarnation: Incarnation::None, entry }
    }

    /// Starts an incarnation. Its start and its end go to `inputs`.
    pub(super) fn start(
        &mut self,
        key: Key,
        incarnation: u64,
        inputs: mpsc::UnboundedSender<Input>,
    ) {
        let has_worked = Arc::new(AtomicBool::new(false));
        let context = ChildContext {
            identity: self.spec.identity.clone(),
            incarnation,
            entry: self.entry.id(),
            arbiter: self.spec.arbiter.clone(),
            has_worked: Arc::clone(&has_worked),
        };
        let start = catch_panic(|| self.spec.start.lock().start(context));
        let task = Task::spawn(async move {
            let started = match start {
                Ok(start) => catch_panic_async(start).await.and_then(|started| started),
                Err(reason) => Err(reason),
            };
            let reason = match started {
                Ok(running) => {
                    let (place, control) = (running.place, running.control);
                    // The supervisor may be gone.
                    let _ = inputs.send(Input::Started { key, incarnation, place, control });
                    let exit = catch_panic_async(running.exited).await;
                    exit.unwrap_or_else(|reason| reason)
                }
                Err(reason) => reason,
            };
            let has_worked = has_worked.load(Ordering::Relaxed);
            let _ = inputs.send(Input::Exited { key, incarnation, reason, has_worked });
        });
        let down_guard = DownGuard::new(self.spec.identity.clone());
        self.incarnation = Incarnation::Starting { task, down_guard };
    }

    /// Keeps the control of the incarnation that has started.
    pub(super) fn started(&mut self, control: Box<dyn Control>) {
        self.incarnation = match std::mem::replace(&mut self.incarnation, Incarnation::None) {
            Incarnation::Starting { task, down_guard } => {
                Incarnation::Started { control, _task: task, down_guard }
            }
            other => other,
        };
    }

    pub(super) fn control(&mut self) -> Option<&mut dyn Control> {
        match &mut self.incarnation {
            Incarnation::Started { control, .. } => Some(&mut **control),
            Incarnation::None | Incarnation::Starting { .. } => None,
        }
    }

    /// Lets go of the incarnation, which ends it, and returns its watch.
    pub(super) fn end(&mut self) -> Option<DownGuard> {
        match std::mem::replace(&mut self.incarnation, Incarnation::None) {
            Incarnation::None => None,
            Incarnation::Starting { down_guard, .. } => Some(down_guard),
            Incarnation::Started { down_guard, .. } => Some(down_guard),
        }
    }

    /// Removes the child from the tree, and returns its specification.
    pub(super) fn release(self) -> ChildSpec {
        let HeldChild { spec, incarnation, entry } = self;
        drop((incarnation, entry));
        spec
    }
}
