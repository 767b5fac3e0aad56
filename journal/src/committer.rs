//! The thread that records.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fiber_core::{Error, Result};
use parking_lot::{Condvar, Mutex};

use crate::recorder::{Entry, Recorder};
use crate::sync_schedule::SyncSchedule;
use crate::writer::Writer;

/// The entries that wait for the thread.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Notified when there are entries, or the store is closed.
    wake: Condvar,
    /// Notified when entries are recorded.
    done: Condvar,
    is_synced: AtomicBool,
}

#[derive(Default)]
struct State {
    entries: Vec<Box<dyn Entry>>,
    /// How many entries were passed, and how many are recorded.
    passed: u64,
    recorded: u64,
    is_closed: bool,
}

impl Queue {
    pub(crate) fn push(&self, entry: Box<dyn Entry>) {
        let mut state = self.state.lock();
        state.entries.push(entry);
        state.passed += 1;
        self.wake.notify_one();
    }

    /// Blocks until all entries are recorded that were passed before.
    pub(crate) fn flush(&self) {
        let mut state = self.state.lock();
        let passed = state.passed;
        while state.recorded < passed {
            self.done.wait(&mut state);
        }
    }

    /// Lets the thread end when it has recorded all entries.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.wake.notify_one();
    }

    /// Delivers entries only when they are on disk, from now on.
    pub(crate) fn require_sync(&self) {
        self.is_synced.store(true, Ordering::Relaxed);
    }

    fn note_requirement(&self, schedule: &mut SyncSchedule) {
        if self.is_synced.load(Ordering::Relaxed) {
            schedule.require();
        }
    }

    /// Waits for entries. Returns `None` when the store is closed, and none if the time is up.
    fn next(&self, pause_until: Option<Instant>, until: Option<Instant>) -> Option<Entries> {
        let mut state = self.state.lock();
        while state.entries.is_empty() && !state.is_closed {
            match until {
                Some(until) if self.wake.wait_until(&mut state, until).timed_out() => break,
                Some(_) => {}
                None => self.wake.wait(&mut state),
            }
        }
        if state.entries.is_empty() && state.is_closed {
            return None;
        }
        if let Some(until) = pause_until.filter(|_| !state.entries.is_empty()) {
            while !state.is_closed && !self.wake.wait_until(&mut state, until).timed_out() {}
        }
        Some(std::mem::take(&mut state.entries))
    }
}

type Entries = Vec<Box<dyn Entry>>;

/// Records entries until the store is closed.
pub(crate) fn run(queue: &Arc<Queue>, mut writer: Writer) {
    let mut broken: Option<Error> = None;
    let mut schedule = SyncSchedule::new();
    schedule.note_dirty(writer.is_dirty(), Instant::now());
    loop {
        queue.note_requirement(&mut schedule);
        let due_at = schedule.due_at().filter(|_| broken.is_none());
        let Some(entries) = queue.next(schedule.pause_until(), due_at) else { break };
        // It may have been required since: the first entries come with it.
        queue.note_requirement(&mut schedule);
        let count = entries.len() as u64;
        let result = match &broken {
            Some(error) => Err(error.clone()),
            None => {
                let result = record(&mut writer, &entries, schedule.begins(Instant::now()));
                schedule.note_dirty(writer.is_dirty(), Instant::now());
                result
            }
        };
        broken = result.as_ref().err().cloned();
        for entry in entries {
            entry.recorded(result.clone());
        }
        queue.state.lock().recorded += count;
        queue.done.notify_all();
    }
    if broken.is_none()
        && let Err(error) = writer.sync()
    {
        tracing::error!(%error, "the last records may not be on disk");
    }
}

fn record(writer: &mut Writer, entries: &[Box<dyn Entry>], syncs: bool) -> Result<()> {
    writer.move_slots()?;
    for entry in entries {
        entry.record(&mut Recorder { writer });
        if writer.is_full() {
            writer.commit()?;
        }
    }
    writer.commit()?;
    if syncs {
        writer.sync()?;
    }
    writer.publish();
    if syncs {
        writer.remove_empty_segments()?;
    }
    Ok(())
}
