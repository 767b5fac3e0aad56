//! Actors by key, while their processes die, come and go.

use std::time::Duration;

use actix::prelude::*;
use fiber::entities::{EntitiesAddr, EntitiesBuilder, EventSourced};
use fiber::manager::Snapshot;
use fiber::supervisor::Backoff;
use fiber::{Entities, Error, Journal, Process, Reply};
use fiber_core::Config;
use fiber_world::{Faults, all_counted, count, counted, is_dead, nap};

use super::Outcome;
use crate::Ground;
use crate::restarts::is_of_surroundings;

/// Notes the numbers that it sees.
#[derive(Default)]
struct Notes(Vec<u64>);

impl Actor for Notes {
    type Context = Context<Self>;
}

impl EventSourced for Notes {
    type Event = u64;

    fn apply(&mut self, number: u64) {
        self.0.push(number);
    }
}

impl Snapshot for Notes {
    type State = Vec<u64>;

    fn snapshot(&self) -> Vec<u64> {
        self.0.clone()
    }

    fn restore(&mut self, numbers: Vec<u64>) {
        self.0 = numbers;
    }
}

/// The answer is all that it has seen.
#[fiber::message(Vec<u64>)]
struct See(u64);

#[fiber::handlers]
impl Notes {
    fn see(&mut self, See(number): See) -> Vec<u64> {
        self.persist(number);
        self.0.clone()
    }
}

/// How many messages a user has on their way.
const WINDOW: usize = 4;

/// Sends numbers to keys of its own, and checks that none is out of order, twice, or lost once it
/// was answered.
fn write((notes, user, keys, is_calm): (EntitiesAddr<Notes>, u64, u64, bool)) -> Result<(), Error> {
    // A process that is lost while it starts may be started again.
    let of = |key: u64| notes.of(format!("{}/{key}", std::process::id()));
    let mut answered = vec![Vec::new(); keys as usize];
    let mut numbers = 0..;
    while counted("calm", 0) == 0 && !is_dead() {
        let sent: Vec<_> = numbers
            .by_ref()
            .take(WINDOW)
            .map(|number| (number, number % keys, of(number % keys).send(See(number))))
            .collect();
        for (number, key, answer) in sent {
            match answer.wait() {
                Ok(seen) => {
                    assert_eq!(seen.last(), Some(&number), "user {user}, key {key}: {seen:?}");
                    answered[key as usize].push(number);
                }
                Err(error) => assert!(!is_calm || is_dead(), "user {user}, key {key}: {error}"),
            }
        }
        nap(Duration::from_millis(30));
    }
    for (key, answered) in (0..keys).zip(answered) {
        // The last process may be starting again.
        let seen = of(key).resend().send(See(u64::MAX)).wait()?;
        let mut seen: Vec<_> = seen.into_iter().collect();
        seen.dedup_by(|one, other| *one == u64::MAX && *other == u64::MAX);
        assert!(seen.is_sorted_by(|one, other| one < other), "user {user}, key {key}: {seen:?}");
        let is_there = |number: &u64| seen.binary_search(number).is_ok();
        assert!(answered.iter().all(is_there), "{answered:?} of which are there {seen:?}");
    }
    Ok(())
}

/// Events that were answered are there, once and in order, whatever dies and moves.
pub(super) fn entities(ground: &mut Ground) -> Outcome {
    ground.session(with_events)
}

/// As [`entities`], with several processes in a job: they die and get SIGTERM together.
pub(super) fn hosted(ground: &mut Ground) -> Outcome {
    let mut config = Config::default();
    config.processes_per_job = ground.rng.usize(2..=4);
    ground.configured(config, with_events)
}

fn with_events(ground: &mut Ground) -> Outcome {
    play(ground, |_, builder| builder.events().start(|_: String, ()| Notes::default(), ()))
}

/// As [`entities`], with snapshots that replace events.
pub(super) fn snapshots(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        play(ground, |ground, builder| {
            let builder = builder.events_and_snapshots(ground.rng.u64(1..5));
            builder.start(|_: String, ()| Notes::default(), ())
        })
    })
}

/// A program keeps entities in a journal, while their processes and the head die and the disk fails.
/// Answered requests keep their effect, once and in order, also in later runs.
pub(super) fn durable(ground: &mut Ground) -> Outcome {
    let journal = Journal::at(ground.folder().join("journal"));
    let (processes, keys) = (ground.processes(), ground.items(4));
    // Each key gets one in each run.
    let (messages, every) = (keys + ground.items(40), ground.rng.u64(1..5));
    let deaths = ground.deaths();
    let program = || {
        let builder = Entities::builder("notes").processes(processes);
        let builder = builder.idle(Duration::from_millis(50)).manager(|process| {
            process.intensity(u32::MAX, Duration::from_secs(1)).backoff(Backoff::none())
        });
        let builder = builder.events_and_snapshots(every).durable(journal.clone());
        let notes = builder.start(|_: String, ()| Notes::default(), ()).wait()?;
        for _ in 0..messages {
            nap(Duration::from_millis(10));
            let number = count("numbers", 0);
            let key = number % keys;
            match notes.of(key).send(See(number)).wait() {
                Ok(seen) => {
                    assert!(seen.is_sorted_by(|one, other| one < other), "key {key}: {seen:?}");
                    let lost = |number: &u64| number % keys == key && !seen.contains(number);
                    let lost: Vec<_> = all_counted("answered").into_iter().filter(lost).collect();
                    assert!(lost.is_empty(), "key {key} has lost {lost:?}: {seen:?}");
                    count("answered", number);
                }
                Err(error) if counted("calm", 0) == 0 && is_of_surroundings(&error) => {}
                Err(error) => return Err(error),
            }
        }
        notes.stop().wait()
    };
    let storm = Some(ground.storm());
    ground.restart_until_completed(storm, &deaths, &program, |_, _| {})?;
    count("calm", 0);
    ground.restart_until_completed(None, &[], &program, |_, _| {})
}

fn play(
    ground: &mut Ground,
    start: fn(&mut Ground, EntitiesBuilder) -> Reply<Entities<Notes>>,
) -> Outcome {
    let (users, keys) = (ground.processes() as u64, ground.items(4));
    let builder = Entities::builder("notes").processes(ground.processes());
    let builder = builder.idle(Duration::from_millis(50)).manager(|process| {
        process.intensity(u32::MAX, Duration::from_secs(1)).backoff(Backoff::none())
    });
    let notes = start(ground, builder).wait()?;
    let is_calm = ground.happens(64);
    let users: Vec<_> = (0..users)
        .map(|user| Process::builder().try_spawn(write, (notes.addr(), user, keys, is_calm)))
        .collect();
    // A process that gets SIGTERM loses nothing.
    let is_drained = is_calm && ground.happens(192);
    let storm = match is_drained {
        true => Some(ground.storm_of(|_| Faults { terminations: 1, ..Faults::NONE })),
        false => (!is_calm).then(|| ground.storm()),
    };
    for _ in 0..ground.items(6) {
        nap(Duration::from_millis(500));
        let _ = notes.scale(ground.processes()).wait();
    }
    if let Some(storm) = storm {
        ground.wait_for_calm(storm);
    }
    count("calm", 0);
    for user in users {
        match user.wait() {
            Ok(()) => {}
            Err(error @ Error::Task { .. }) => return Err(error.into()),
            Err(error) if is_calm && !is_drained => return Err(error.into()),
            // It has died.
            Err(_) => {}
        }
    }
    notes.stop().wait()?;
    Ok(())
}
