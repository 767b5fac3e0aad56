//! The eye on the executors: it runs on the node's thread, which a task can't hold up.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::WorkQueue;
use super::executor::Slot;
use crate::pool::wire::WorkerNote;

/// How often it looks while tasks are short.
const TICK: Duration = Duration::from_millis(1);
/// A task that takes this long holds up those that its executor was to run next: they go back to
/// the pool.
const HELD_UP: Duration = Duration::from_millis(5);

/// What it has seen of one executor.
#[derive(Default)]
struct Seen {
    begun: u64,
    since: Option<Instant>,
    told: bool,
    overdue: bool,
}

/// Looks at what the executors do while they are busy; `arrived` tells of new work.
pub(super) async fn tick(queue: Arc<WorkQueue>, arrived: Arc<Notify>) {
    let mut seen: Vec<Seen> = queue.slots.iter().map(|_| Seen::default()).collect();
    loop {
        arrived.notified().await;
        while let Some(pause) = look(&queue, &mut seen) {
            tokio::select! {
                () = sleep(pause) => {}
                () = queue.went_on.notified() => {}
                () = arrived.notified() => sleep(TICK).await,
            }
        }
    }
}

/// Looks once. Returns when to look again; never, while nothing runs.
fn look(queue: &WorkQueue, seen: &mut [Seen]) -> Option<Duration> {
    let now = Instant::now();
    let pause = queue
        .slots
        .iter()
        .zip(&mut *seen)
        .filter_map(|(slot, seen)| look_at(queue, slot, seen, now))
        .min();
    let all_held_up =
        seen.iter().all(|seen| seen.since.is_some_and(|since| now - since >= HELD_UP));
    if all_held_up {
        // Nobody here will begin these soon.
        let mut work = queue.work.lock();
        let runs = std::mem::take(&mut work.runs);
        queue.count_untaken(&work);
        drop(work);
        runs.iter().for_each(|run| queue.give_back(run));
    }
    let work = queue.work.lock();
    let soon = !work.runs.is_empty() || work.busy > 0;
    pause.or(soon.then_some(TICK))
}

fn look_at(queue: &WorkQueue, slot: &Slot, seen: &mut Seen, now: Instant) -> Option<Duration> {
    let mut slot = slot.lock();
    let Some(current) = slot.current else {
        *seen = Seen::default();
        return None;
    };
    if seen.begun != slot.begun || seen.since.is_none() {
        *seen = Seen { begun: slot.begun, since: Some(now), told: false, overdue: false };
        return Some(TICK);
    }
    let ran = now - seen.since.unwrap_or(now);
    let results = slot.take_outcomes();
    let held_up = ran >= HELD_UP;
    let given_up = if held_up { slot.give_up() } else { None };
    slot.held_up = held_up;
    drop(slot);

    if let Some(results) = results {
        queue.send(results);
    }
    if let Some(run) = given_up {
        queue.give_back(&run);
    }
    if held_up && !std::mem::replace(&mut seen.told, true) {
        queue.note(WorkerNote::Running { call: current.call, index: current.index });
    }
    if !held_up {
        return Some(TICK);
    }
    let limit = Duration::from_nanos(current.timeout);
    if limit.is_zero() {
        // Nothing more to see before it goes on.
        return Some(Duration::from_secs(3600));
    }
    if ran >= limit && !std::mem::replace(&mut seen.overdue, true) {
        queue.note(WorkerNote::Overdue { call: current.call, index: current.index });
    }
    Some(if seen.overdue { Duration::from_secs(3600) } else { limit.saturating_sub(ran).max(TICK) })
}
