//! Threads that block until actors answer, and circles of them.
//!
//! A process remembers which of its threads block, and for which actors. When that takes longer
//! than [`PATIENCE`], it asks along the chain: the process of that actor says for whom the thread
//! that reads the actor's messages blocks, and so on. A chain that comes back to the first wait,
//! twice and with the same waits, is a circle: none of its actors can go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use fiber_core::ProcessId;
use fiber_core::stats::EventKind;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::Mesh;
use super::registry::Registry;
use super::wire::{ActorId, ActorLocation, ProcessRef, Query};
use crate::events::Events;

/// How long a thread has blocked before its process asks along the chain.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time limit of one question.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest chain that is followed.
const LONGEST: usize = 64;

/// A call whose answer a thread may wait for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ask {
    /// The name of the supervised or managed actor that calls, if one does.
    pub(crate) caller: Option<Arc<str>>,
    /// The name of the actor that is to answer.
    pub(crate) callee: Arc<str>,
    /// The process that owns or has exported that actor, and its number where it runs.
    pub(crate) target: (ProcessRef, ActorId),
}

/// A wait for an answer, which blocks a thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Wait {
    /// Distinguishes the waits of a process. Later ones have higher numbers.
    number: u64,
    ask: Ask,
}

/// The waits of a process.
#[derive(Default)]
pub(crate) struct Waits {
    /// In the order in which they began.
    blocked: Mutex<Vec<Blocked>>,
    last: AtomicU64,
    is_watched: AtomicBool,
}

struct Blocked {
    thread: ThreadId,
    wait: Wait,
    /// The circle that it is part of, in words, once that is known.
    circle: Option<String>,
}

/// Ends a wait when it is dropped.
#[must_use]
pub(crate) struct Waiting {
    waits: &'static Waits,
    number: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.waits.blocked.lock().retain(|blocked| blocked.wait.number != self.number);
    }
}

impl Waits {
    /// Returns the innermost wait of a thread.
    fn of(&self, thread: ThreadId) -> Option<Wait> {
        let blocked = self.blocked.lock();
        blocked.iter().rfind(|blocked| blocked.thread == thread).map(|blocked| blocked.wait.clone())
    }

    /// Returns the waits that are in no known circle, up to the one with this number.
    fn up_to(&self, last: u64) -> Vec<Wait> {
        let blocked = self.blocked.lock();
        let is_due = |blocked: &&Blocked| blocked.circle.is_none() && blocked.wait.number <= last;
        blocked.iter().filter(is_due).map(|blocked| blocked.wait.clone()).collect()
    }

    /// Returns the circle that this thread's wait for an answer is part of, if it is known.
    pub(crate) fn circle_here(&self, ask: &Ask) -> Option<String> {
        let thread = thread::current().id();
        let blocked = self.blocked.lock();
        let is_it = |blocked: &&Blocked| blocked.thread == thread && blocked.wait.ask == *ask;
        blocked.iter().rfind(is_it)?.circle.clone()
    }

    fn note_circle(&self, number: u64, circle: String) {
        let mut blocked = self.blocked.lock();
        if let Some(blocked) = blocked.iter_mut().find(|blocked| blocked.wait.number == number) {
            blocked.circle = Some(circle);
        }
    }
}

impl Registry {
    /// Returns the wait of the thread that reads the messages of an actor in this process.
    pub(super) fn wait_of(&self, actor: ActorId) -> Option<Wait> {
        self.waits().of(self.inbox(actor)?.thread()?)
    }
}

impl Mesh {
    /// Notes that this thread blocks until an actor answers.
    pub(crate) fn begin_wait(&'static self, ask: Ask) -> Waiting {
        let waits = self.registry().waits();
        let number = waits.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (thread, wait) = (thread::current().id(), Wait { number, ask });
        waits.blocked.lock().push(Blocked { thread, wait, circle: None });
        if !waits.is_watched.swap(true, Ordering::Relaxed) {
            self.endpoint.spawn(move || self.watch_waits());
        }
        Waiting { waits, number }
    }

    /// Looks for circles as long as the process lives, of waits that take long.
    async fn watch_waits(&'static self) {
        let waits = self.registry().waits();
        loop {
            let last = waits.last.load(Ordering::Relaxed);
            sleep(PATIENCE).await;
            for wait in waits.up_to(last) {
                let circle = self.circle(&wait).await;
                // A chain that was asked for while waits changed may not have been one.
                if let Some(circle) = circle
                    && self.circle(&wait).await.as_ref() == Some(&circle)
                {
                    self.report(&wait, &circle);
                }
            }
        }
    }

    /// Returns the waits from `wait` to the one that leads back to it, with their processes.
    async fn circle(&'static self, wait: &Wait) -> Option<Vec<(ProcessId, Wait)>> {
        let (mut circle, mut process, mut next) = (Vec::new(), self.endpoint.id, wait.clone());
        while circle.len() < LONGEST {
            let (home, actor) = next.ask.target.clone();
            circle.push((process, next));
            let place = self.place_of(home, actor).await?;
            let question = self.query::<Option<Wait>>(&place, Query::Wait { actor });
            (process, next) = (place.id, timeout(ANSWER_TIMEOUT, question).await.ok()?.ok()??);
            if process == self.endpoint.id && next == *wait {
                return Some(circle);
            }
        }
        None
    }

    /// Returns the process in which an actor runs.
    async fn place_of(&'static self, home: ProcessRef, actor: ActorId) -> Option<ProcessRef> {
        let Some(actor) = actor.at_owner() else { return Some(home) };
        let locate = self.query(&home, Query::Locate { actor, after: 0 });
        match timeout(ANSWER_TIMEOUT, locate).await.ok()?.ok()? {
            ActorLocation::At { process, .. } => Some(process),
            ActorLocation::Gone(_) => None,
        }
    }

    /// Notes a circle, and reports it once: by the process with the smallest id.
    fn report(&self, wait: &Wait, circle: &[(ProcessId, Wait)]) {
        let before = circle.iter().cycle().skip(circle.len() - 1);
        // The actor before knows the name of one that has no supervisor.
        let name = |((_, wait), (_, before)): (&(ProcessId, Wait), &(ProcessId, Wait))| {
            wait.ask.caller.as_ref().unwrap_or(&before.ask.callee).to_string()
        };
        let actors: Vec<String> = circle.iter().zip(before).map(name).collect();
        let words = [&*actors, &actors[..1]].concat().join(" waits for ");
        self.registry().waits().note_circle(wait.number, words);
        let own = (self.endpoint.id, wait.number);
        if circle.iter().any(|(process, wait)| (*process, wait.number) < own) {
            return;
        }
        let event = EventKind::WaitCycle { actors };
        tracing::warn!("{event:?}: their handlers block until the others answer");
        self.endpoint.parts.get::<Events>().emit(event);
    }
}
