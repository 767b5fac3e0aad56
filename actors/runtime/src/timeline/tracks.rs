//! Turns records into slices that don't overlap.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fiber_core::stats::{EventKind, Slice, SliceKind, TaskName};

use super::arrows::{Arrows, Place, Source};
use super::{Ran, Record, What};

/// Slices that are shorter are merged with those that follow.
pub(super) const MIN_WINDOW: Duration = Duration::from_millis(5);

/// One item of the timeline.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    Slice(Slice),
    CallBegan {
        at: SystemTime,
        pool: String,
        call: u64,
        function: &'static str,
    },
    CallEnded {
        at: SystemTime,
        call: u64,
    },
    Event {
        at: SystemTime,
        event: EventKind,
    },
    /// A task has taken a value that another one has made.
    Arrow {
        from: End,
        to: End,
    },
}

/// An end of an arrow: a thread, and a time at which it ran the task.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct End {
    pub(super) thread: Arc<ThreadKey>,
    pub(super) at: SystemTime,
}

/// A thread of a worker: the pool's name, the worker's, and the thread's number.
pub(super) type ThreadKey = (String, String, u32);

/// The state of a thread's track.
struct Thread {
    /// When its last slice ended.
    end: Instant,
    /// A slice of short tasks that others may still join, and when it began.
    open: Option<(Instant, Slice)>,
    name: Arc<ThreadKey>,
    /// The slices from which arrows lead to the last one.
    sources: Vec<Place>,
}

impl Thread {
    fn new(name: &ThreadKey, begin: Instant) -> Thread {
        Thread { end: begin, open: None, name: Arc::new(name.clone()), sources: Vec::new() }
    }
}

/// See the module's documentation.
pub(super) struct Tracks {
    origin: (Instant, SystemTime),
    threads: HashMap<ThreadKey, Thread>,
    /// Tasks whose worker has died while it ran them, by call and index.
    blamed: HashSet<(u64, u64)>,
    arrows: Arrows,
    /// How short slices have to be to be merged.
    pub(super) window: Duration,
    /// The items that are complete.
    pub(super) items: Vec<Item>,
}

impl Tracks {
    pub(super) fn new() -> Tracks {
        Tracks {
            origin: (Instant::now(), SystemTime::now()),
            threads: HashMap::new(),
            blamed: HashSet::new(),
            arrows: Arrows::default(),
            window: MIN_WINDOW,
            items: Vec::new(),
        }
    }

    /// Returns when the timeline began.
    pub(super) fn origin(&self) -> SystemTime {
        self.origin.1
    }

    pub(super) fn apply(&mut self, record: Record) {
        let at = record.at;
        match record.what {
            What::Ran(ran) => self.ran(at, ran),
            What::Inputs(inputs) => self.arrows.expect(inputs),
            What::Cut { pool, worker, task, since } => self.cut(at, pool, worker, task, since),
            What::CallBegan { pool, call, function } => {
                let at = self.time(at);
                self.items.push(Item::CallBegan { at, pool, call, function });
            }
            What::CallEnded { call } => {
                self.blamed.retain(|(blamed, _)| *blamed != call);
                self.arrows.forget(call);
                let at = self.time(at);
                self.items.push(Item::CallEnded { at, call });
            }
            What::Event(event) => self.event(at, event),
        }
    }

    /// Completes the slices that no task has joined lately, or all.
    pub(super) fn flush(&mut self, now: Option<Instant>) {
        let window = self.window;
        let is_old =
            |end: Instant| now.is_none_or(|now| now.saturating_duration_since(end) > window);
        for thread in self.threads.values_mut().filter(|thread| is_old(thread.end)) {
            self.items.extend(thread.open.take().map(|(_, slice)| Item::Slice(slice)));
        }
    }

    fn ran(&mut self, at: Instant, ran: Ran) {
        let before = self.blamed.len();
        self.blamed.retain(|(call, index)| {
            *call != ran.call || !ran.runs.iter().any(|run| run.contains(index))
        });
        let redelivered = self.blamed.len() < before;

        let (call, count) = (ran.call, ran.count());
        let first = ran.runs.first().map_or(0, |run| run.start);
        let mut slice = Slice::new(ran.pool, ran.worker, ran.function.to_string(), call, first);
        (slice.thread, slice.count, slice.failed) = (ran.thread, count, ran.failed);
        let begin = at.checked_sub(ran.busy).unwrap_or(at);
        let key = (slice.pool.clone(), slice.worker.clone(), slice.thread);
        let new = |key: &ThreadKey| Thread::new(key, begin);
        let thread = self.threads.entry(key).or_insert_with_key(new);
        // Messages take different times on their way, but a thread runs one task at a time.
        let begin = begin.max(thread.end);
        thread.end = at;
        if redelivered {
            slice.kind = SliceKind::Redelivered;
        }
        let joins = |(start, open): &&mut (Instant, Slice)| {
            !redelivered && open.call == slice.call && at - *start <= self.window
        };
        let start = match thread.open.as_mut().filter(|open| joins(open)) {
            Some((start, open)) => {
                open.count += slice.count;
                open.failed += slice.failed;
                open.duration = at - *start;
                *start
            }
            None => {
                self.items.extend(thread.open.take().map(|(_, slice)| Item::Slice(slice)));
                slice.start = time(self.origin, begin);
                slice.duration = at.saturating_duration_since(begin);
                if slice.duration >= self.window || redelivered {
                    self.items.push(Item::Slice(slice));
                } else {
                    thread.open = Some((begin, slice));
                }
                thread.sources.clear();
                begin
            }
        };
        let place = Place { begin: start, thread: Arc::clone(&thread.name) };
        for source in self.arrows.lead_to(&place, call, &ran.runs, &mut thread.sources) {
            self.items.push(arrow(self.origin, source, (begin, at), &thread.name));
        }
        self.arrows.remember(&place, call, &ran.runs, at);
    }

    /// Adds the slice of a task that its worker did not survive.
    fn cut(&mut self, at: Instant, pool: String, worker: String, task: TaskName, since: Instant) {
        let mut known: Vec<_> = self
            .threads
            .iter()
            .filter(|((of, name, _), _)| *of == pool && *name == worker)
            .map(|((.., number), thread)| (thread.end, *number))
            .collect();
        known.sort_unstable();
        // Only the thread itself knows which one it is. One that had no other task then may be it.
        let idle = known.iter().find(|(end, _)| *end <= since + MIN_WINDOW);
        let number = idle.map_or(known.len() as u32, |(_, number)| *number);
        let key = (pool.clone(), worker.clone(), number);
        let new = |key: &ThreadKey| Thread::new(key, since);
        let thread = self.threads.entry(key).or_insert_with_key(new);
        let begin = since.max(thread.end);
        thread.end = at;
        self.items.extend(thread.open.take().map(|(_, slice)| Item::Slice(slice)));
        let mut slice = Slice::new(pool, worker, task.function, task.call, task.index);
        (slice.thread, slice.kind) = (number, SliceKind::Died);
        slice.start = time(self.origin, begin);
        slice.duration = at.saturating_duration_since(begin);
        self.items.push(Item::Slice(slice));
    }

    fn event(&mut self, at: Instant, event: EventKind) {
        if let EventKind::WorkerEnded { pool, worker, blamed, .. } = &event {
            self.blamed.extend(blamed.iter().map(|task| (task.call, task.index)));
            let items = &mut self.items;
            self.threads.retain(|(of, name, _), thread| {
                let ended = of == pool && name == worker;
                if ended {
                    items.extend(thread.open.take().map(|(_, slice)| Item::Slice(slice)));
                }
                !ended
            });
        }
        let at = self.time(at);
        self.items.push(Item::Event { at, event });
    }

    fn time(&self, at: Instant) -> SystemTime {
        time(self.origin, at)
    }
}

/// Returns the arrow from a value to the task that took it, which ran from `begin` to `at`. Viewers
/// look for the slices in which its ends are, so both are within them, also when they are rounded.
fn arrow(
    origin: (Instant, SystemTime),
    source: Source,
    (begin, at): (Instant, Instant),
    thread: &Arc<ThreadKey>,
) -> Item {
    const WITHIN: Duration = Duration::from_nanos(10);
    let left = (source.at - WITHIN).max(source.place.begin);
    let taken = (begin + WITHIN).min(at).max(left);
    let from = End { thread: source.place.thread, at: time(origin, left) };
    Item::Arrow { from, to: End { thread: Arc::clone(thread), at: time(origin, taken) } }
}

fn time((instant, time): (Instant, SystemTime), at: Instant) -> SystemTime {
    match at.checked_duration_since(instant) {
        Some(after) => time + after,
        None => time.checked_sub(instant - at).unwrap_or(time),
    }
}

#[cfg(test)]
mod tests;
