//! Actors that block their threads until other actors answer, and circles of them.
//!
//! The process of a managed actor remembers for which actor its own one blocks. When that takes
//! longer than [`PATIENCE`], it asks along the chain: the process of that actor says for whom that
//! one blocks, and so on. A chain that comes back to the first process, twice and with the same
//! waits, is a circle: none of its actors can go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fiber_core::ProcessId;
use fiber_core::stats::EventKind;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::Mesh;
use super::wire::{ActorId, ActorLocation, ProcessRef, Query};
use crate::events::Events;

/// How long an actor has blocked before its process asks along the chain.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time limit of one question.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest chain that is followed.
const LONGEST: usize = 64;

/// A wait of an actor for another one, which blocks its thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Distinguishes the waits of a process.
    number: u64,
    /// The name of the actor that waits.
    caller: Arc<str>,
    /// The owner of the managed actor that is to answer, and its number there.
    target: (ProcessRef, ActorId),
}

/// The wait of a process's managed actor, if it blocks.
#[derive(Default)]
pub(super) struct Waits {
    current: Mutex<Option<Wait>>,
    last: Mutex<u64>,
    is_watched: AtomicBool,
}

/// Ends a wait when it is dropped.
#[must_use]
pub struct Waiting<'a> {
    waits: &'a Waits,
    outer: Option<Wait>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        *self.waits.current.lock() = self.outer.take();
    }
}

impl Waits {
    pub(super) fn current(&self) -> Option<Wait> {
        self.current.lock().clone()
    }
}

impl Mesh {
    /// Notes that this process's managed actor blocks until another one answers.
    pub fn begin_wait(
        &'static self,
        caller: &Arc<str>,
        target: (ProcessRef, ActorId),
    ) -> Waiting<'static> {
        let waits = self.registry().waits();
        let number = {
            let mut last = waits.last.lock();
            *last += 1;
            *last
        };
        let wait = Wait { number, caller: Arc::clone(caller), target };
        let outer = waits.current.lock().replace(wait);
        if !waits.is_watched.swap(true, Ordering::Relaxed) {
            self.endpoint.spawn(move || self.watch_waits());
        }
        Waiting { waits, outer }
    }

    /// Looks for circles as long as the process lives, of waits that take long.
    async fn watch_waits(&'static self) {
        let (mut seen, mut reported) = (0, 0);
        loop {
            sleep(PATIENCE).await;
            let Some(wait) = self.registry().waits().current() else { continue };
            if wait.number == seen && wait.number != reported {
                let circle = self.circle(&wait).await;
                // A chain that was asked for while waits changed may not have been one.
                if let Some(circle) = circle
                    && self.circle(&wait).await.as_ref() == Some(&circle)
                {
                    reported = wait.number;
                    self.report(&wait, &circle);
                }
            }
            seen = wait.number;
        }
    }

    /// Returns the processes and waits behind `wait` that lead back to this process.
    async fn circle(&'static self, wait: &Wait) -> Option<Vec<(ProcessId, Wait)>> {
        let (mut circle, mut next) = (Vec::new(), wait.clone());
        while circle.len() < LONGEST {
            let (owner, actor) = next.target;
            let locate = self.query(&owner, Query::Locate { actor, after: 0 });
            let ActorLocation::At { process, .. } =
                timeout(ANSWER_TIMEOUT, locate).await.ok()?.ok()?
            else {
                return None;
            };
            if process.id == self.endpoint.id {
                return (self.registry().waits().current().as_ref() == Some(wait))
                    .then_some(circle);
            }
            let question = self.query::<Option<Wait>>(&process, Query::Wait);
            next = timeout(ANSWER_TIMEOUT, question).await.ok()?.ok()??;
            circle.push((process.id, next.clone()));
        }
        None
    }

    /// Reports a circle, once: by the process with the smallest id.
    fn report(&self, wait: &Wait, circle: &[(ProcessId, Wait)]) {
        if circle.iter().any(|(process, _)| *process < self.endpoint.id) {
            return;
        }
        let others = circle.iter().map(|(_, wait)| wait.caller.to_string());
        let actors: Vec<_> = std::iter::once(wait.caller.to_string()).chain(others).collect();
        let event = EventKind::WaitCycle { actors };
        tracing::warn!("{event:?}: their handlers block until the others answer");
        self.endpoint.parts.get::<Events>().emit(event);
    }
}
