//! The timeline: which worker ran what when, with deaths, redeliveries and calls, and which task took
//! the value of which.
//!
//! While it is off, recording costs one relaxed load for each message of a worker. While it is on,
//! a message becomes a `Record` in a queue, which a thread turns into [slices](Slice) for the file
//! (`timeline` of the configuration) and for those who ask for the recent ones.

mod arrows;
mod file;
mod tracks;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use fiber_core::start_thread;
use fiber_core::stats::{EventKind, Slice, TaskName};
use parking_lot::{Condvar, Mutex};

use self::file::TimelineFile;
use self::tracks::{Item, Tracks};

/// How often the file is written.
const INTERVAL: Duration = Duration::from_millis(100);
/// The number of records from which on those of short tasks are lost.
const MAX_QUEUED: usize = 64 << 10;
/// The number of recent slices that are kept.
const MAX_RECENT: usize = 16 << 10;
/// For how long recent slices are recorded after someone has asked for them.
const RECENT_FOR: Duration = Duration::from_secs(60);
/// Tasks that take this long are never lost.
const LONG: Duration = Duration::from_millis(5);

/// The timeline of a session.
#[derive(Default)]
pub struct Timeline {
    is_on: AtomicBool,
    queue: Mutex<Queue>,
    /// Notified when the program ends.
    finished: Condvar,
    recorder: Mutex<Option<Recorder>>,
}

/// Records that were not processed.
#[derive(Default)]
struct Queue {
    records: Vec<Record>,
    has_file: bool,
    /// Until when recent slices are recorded.
    until: Option<Instant>,
    finished: bool,
}

/// Something that happened, at a time.
pub(crate) struct Record {
    pub(crate) at: Instant,
    pub(crate) what: What,
}

/// An event of the timeline.
pub enum What {
    /// A worker has completed tasks.
    Ran(Ran),
    /// A task may run, because the values of other tasks that it takes are there.
    Inputs(Inputs),
    /// A worker ended while it ran a task.
    Cut {
        /// The name of the pool.
        pool: String,
        /// The name of the worker.
        worker: String,
        /// The task that it ran.
        task: TaskName,
        /// The time at which the task began.
        since: Instant,
    },
    /// A caller has submitted a call to a pool.
    CallBegan {
        /// The name of the pool.
        pool: String,
        /// The number of the call, which no other call of this process has.
        call: u64,
        /// The name of the task function.
        function: &'static str,
    },
    /// A call has all its results, or was cancelled.
    CallEnded {
        /// The number of the call.
        call: u64,
    },
    /// An event of the session, such as the death of a worker.
    Event(EventKind),
}

/// Tasks of one call that a thread of a worker has completed.
pub struct Ran {
    /// The name of the pool.
    pub pool: String,
    /// The name of the worker.
    pub worker: String,
    /// The number of the thread in its worker, from 0.
    pub thread: u32,
    /// The name of the task function.
    pub function: &'static str,
    /// The number of the call.
    pub call: u64,
    /// The indexes of the tasks in the call.
    pub runs: Vec<Range<u64>>,
    /// The number of those tasks that failed.
    pub failed: u64,
    /// The time that the thread spent on the tasks, which ends when the message arrives.
    pub busy: Duration,
}

impl Ran {
    fn count(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    fn is_short(&self) -> bool {
        self.busy < LONG * u32::try_from(self.count()).unwrap_or(u32::MAX).max(1)
    }
}

/// The inputs of a task.
pub struct Inputs {
    /// The number of its call.
    pub call: u64,
    /// Its index in the call.
    pub index: u64,
    /// The tasks that have made the values.
    pub makers: Makers,
}

/// Tasks that have made values: the numbers of their calls and their indexes in these.
pub type Makers = Vec<(u64, Range<u64>)>;

/// The state of the timeline.
struct Recorder {
    tracks: Tracks,
    file: Option<TimelineFile>,
    recent: VecDeque<Slice>,
}

impl Recorder {
    fn new() -> Recorder {
        Recorder { tracks: Tracks::new(), file: None, recent: VecDeque::new() }
    }

    /// Processes the queued records, and with `all` what may still grow.
    fn process(&mut self, queue: &Mutex<Queue>, all: bool) {
        let records = std::mem::take(&mut queue.lock().records);
        records.into_iter().for_each(|record| self.tracks.apply(record));
        self.tracks.flush(if all { None } else { Some(Instant::now()) });
        for item in std::mem::take(&mut self.tracks.items) {
            if let Some(file) = &mut self.file {
                file.add(&item);
            }
            if let Item::Slice(slice) = item {
                if self.recent.len() == MAX_RECENT {
                    self.recent.pop_front();
                }
                self.recent.push_back(slice);
            }
        }
        if let Some(file) = &mut self.file {
            self.tracks.window = file.window();
            if let Err(error) = file.write() {
                tracing::error!("the timeline ends here, because it can't be written: {error}");
                self.file = None;
                queue.lock().has_file = false;
            }
        }
    }
}

impl Timeline {
    /// Returns whether anything is recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Records what happens now.
    pub fn record(&self, what: What) {
        if !self.is_on() {
            return;
        }
        let at = Instant::now();
        let mut queue = self.queue.lock();
        if !queue.has_file && queue.until.is_none_or(|until| until < at) {
            self.is_on.store(false, Ordering::Relaxed);
            queue.records = Vec::new();
            return;
        }
        let may_be_lost = match &what {
            What::Ran(ran) => ran.is_short(),
            What::Inputs(_) => true,
            _ => false,
        };
        if queue.records.len() < MAX_QUEUED || !may_be_lost {
            queue.records.push(Record { at, what });
        }
    }

    /// Writes the timeline into a file of at most `limit` bytes, from now on.
    ///
    /// # Errors
    /// The file can't be created.
    pub(crate) fn write_to(&'static self, path: &Path, limit: u64) -> io::Result<()> {
        let mut recorder = self.recorder.lock();
        let recorder = recorder.get_or_insert_with(Recorder::new);
        recorder.file = Some(TimelineFile::create(path, limit, recorder.tracks.origin())?);
        recorder.process(&self.queue, false);
        if std::mem::replace(&mut self.queue.lock().has_file, true) {
            return Ok(());
        }
        self.is_on.store(true, Ordering::Relaxed);
        start_thread("fiber-timeline", || {
            loop {
                let mut queue = self.queue.lock();
                if !queue.finished {
                    self.finished.wait_for(&mut queue, INTERVAL);
                }
                if queue.finished {
                    return;
                }
                drop(queue);
                self.process(false);
            }
        })?;
        Ok(())
    }

    /// Writes what is missing in the file. The program is about to end.
    pub(crate) fn finish(&self) {
        self.queue.lock().finished = true;
        self.finished.notify_all();
        if self.is_on() {
            self.process(true);
        }
    }

    /// Returns the recent slices that ended after `since`. The first call turns the recording on,
    /// until there is no call for a minute.
    pub(crate) fn recent(&self, since: SystemTime) -> Vec<Slice> {
        self.queue.lock().until = Some(Instant::now() + RECENT_FOR);
        self.is_on.store(true, Ordering::Relaxed);
        self.process(false);
        let recorder = self.recorder.lock();
        let recent = recorder.iter().flat_map(|recorder| &recorder.recent);
        recent.filter(|slice| slice.end() > since).cloned().collect()
    }

    fn process(&self, all: bool) {
        self.recorder.lock().get_or_insert_with(Recorder::new).process(&self.queue, all);
    }
}

/// The time of a call, on the timeline.
pub struct CallRecord {
    timeline: &'static Timeline,
    call: u64,
    open: AtomicBool,
}

impl CallRecord {
    /// Records the begin of a call, if the timeline is on.
    pub fn begin(
        timeline: &'static Timeline,
        pool: &str,
        call: u64,
        function: &'static str,
    ) -> CallRecord {
        let open = timeline.is_on();
        if open {
            timeline.record(What::CallBegan { pool: pool.to_string(), call, function });
        }
        CallRecord { timeline, call, open: AtomicBool::new(open) }
    }

    /// Records the end of the call, once, if its begin was recorded.
    pub fn end(&self) {
        if self.open.load(Ordering::Relaxed) && self.open.swap(false, Ordering::Relaxed) {
            self.timeline.record(What::CallEnded { call: self.call });
        }
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_slices_are_recorded_from_the_first_request_on() {
        let ran = |pool: &str| {
            What::Ran(Ran {
                pool: pool.into(),
                worker: "worker-1".into(),
                thread: 0,
                function: "f",
                call: 1,
                runs: std::iter::once(0..1).collect(),
                failed: 0,
                busy: LONG,
            })
        };
        let timeline = Timeline::default();
        timeline.record(ran("before"));
        let start = SystemTime::now();
        assert_eq!(timeline.recent(start), []);
        timeline.record(ran("after"));
        let slices = timeline.recent(start);
        assert_eq!(slices.iter().map(|slice| &*slice.pool).collect::<Vec<_>>(), ["after"]);
        assert_eq!(timeline.recent(slices[0].end()), []);
    }
}
