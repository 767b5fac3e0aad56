//! Actors by key: their memory, the first message to one that sleeps, recorded events, and keys that
//! move.
//!
//! Each measurement is a session of its own, whose journal is on a disk.

use std::collections::VecDeque;
use std::env;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use actix::prelude::*;
use anyhow::{bail, ensure};
use fiber::entities::{Entities, EntitiesAddr, Entity, EventSourced};
use fiber::manager::Snapshot;
use fiber::{Journal, Reply};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::{ask, print, resident};
use crate::measure::{median, proportional, rate, seconds};
use crate::table::{Figure, Row, Table};

/// The argument of a process that is a session.
pub(super) const ENTITIES: &str = "session-of-entities";
/// The variable with the name of its measurement.
const WORK: &str = "BENCH_WORK";

const PROCESSES: usize = 2;
/// Messages without an answer that one sender has at most.
const WINDOW: usize = 10_000;
/// As many while the memory is measured, so that messages under way hardly count.
const FEW: usize = 1_000;
/// Keys that are used in all, and those of them that live while the memory is measured.
const KEYS: usize = 1_000_000;
const LIVE: usize = 100_000;
/// The time after which an entity sleeps, where the case has to wait for that.
const IDLE: Duration = Duration::from_millis(200);
/// Keys whose first answers are timed, without events and with so many.
const FIRST: usize = 2_000;
const REPLAYED: usize = 200;
const EVENTS: u64 = 1_000;
/// Events that are recorded, of so many keys.
const RECORDED: usize = 1_000_000;
const WRITERS: usize = 10_000;
/// Keys that move, of as many in each process, and the messages that each sender has under way.
const MOVED: usize = 10_000;
const LOAD: usize = 500;
const SENDERS: usize = 2;

/// The entities that live in this process.
static ALIVE: AtomicUsize = AtomicUsize::new(0);

/// Counts what it gets.
pub(super) struct Meter {
    count: u64,
    /// Whether it refuses to sleep.
    stays: bool,
}

impl Meter {
    pub(super) fn new(_key: String, (): ()) -> Meter {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Meter { count: 0, stays: false }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Actor for Meter {
    type Context = Context<Self>;

    fn stopping(&mut self, _: &mut Context<Self>) -> Running {
        if self.stays { Running::Continue } else { Running::Stop }
    }
}

impl EventSourced for Meter {
    type Event = u64;

    fn apply(&mut self, number: u64) {
        self.count += number;
    }
}

impl Snapshot for Meter {
    type State = u64;

    fn snapshot(&self) -> u64 {
        self.count
    }

    fn restore(&mut self, count: u64) {
        self.count = count;
    }
}

/// Records so many events. The answer is the number of all.
#[fiber::message(u64)]
pub(super) struct Persist(pub(super) u64);

/// Keeps the entity from sleeping.
#[fiber::message]
struct Stay;

/// Asks for the process and its number of live entities.
#[fiber::message((u32, usize))]
struct Look;

#[fiber::handlers]
impl Meter {
    fn record(&mut self, Persist(events): Persist) -> u64 {
        (0..events).for_each(|_| self.persist(1));
        self.count
    }

    fn stay(&mut self, _: Stay) {
        self.stays = true;
    }

    fn look(&mut self, _: Look) -> (u32, usize) {
        (process::id(), ALIVE.load(Ordering::Relaxed))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Moved {
    keys: usize,
    /// Until the process has ended.
    time: Duration,
    messages: u64,
    /// The longest time of a call.
    longest: Duration,
}

#[derive(Debug, Serialize, Deserialize)]
struct Memory {
    /// Bytes for each live entity, in their processes.
    live: f64,
    /// Bytes on the disk for each key.
    disk: f64,
    /// Bytes for each key, in the process that owns the entities.
    owner: f64,
}

pub(super) fn entities(table: &mut Table) -> anyhow::Result<()> {
    let Memory { live, disk, owner } = measure("memory")?;
    let row = Row::new("memory of a live entity, 100,000 of 1 M keys", Figure::Bytes(live))
        .below(Figure::Bytes(1.5 * 1024.0))
        .note(format!(
            "In its process. Each key also takes {} in the process that owns the entities, for \
             the index of its journal.",
            Figure::Bytes(owner)
        ));
    table.push(row);
    let row = Row::new("a key with one event on the disk", Figure::Bytes(disk));
    table.push(row.below(Figure::Bytes(1e3)));
    let (first, replayed): (Duration, Duration) = measure("first")?;
    let row = Row::new("first call of an entity that sleeps", seconds(first));
    table.push(row.below(Figure::Seconds(100e-6)));
    let name = format!("first call of an entity that sleeps, {EVENTS} events");
    let row = Row::new(name, seconds(replayed));
    table.push(row.below(Figure::Seconds(2e-3)));
    let name = format!("recorded events of {WRITERS} entities");
    let row = Row::new(name, Figure::Rate(rate(RECORDED, measure("events")?)))
        .above(Figure::Rate(200e3))
        .note("One event a message, whose answer follows when the event is on the disk.");
    table.push(row);
    let Moved { keys, time, messages, longest } = measure("moved")?;
    let row = Row::new("keys of a process under load that gets SIGTERM", seconds(time))
        .below(Figure::Seconds(1.0))
        .note(format!(
            "{keys} keys move, and the process ends. Of the {messages} messages meanwhile, none \
             was lost or out of order, and the longest call took {}.",
            seconds(longest)
        ));
    table.push(row);
    Ok(())
}

/// Returns the figures of a session.
fn measure<T: DeserializeOwned + fmt::Debug>(work: &str) -> anyhow::Result<T> {
    let figures = ask(ENTITIES, &[(WORK, work)])?;
    eprintln!("  {figures:.1?}");
    Ok(figures)
}

/// Is a session, and prints its figures.
pub(super) fn be_entities() -> anyhow::Result<()> {
    // On a disk: the directory for temporary files may be in memory.
    let journal = TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))?;
    match &*env::var(WORK)? {
        "memory" => print(&memory(journal.path())?),
        "first" => print(&first_calls(journal.path())?),
        "events" => print(&events(journal.path())?),
        "moved" => print(&moved()?),
        other => bail!("{WORK}={other}: not known"),
    }
}

/// Sends a message for each number, of which a window has no answer yet.
fn pipelined<T>(
    window: usize,
    numbers: Range<usize>,
    mut send: impl FnMut(usize) -> Reply<T>,
) -> fiber::Result<()> {
    let mut pending = VecDeque::with_capacity(window);
    for number in numbers {
        if pending.len() == window {
            pending.drain(..window / 2).try_for_each(|call: Reply<T>| call.wait().map(drop))?;
        }
        pending.push_back(send(number));
    }
    pending.into_iter().try_for_each(|call| call.wait().map(drop))
}

/// Keys of which each process of entities has one, with their processes.
fn one_of_each(entities: &EntitiesAddr<Meter>) -> fiber::Result<Vec<(String, u32)>> {
    let mut found: Vec<(String, u32)> = Vec::new();
    for number in 0.. {
        if found.len() == PROCESSES {
            break;
        }
        let key = format!("probe {number}");
        let (pid, _) = entities.of(&key).send(Look).wait()?;
        if found.iter().all(|(_, known)| *known != pid) {
            entities.of(&key).send(Stay).wait()?;
            found.push((key, pid));
        }
    }
    Ok(found)
}

/// Waits until so many entities live in all processes.
fn wait_for_alive(
    entities: &EntitiesAddr<Meter>,
    probes: &[(String, u32)],
    wanted: usize,
) -> fiber::Result<()> {
    loop {
        let counts = probes.iter().map(|(key, _)| Ok(entities.of(key).send(Look).wait()?.1));
        if counts.sum::<fiber::Result<usize>>()? == wanted {
            return Ok(());
        }
        thread::sleep(IDLE / 4);
    }
}

fn memory(journal: &Path) -> anyhow::Result<Memory> {
    let builder = Entities::builder("memory").processes(PROCESSES).idle(IDLE).events();
    let entities = builder.durable(Journal::at(journal)).start(Meter::new, ()).wait()?;
    let probes = one_of_each(&entities)?;
    wait_for_alive(&entities, &probes, PROCESSES)?;
    let used = || probes.iter().map(|(_, pid)| proportional(*pid)).sum::<anyhow::Result<f64>>();
    let (before, owner_before) = (used()?, resident(process::id())?);
    for start in (0..KEYS).step_by(LIVE) {
        pipelined(FEW, start..start + LIVE, |key| entities.of(key).send(Persist(1)))?;
        wait_for_alive(&entities, &probes, PROCESSES)?;
    }
    let owner = (resident(process::id())? - owner_before) / KEYS as f64;
    let asleep = used()?;
    pipelined(FEW, 0..LIVE, |key| {
        let entity = entities.of(key);
        // An entity that has recorded an event takes more memory than one that has not.
        entity.do_send(Persist(1));
        entity.send(Stay)
    })?;
    wait_for_alive(&entities, &probes, LIVE + PROCESSES)?;
    let after = used()?;
    eprintln!("  processes of entities: {before} bytes, {asleep} asleep, {after} with {LIVE}");
    let disk = size_of(journal)? as f64 / KEYS as f64;
    entities.stop().wait()?;
    Ok(Memory { live: (after - before) / LIVE as f64, disk, owner })
}

/// The size of all files in a folder.
fn size_of(folder: &Path) -> anyhow::Result<u64> {
    let entries = fs::read_dir(folder)?.map(|entry| {
        let path: PathBuf = entry?.path();
        if path.is_dir() { size_of(&path) } else { Ok(path.metadata()?.len()) }
    });
    entries.sum()
}

/// Returns the medians of first calls of entities without events, and with many.
fn first_calls(journal: &Path) -> anyhow::Result<(Duration, Duration)> {
    let builder = Entities::builder("first").processes(PROCESSES).idle(IDLE).events();
    let entities = builder.durable(Journal::at(journal)).start(Meter::new, ()).wait()?;
    let probes = one_of_each(&entities)?;
    let call = |key: String| {
        let entity = entities.of(key);
        let start = Instant::now();
        entity.send(Persist(0)).wait().map(|count| (start.elapsed(), count))
    };
    // They have lived before, and sleep.
    let plain = |number| format!("plain {number}");
    let full = |number| format!("full {number}");
    pipelined(WINDOW, 0..FIRST, |number| entities.of(plain(number)).send(Persist(0)))?;
    pipelined(WINDOW, 0..REPLAYED, |number| entities.of(full(number)).send(Persist(EVENTS)))?;
    wait_for_alive(&entities, &probes, PROCESSES)?;
    let first = (0..FIRST).map(|number| call(plain(number)).map(|(time, _)| time));
    let first = median(first.collect::<fiber::Result<_>>()?);
    let replayed = (0..REPLAYED).map(|number| {
        let (time, count) = call(full(number))?;
        ensure!(count == EVENTS, "{count} of {EVENTS} events are there");
        Ok(time)
    });
    let replayed = median(replayed.collect::<anyhow::Result<_>>()?);
    entities.stop().wait()?;
    Ok((first, replayed))
}

/// Returns how long it takes to record events of many entities.
fn events(journal: &Path) -> anyhow::Result<Duration> {
    let builder = Entities::builder("events").processes(PROCESSES).events();
    let entities = builder.durable(Journal::at(journal)).start(Meter::new, ()).wait()?;
    let addresses: Vec<_> = (0..WRITERS).map(|key| entities.of(key)).collect();
    pipelined(WINDOW, 0..WRITERS, |key| addresses[key].send(Persist(1)))?;
    let start = Instant::now();
    pipelined(WINDOW, 0..RECORDED, |number| addresses[number % WRITERS].send(Persist(1)))?;
    let time = start.elapsed();
    let counts = addresses.iter().map(|address| address.send(Persist(0)).wait());
    let count: u64 = counts.sum::<fiber::Result<u64>>()?;
    ensure!(count == (RECORDED + WRITERS) as u64, "{count} events are there");
    entities.stop().wait()?;
    Ok(time)
}

/// Lets a process leave its keys to others, while messages come.
fn moved() -> anyhow::Result<Moved> {
    let entities = Entities::builder("moved").processes(PROCESSES).events();
    let entities = entities.start(Meter::new, ()).wait()?;
    let answers: Vec<_> = (0..PROCESSES * MOVED).map(|key| entities.of(key).send(Look)).collect();
    let pids = answers.into_iter().map(|answer| answer.wait().map(|(pid, _)| pid));
    let pids: Vec<u32> = pids.collect::<fiber::Result<_>>()?;
    let keys = pids.iter().filter(|pid| **pid == pids[0]).count();
    let drained = Pid::from_raw(pids[0] as i32).expect("it is a process");
    let (begun, is_over) = (Barrier::new(SENDERS + 1), AtomicBool::new(false));
    thread::scope(|scope| {
        let sender = |number: usize| {
            let keys = (number..PROCESSES * MOVED).step_by(SENDERS);
            let entities: Vec<_> = keys.map(|key| entities.of(key)).collect();
            let (begun, is_over) = (&begun, &is_over);
            scope.spawn(move || {
                let mut load = Load::default();
                for round in 1.. {
                    entities.iter().try_for_each(|entity| load.send(entity, round))?;
                    if round == 1 {
                        begun.wait();
                    }
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                }
                load.wait_until(0)?;
                anyhow::Ok(load)
            })
        };
        let senders: Vec<_> = (0..SENDERS).map(sender).collect();
        begun.wait();
        let start = Instant::now();
        kill_process(drained, Signal::TERM)?;
        while test_kill_process(drained).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
        let time = start.elapsed();
        is_over.store(true, Ordering::Relaxed);
        let mut moved = Moved { keys, time, messages: 0, longest: Duration::ZERO };
        for sender in senders {
            let load = sender.join().expect("it does not panic")?;
            moved.messages += load.sent;
            moved.longest = moved.longest.max(load.longest);
        }
        Ok(moved)
    })
}

/// The messages of a sender.
#[derive(Default)]
struct Load {
    pending: VecDeque<(Instant, u64, Reply<u64>)>,
    sent: u64,
    longest: Duration,
}

impl Load {
    /// Sends the next message to an entity, which is its message of this number.
    fn send(&mut self, entity: &Entity<Meter>, number: u64) -> anyhow::Result<()> {
        if self.pending.len() == LOAD {
            self.wait_until(LOAD / 2)?;
        }
        self.pending.push_back((Instant::now(), number, entity.send(Persist(1))));
        self.sent += 1;
        Ok(())
    }

    /// Waits until so many messages have no answer.
    fn wait_until(&mut self, count: usize) -> anyhow::Result<()> {
        for (start, number, answer) in self.pending.drain(..self.pending.len() - count) {
            let place = answer.wait()?;
            ensure!(place == number, "message {number} of an entity is its {place}th");
            self.longest = self.longest.max(start.elapsed());
        }
        Ok(())
    }
}
