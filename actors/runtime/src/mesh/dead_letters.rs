//! Messages without an answer that reach no actor.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fiber_core::ProcessId;
use fiber_core::stats::{DeadLetterStats, EventKind, Report};
use parking_lot::Mutex;

use crate::endpoint::Endpoint;
use crate::events::Events;
use crate::sources::{Source, Sources};

/// The time between two events of one actor.
const INTERVAL: Duration = Duration::from_secs(1);
/// The number of actors that are counted by their names. Later ones count together.
const NAMED: usize = 256;
/// The name of the actors beyond that.
const OTHERS: &str = "other actors";

/// Counts a process's messages without an answer that it could not deliver, by their actors, and
/// tells them as events: at once, and then each second as long as more come.
pub struct DeadLetters {
    endpoint: &'static Endpoint,
    actors: Mutex<BTreeMap<Box<str>, Letters>>,
}

/// The dead letters of one actor.
#[derive(Default)]
struct Letters {
    count: u64,
    /// The dead letters that no event has reported yet.
    untold: u64,
    /// Whether an event was in the last second, so that the next one waits.
    is_quiet: bool,
    /// Why the last one was not delivered.
    problem: String,
}

impl DeadLetters {
    pub(crate) fn new(endpoint: &'static Endpoint) -> Arc<DeadLetters> {
        Arc::new(DeadLetters { endpoint, actors: Mutex::default() })
    }

    /// Counts `count` messages to `actor` that were not delivered.
    pub fn note(self: &Arc<DeadLetters>, actor: &str, count: u64, problem: impl ToString) {
        if count == 0 {
            return;
        }
        let problem = problem.to_string();
        tracing::debug!("{count} messages to `{actor}` were not delivered: {problem}");
        let (name, is_first) = {
            let mut actors = self.actors.lock();
            let is_first = actors.is_empty();
            let is_known = actors.contains_key(actor) || actors.len() < NAMED;
            let name: Box<str> = if is_known { actor.into() } else { OTHERS.into() };
            let letters = actors.entry(name.clone()).or_default();
            letters.count += count;
            letters.untold += count;
            letters.problem = problem;
            if letters.is_quiet {
                return;
            }
            letters.is_quiet = true;
            (name, is_first)
        };
        if is_first {
            self.endpoint.parts.get::<Sources>().register(self);
        }
        let letters = Arc::clone(self);
        // An event's subscribers may send messages, and locks of the sender may be held here.
        self.endpoint.spawn(move || async move {
            while letters.tell(&name) {
                tokio::time::sleep(INTERVAL).await;
            }
        });
    }

    /// Tells what no event has told. Returns `false` if there is nothing.
    fn tell(&self, name: &str) -> bool {
        let (count, problem) = {
            let mut actors = self.actors.lock();
            let Some(letters) = actors.get_mut(name) else { return false };
            letters.is_quiet = letters.untold > 0;
            if !letters.is_quiet {
                return false;
            }
            (std::mem::take(&mut letters.untold), letters.problem.clone())
        };
        let events: &Events = self.endpoint.parts.get();
        events.emit(EventKind::DeadLetters { actor: name.to_string(), count, problem });
        true
    }
}

impl Source for DeadLetters {
    fn report(&self, process: ProcessId, report: &mut Report) {
        let actors = self.actors.lock();
        let stats = actors.iter().map(|(actor, letters)| {
            DeadLetterStats::new(process, actor.to_string(), letters.count)
        });
        report.dead_letters.extend(stats);
    }
}
