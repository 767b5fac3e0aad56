//! A child of a supervisor, as its driver holds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::super::actor_loop::{catch_panic, catch_panic_async};
use super::super::identity::DownGuard;
use super::super::machine::Key;
use super::super::spec::ChildSpec;
use super::super::start::{ChildContext, Control, Within};
use super::super::tree::{Entry, EntryId};
use super::{Input, Task};

async fn next(within: &mut Option<mpsc::UnboundedReceiver<Within>>) -> Option<Within> {
    within.as_mut()?.recv().await
}

pub(super) struct HeldChild {
    pub(super) spec: ChildSpec,
    pub(super) incarnation: Incarnation,
    pub(super) entry: Entry,
}

/// The current incarnation of a child.
pub(super) enum Incarnation {
    None,
    Starting {
        number: u64,
        task: Task,
        down_guard: DownGuard,
    },
    /// Without a guard, what is in it has failed, and is about to restart.
    Started {
        number: u64,
        control: Box<dyn Control>,
        _task: Task,
        down_guard: Option<DownGuard>,
    },
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
                    let note = |event| drop(inputs.send(Input::Within { key, incarnation, event }));
                    let mut exited = Box::pin(catch_panic_async(running.exited));
                    let mut within = running.within;
                    let exit = loop {
                        tokio::select! {
                            biased;
                            Some(event) = next(&mut within) => note(event),
                            exit = &mut exited => break exit,
                        }
                    };
                    // Events from before the end.
                    while let Some(event) =
                        within.as_mut().and_then(|within| within.try_recv().ok())
                    {
                        note(event);
                    }
                    exit.unwrap_or_else(|reason| reason)
                }
                Err(reason) => reason,
            };
            let has_worked = has_worked.load(Ordering::Relaxed);
            let _ = inputs.send(Input::Exited { key, incarnation, reason, has_worked });
        });
        let down_guard = DownGuard::new(self.spec.identity.clone());
        self.incarnation = Incarnation::Starting { number: incarnation, task, down_guard };
    }

    /// Keeps the control of the incarnation that has started.
    pub(super) fn started(&mut self, control: Box<dyn Control>) {
        self.incarnation = match std::mem::replace(&mut self.incarnation, Incarnation::None) {
            Incarnation::Starting { number, task, down_guard } => {
                Incarnation::Started { number, control, _task: task, down_guard: Some(down_guard) }
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

    /// Returns whether this is the incarnation that runs.
    pub(super) fn runs(&self, incarnation: u64) -> bool {
        matches!(self.incarnation, Incarnation::Started { number, .. } if number == incarnation)
    }

    /// Tells watchers of an event in the incarnation.
    pub(super) fn note_within(&mut self, event: &Within) {
        let Incarnation::Started { down_guard, .. } = &mut self.incarnation else { return };
        match event {
            Within::Failed(reason) => {
                if let Some(down_guard) = down_guard.take() {
                    down_guard.finish(reason);
                }
            }
            Within::Restarted => *down_guard = Some(DownGuard::new(self.spec.identity.clone())),
        }
    }

    /// Lets go of the incarnation, which ends it, and returns its watch.
    pub(super) fn end(&mut self) -> Option<DownGuard> {
        match std::mem::replace(&mut self.incarnation, Incarnation::None) {
            Incarnation::None => None,
            Incarnation::Starting { down_guard, .. } => Some(down_guard),
            Incarnation::Started { down_guard, control, .. } => {
                if let Err(reason) = catch_panic(|| drop(control)) {
                    tracing::error!("`{}` {reason} at its end", self.spec.identity.path());
                }
                down_guard
            }
        }
    }

    /// Removes the child from the tree, and returns its specification.
    pub(super) fn release(mut self) -> ChildSpec {
        drop(self.end());
        self.spec
    }
}
