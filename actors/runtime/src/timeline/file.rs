//! The file of a timeline, in the JSON format of Chrome's traces, which Perfetto opens, too.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fiber_core::open_own;
use fiber_core::stats::{EventKind, Slice, SliceKind};
use serde_json::{Value, json};

use super::tracks::{End, Item, MIN_WINDOW};

/// Slices of tasks that take this long are written as long as there is room.
const SLOW: Duration = Duration::from_secs(1);
/// How often the window of merged slices doubles before the file takes only what is slow.
const DOUBLINGS: u64 = 8;
const BEGIN: &str = "[";
/// The end of the file, which the next items replace. So the file is always complete.
const END: &str = "\n]\n";
/// The number of the first track of a worker. Those of calls are below.
const FIRST_WORKER: u64 = 1000;

/// See the module's documentation.
pub(super) struct TimelineFile {
    file: File,
    origin: SystemTime,
    limit: u64,
    /// The length without [`END`].
    written: u64,
    /// Items that are not written.
    buffer: String,
    pools: HashMap<String, PoolTracks>,
    /// The pool and the track of each call.
    calls: HashMap<u64, (u64, u64)>,
    /// The number of the last arrow.
    last_arrow: u64,
}

/// Returns whether a file with this beginning is a timeline, or empty.
fn is_timeline(first: &str) -> bool {
    let items = first.strip_prefix(BEGIN);
    first.is_empty() || items.is_some_and(|items| items == END || items.contains("\"ph\":\""))
}

/// The tracks of one pool, which is a process in the file's terms.
struct PoolTracks {
    number: u64,
    workers: HashMap<(String, u32), u64>,
    /// The call that each of the tracks for calls shows.
    calls: Vec<Option<u64>>,
}

impl TimelineFile {
    /// Creates the file. Empties one that is a timeline.
    pub(super) fn create(path: &Path, limit: u64, origin: SystemTime) -> io::Result<TimelineFile> {
        let file = open_own(path, OpenOptions::new().read(true).write(true))?;
        let mut first = [0; 4 << 10];
        let length = file.read_at(&mut first, 0)?;
        if !is_timeline(&String::from_utf8_lossy(&first[..length])) {
            let problem = "it has something else than a timeline: remove it, or name another file";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
        }
        file.set_len(0)?;
        let mut timeline = TimelineFile {
            file,
            origin,
            limit,
            written: 0,
            buffer: BEGIN.into(),
            pools: HashMap::new(),
            calls: HashMap::new(),
            last_arrow: 0,
        };
        timeline.write()?;
        Ok(timeline)
    }

    /// Returns how short slices have to be to be merged: the fuller the file, the longer.
    pub(super) fn window(&self) -> Duration {
        let doublings = (self.length() * DOUBLINGS / self.soft_limit().max(1)).min(DOUBLINGS);
        MIN_WINDOW * (1 << doublings)
    }

    /// Writes what was added.
    pub(super) fn write(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let length = self.buffer.len();
        self.buffer.push_str(END);
        self.file.write_all_at(self.buffer.as_bytes(), self.written)?;
        self.written += length as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Adds an item, if there is room for it.
    pub(super) fn add(&mut self, item: &Item) {
        match item {
            Item::Slice(slice) => self.slice(slice),
            Item::CallBegan { at, pool, call, function } => {
                self.call_began(*at, pool, *call, function)
            }
            Item::CallEnded { at, call } => self.call_ended(*at, *call),
            Item::Event { at, event } => self.event(*at, event),
            Item::Arrow { from, to } => self.arrow(from, to),
        }
    }

    fn slice(&mut self, slice: &Slice) {
        if slice.kind == SliceKind::Ran && slice.duration < SLOW && !self.has_room() {
            return;
        }
        let track = self.worker(&slice.pool, &slice.worker, slice.thread);
        let mut arguments = json!({
            "function": slice.function,
            "call": slice.call,
            "first": slice.first,
            "count": slice.count,
        });
        if slice.failed > 0 {
            arguments["failed"] = slice.failed.into();
        }
        let (category, color) = match slice.kind {
            SliceKind::Redelivered => ("redelivered", Some("bad")),
            SliceKind::Died => ("died", Some("terrible")),
            _ => ("task", None),
        };
        let mut event = json!({
            "name": short(&slice.function),
            "cat": category,
            "dur": slice.duration.as_nanos() as f64 / 1e3,
            "args": arguments,
        });
        if let Some(color) = color {
            event["cname"] = color.into();
        }
        self.put("X", track, slice.start, event);
    }

    fn call_began(&mut self, at: SystemTime, pool: &str, call: u64, function: &str) {
        if !self.has_room() {
            return;
        }
        let number = self.pool(pool);
        let calls = &mut self.pools.get_mut(pool).expect("`pool` adds it").calls;
        let free = calls.iter().position(Option::is_none);
        let track = free.unwrap_or(calls.len());
        if track as u64 >= FIRST_WORKER {
            return;
        }
        if free.is_none() {
            calls.push(None);
        }
        calls[track] = Some(call);
        let track = track as u64;
        if free.is_none() {
            let name = if track == 0 { "calls".into() } else { format!("calls {}", track + 1) };
            self.name_track(number, track, &name);
        }
        self.calls.insert(call, (number, track));
        let arguments = json!({ "function": function, "call": call });
        let event = json!({ "name": short(function), "cat": "call", "args": arguments });
        self.put("B", (number, track), at, event);
    }

    fn call_ended(&mut self, at: SystemTime, call: u64) {
        let Some((number, track)) = self.calls.remove(&call) else { return };
        if let Some(pool) = self.pools.values_mut().find(|pool| pool.number == number) {
            pool.calls[track as usize] = None;
        }
        self.put("E", (number, track), at, json!({}));
    }

    fn event(&mut self, at: SystemTime, event: &EventKind) {
        match event {
            EventKind::WorkerStarted { pool, worker, place } => {
                self.instant(at, pool, Some(worker), "started", json!({ "place": place }));
            }
            EventKind::WorkerEnded { pool, worker, place, exit, expected, blamed, redelivered } => {
                let name = match *expected {
                    true if exit.reason.is_disruption() => "drained",
                    true => "stopped",
                    false => "died",
                };
                let blamed: Vec<_> = blamed.iter().map(ToString::to_string).collect();
                let arguments =
                    json!({ "place": place, "reason": exit.reason.to_string(), "blamed": blamed });
                self.instant(at, pool, Some(worker), name, arguments);
                if *redelivered > 0 {
                    let arguments = json!({ "tasks": redelivered });
                    self.instant(at, pool, Some(worker), "redelivered", arguments);
                }
            }
            EventKind::TaskAbandoned { pool, task, workers, exit } => {
                let arguments = json!({
                    "function": task.function,
                    "call": task.call,
                    "index": task.index,
                    "workers": workers,
                    "reason": exit.reason.to_string(),
                });
                self.instant(at, pool, None, "abandoned", arguments);
            }
            EventKind::Straggler { pool, worker, task, .. } => {
                let arguments = json!({ "task": task.to_string() });
                self.instant(at, pool, Some(worker), "straggler", arguments);
            }
            _ => {}
        }
    }

    fn arrow(&mut self, from: &End, to: &End) {
        if !self.has_room() {
            return;
        }
        self.last_arrow += 1;
        for (phase, end) in [("s", from), ("f", to)] {
            let (pool, worker, thread) = &*end.thread;
            let track = self.worker(pool, worker, *thread);
            let mut event = json!({ "name": "input", "cat": "input", "id": self.last_arrow });
            if phase == "f" {
                // It ends at the slice around it, not at the next one.
                event["bp"] = "e".into();
            }
            self.put(phase, track, end.at, event);
        }
    }

    /// Adds a mark on a worker's track, or on a pool's track of calls.
    fn instant(
        &mut self,
        at: SystemTime,
        pool: &str,
        worker: Option<&str>,
        name: &str,
        arguments: Value,
    ) {
        let (track, scope) = match worker {
            Some(worker) => (self.worker(pool, worker, 0), "t"),
            None => ((self.pool(pool), 0), "p"),
        };
        let event = json!({ "s": scope, "name": name, "cat": "event", "args": arguments });
        self.put("i", track, at, event);
    }

    /// Returns the number of a pool.
    fn pool(&mut self, name: &str) -> u64 {
        if let Some(pool) = self.pools.get(name) {
            return pool.number;
        }
        let number = self.pools.len() as u64 + 1;
        let tracks = PoolTracks { number, workers: HashMap::new(), calls: Vec::new() };
        self.pools.insert(name.to_string(), tracks);
        self.push(&json!({
            "ph": "M",
            "name": "process_name",
            "pid": number,
            "args": { "name": format!("pool {name}") },
        }));
        number
    }

    /// Returns the numbers of a pool and of a worker's track.
    fn worker(&mut self, pool: &str, worker: &str, thread: u32) -> (u64, u64) {
        let number = self.pool(pool);
        let workers = &mut self.pools.get_mut(pool).expect("`pool` adds it").workers;
        let key = (worker.to_string(), thread);
        if let Some(track) = workers.get(&key) {
            return (number, *track);
        }
        let track = FIRST_WORKER + workers.len() as u64;
        workers.insert(key, track);
        let name = match thread {
            0 => worker.to_string(),
            thread => format!("{worker} thread {}", thread + 1),
        };
        self.name_track(number, track, &name);
        (number, track)
    }

    fn name_track(&mut self, pool: u64, track: u64, name: &str) {
        let about = |what: &str, arguments: Value| json!({ "ph": "M", "name": what, "pid": pool, "tid": track, "args": arguments });
        let events = [
            about("thread_name", json!({ "name": name })),
            about("thread_sort_index", json!({ "sort_index": track })),
        ];
        events.iter().for_each(|event| self.push(event));
    }

    /// Writes an event of this phase, on the track of a pool, with its other fields.
    fn put(&mut self, phase: &str, (pool, track): (u64, u64), at: SystemTime, mut event: Value) {
        event["ph"] = phase.into();
        event["pid"] = pool.into();
        event["tid"] = track.into();
        event["ts"] = self.micros(at).into();
        self.push(&event);
    }

    fn push(&mut self, event: &Value) {
        let text = event.to_string();
        let separator = if self.length() > 1 { ",\n" } else { "\n" };
        if self.length() + (separator.len() + text.len() + END.len()) as u64 <= self.limit {
            self.buffer.push_str(separator);
            self.buffer.push_str(&text);
        }
    }

    fn length(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Returns the length from which on the file takes only what is slow, dead or redelivered.
    fn soft_limit(&self) -> u64 {
        self.limit / 4 * 3
    }

    fn has_room(&self) -> bool {
        self.length() < self.soft_limit()
    }

    fn micros(&self, at: SystemTime) -> f64 {
        let nanos = at.duration_since(self.origin).unwrap_or_default().as_nanos();
        nanos as f64 / 1e3
    }
}

/// Returns the last part of a function's path.
fn short(function: &str) -> &str {
    if function.contains('<') {
        return function;
    }
    let mut parts = function.rmatch_indices("::");
    let mut place = parts.next();
    // A closure is named with its function.
    while let Some((at, _)) = place
        && function[at + 2..].starts_with('{')
    {
        place = parts.next();
    }
    place.map_or(function, |(at, _)| &function[at + 2..])
}

#[cfg(test)]
mod tests;
