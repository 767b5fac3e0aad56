//! Turns records into slices that don't overlap.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant, SystemTime};

use fiber_core::stats::{EventKind, Slice, SliceKind, TaskName};

use super::{Ran, Record, What};

/// Slices that are shorter are merged with those that follow.
pub(super) const MIN_WINDOW: Duration = Duration::from_millis(5);

/// One item of the timeline.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    Slice(Slice),
    CallBegan { at: SystemTime, pool: String, call: u64, function: &'static str },
    CallEnded { at: SystemTime, call: u64 },
    Event { at: SystemTime, event: EventKind },
}

/// A thread of a worker: the pool's name, the worker's, and the thread's number.
type ThreadKey = (String, String, u32);

/// The state of a thread's track.
struct Thread {
    /// When its last slice ended.
    end: Instant,
    /// A slice of short tasks that others may still join, and when it began.
    open: Option<(Instant, Slice)>,
}

/// See the module's documentation.
pub(super) struct Tracks {
    origin: (Instant, SystemTime),
    threads: HashMap<ThreadKey, Thread>,
    /// Tasks whose worker has died while it ran them, by call and index.
    blamed: HashSet<(u64, u64)>,
    window: Duration,
    items: Vec<Item>,
}

impl Tracks {
    pub(super) fn new() -> Tracks {
        Tracks {
            origin: (Instant::now(), SystemTime::now()),
            threads: HashMap::new(),
            blamed: HashSet::new(),
            window: MIN_WINDOW,
            items: Vec::new(),
        }
    }

    /// Returns when the timeline began.
    pub(super) fn origin(&self) -> SystemTime {
        self.origin.1
    }

    /// Sets how short slices have to be to be merged.
    pub(super) fn set_window(&mut self, window: Duration) {
        self.window = window;
    }

    /// Takes the items that are complete.
    pub(super) fn take(&mut self) -> Vec<Item> {
        std::mem::take(&mut self.items)
    }

    pub(super) fn apply(&mut self, record: Record) {
        let at = record.at;
        match record.what {
            What::Ran(ran) => self.ran(at, ran),
            What::Cut { pool, worker, task, since } => self.cut(at, pool, worker, task, since),
            What::CallBegan { pool, call, function } => {
                let at = self.time(at);
                self.items.push(Item::CallBegan { at, pool, call, function });
            }
            What::CallEnded { call } => {
                self.blamed.retain(|(blamed, _)| *blamed != call);
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
        let is_blamed = |index: &u64| *index >= ran.first && *index - ran.first < ran.count;
        let before = self.blamed.len();
        self.blamed.retain(|(call, index)| *call != ran.call || !is_blamed(index));
        let redelivered = self.blamed.len() < before;

        let mut slice =
            Slice::new(ran.pool, ran.worker, ran.function.to_string(), ran.call, ran.first);
        (slice.thread, slice.count, slice.failed) = (ran.thread, ran.count, ran.failed);
        let begin = at.checked_sub(ran.busy).unwrap_or(at);
        let key = (slice.pool.clone(), slice.worker.clone(), slice.thread);
        let thread = self.threads.entry(key).or_insert(Thread { end: begin, open: None });
        // Messages take different times on their way, but a thread runs one task at a time.
        let begin = begin.max(thread.end);
        thread.end = at;
        if redelivered {
            slice.kind = SliceKind::Redelivered;
        }
        let joins = |(start, open): &&mut (Instant, Slice)| {
            !redelivered && open.call == slice.call && at - *start <= self.window
        };
        if let Some((start, open)) = thread.open.as_mut().filter(|open| joins(open)) {
            open.count += slice.count;
            open.failed += slice.failed;
            open.duration = at - *start;
            return;
        }
        self.items.extend(thread.open.take().map(|(_, slice)| Item::Slice(slice)));
        slice.start = time(self.origin, begin);
        slice.duration = at.saturating_duration_since(begin);
        if slice.duration >= self.window || redelivered {
            self.items.push(Item::Slice(slice));
        } else {
            thread.open = Some((begin, slice));
        }
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
        let thread = self.threads.entry(key).or_insert(Thread { end: since, open: None });
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

fn time((instant, time): (Instant, SystemTime), at: Instant) -> SystemTime {
    match at.checked_duration_since(instant) {
        Some(after) => time + after,
        None => time.checked_sub(instant - at).unwrap_or(time),
    }
}

#[cfg(test)]
mod tests;
