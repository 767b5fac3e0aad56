//! Actors in other processes: calls there and back, calls that follow each other, and a thousand
//! actors at once.

#[path = "../../../examples/cartpole/mod.rs"]
mod cartpole;

use std::process::Command;
use std::time::{Duration, Instant};

use actix::prelude::*;
use anyhow::{Context as _, ensure};
use cartpole::{Action, CartPole, Observation};
use fiber::{AsyncManager, RemoteAddr};
use serde::{Deserialize, Serialize};

use crate::bare;
use crate::measure::{beside_peers, median, median_time, rate, resident, seconds};
use crate::table::{Figure, Row, Table, Target};

/// Argument with which this binary starts itself again to measure over nng.
pub(crate) const OVER_NNG: &str = "call-over-nng";

const TRIPS: usize = 20_000;
const WARM_UP: usize = 1_000;
/// Calls that are under way at once.
const WINDOW: usize = 10_000;
const PIPELINED: usize = 300_000;
/// The demonstration of the original's documentation.
const ENVIRONMENTS: u64 = 4;
const STEPS: usize = 5000;
const PROCESSES: usize = 10;
const ACTORS_EACH: usize = 100;
const ROUNDS: usize = 20;

struct Counter(u64);

impl Actor for Counter {
    type Context = Context<Self>;
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "u64")]
struct Add(u64);

impl Handler<Add> for Counter {
    type Result = u64;

    fn handle(&mut self, add: Add, _: &mut Context<Self>) -> u64 {
        self.0 += add.0;
        self.0
    }
}

impl Actor for CartPole {
    type Context = Context<Self>;
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Observation")]
struct Step(Action);

impl Handler<Step> for CartPole {
    type Result = MessageResult<Step>;

    fn handle(&mut self, Step(action): Step, _: &mut Context<Self>) -> Self::Result {
        MessageResult(self.step(action))
    }
}

pub(super) fn call(table: &mut Table) -> anyhow::Result<()> {
    let time = round_trip()?;
    let bare = bare::unix_ping()?;
    eprintln!("  fiber: {time:?}, bare: {bare:?}");
    let row = Row::new("one call of an actor, there and back", seconds(time))
        .beside("bare", seconds(bare))
        .target(Target::at_most(4.0, "bare"))
        .target(Target::at_most(0.5, "multiprocessing"));
    let row = beside_peers(row, table, "manager", &[], |peer| Some(Figure::Seconds(peer.seconds)));
    table.push(row);

    let time = round_trip_over_nng()?;
    let bare = bare::nng_ping()?;
    eprintln!("  over nng: fiber: {time:?}, bare: {bare:?}");
    let row = Row::new("one call of an actor over nng", seconds(time));
    table.push(row.beside("bare", seconds(bare)).target(Target::at_most(1.5, "bare")));
    Ok(())
}

/// The median of calls that follow each other.
fn round_trip() -> anyhow::Result<Duration> {
    let counter = AsyncManager::start(Counter, 0).wait()?;
    let mut times = Vec::with_capacity(TRIPS);
    for trip in 0..WARM_UP + TRIPS {
        let start = Instant::now();
        counter.send(Add(1)).wait()?;
        if trip >= WARM_UP {
            times.push(start.elapsed());
        }
    }
    Ok(median(times))
}

fn round_trip_over_nng() -> anyhow::Result<Duration> {
    let output =
        Command::new(std::env::current_exe()?).arg(OVER_NNG).env("FIBER_LINK", "nng").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "measuring over nng failed ({}): {}",
        output.status,
        said.trim_end()
    );
    let answer: f64 =
        serde_json::from_slice(&output.stdout).context("measuring over nng printed no result")?;
    Ok(Duration::from_secs_f64(answer))
}

/// Measures and prints the seconds.
pub(crate) fn answer_over_nng() -> anyhow::Result<()> {
    println!("{}", round_trip()?.as_secs_f64());
    Ok(())
}

pub(super) fn pipelined(table: &mut Table) -> anyhow::Result<()> {
    let counter = AsyncManager::start(Counter, 0).wait()?;
    let time = median_time(|| {
        let mut pending = std::collections::VecDeque::with_capacity(WINDOW);
        for _ in 0..PIPELINED {
            if pending.len() == WINDOW {
                // Half of them have most likely been answered by now: this thread sleeps seldom.
                pending
                    .drain(..WINDOW / 2)
                    .try_for_each(|call: fiber::Reply<u64>| call.wait().map(drop))?;
            }
            pending.push_back(counter.send(Add(1)));
        }
        Ok(pending.into_iter().try_for_each(|call| call.wait().map(drop))?)
    })?;
    let row = Row::new(
        "300,000 calls of one actor, up to 10,000 at once",
        Figure::Rate(rate(PIPELINED, time)),
    );
    table.push(row.target(Target::Above(Figure::Rate(300_000.0))));
    Ok(())
}

pub(super) fn cartpole(table: &mut Table) -> anyhow::Result<()> {
    let action = |step: usize| if step.is_multiple_of(2) { Action::Left } else { Action::Right };
    let one_by_one: Vec<_> = (0..ENVIRONMENTS)
        .map(|seed| AsyncManager::start(CartPole::new, seed).wait())
        .collect::<fiber::Result<_>>()?;
    let time = median_time(|| {
        for step in 0..STEPS {
            one_by_one.iter().try_for_each(|environment| {
                environment.send(Step(action(step))).wait().map(drop)
            })?;
        }
        Ok(())
    })?;
    table.push(Row::new("4 environments × 5000 steps, one by one", seconds(time)));
    drop(one_by_one);

    let at_once: Vec<_> = (0..ENVIRONMENTS)
        .map(|seed| AsyncManager::start(CartPole::new, seed).wait())
        .collect::<fiber::Result<_>>()?;
    let time = median_time(|| {
        let steps =
            (0..STEPS).flat_map(|step| at_once.iter().map(move |environment| (environment, step)));
        let pending: Vec<_> =
            steps.map(|(environment, step)| environment.send(Step(action(step)))).collect();
        Ok(pending.into_iter().try_for_each(|call| call.wait().map(drop))?)
    })?;
    let row = Row::new("4 environments × 5000 steps, all at once", seconds(time))
        .target(Target::at_most(0.1, "multiprocessing"))
        .note("multiprocessing: a trivial object in each of 4 managers, stepped as often");
    let row = beside_peers(row, table, "managers", &[], |peer| Some(Figure::Seconds(peer.seconds)));
    table.push(row);
    Ok(())
}

/// Exports this process's actors, and keeps the process alive until they end.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Vec<RemoteAddr<Counter>>")]
struct Populate(usize);

/// Has each of this process's actors called by this process.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<u64, String>")]
struct CallAll(Vec<RemoteAddr<Counter>>, usize);

/// A process full of actors.
struct Village;

impl Actor for Village {
    type Context = Context<Self>;
}

impl Handler<Populate> for Village {
    type Result = MessageResult<Populate>;

    fn handle(&mut self, populate: Populate, _: &mut Context<Self>) -> Self::Result {
        let export = |_| RemoteAddr::export(Counter(0).start()).expect("this process is a node");
        MessageResult((0..populate.0).map(export).collect())
    }
}

impl Handler<CallAll> for Village {
    type Result = ResponseFuture<Result<u64, String>>;

    fn handle(&mut self, CallAll(actors, rounds): CallAll, _: &mut Context<Self>) -> Self::Result {
        Box::pin(async move {
            for _ in 0..rounds {
                let pending: Vec<_> = actors.iter().map(|actor| actor.send(Add(1))).collect();
                for call in pending {
                    call.await.map_err(|error| error.to_string())?;
                }
            }
            Ok((rounds * actors.len()) as u64)
        })
    }
}

pub(super) fn thousand(table: &mut Table) -> anyhow::Result<()> {
    let villages: Vec<_> = (0..PROCESSES)
        .map(|_| AsyncManager::start(|| Village, ()).wait())
        .collect::<fiber::Result<_>>()?;
    let mut actors = Vec::new();
    for village in &villages {
        actors.extend(village.send(Populate(ACTORS_EACH)).wait()?);
    }
    let everywhere = |rounds: usize| -> anyhow::Result<usize> {
        let pending: Vec<_> =
            villages.iter().map(|village| village.send(CallAll(actors.clone(), rounds))).collect();
        let mut calls = 0;
        for call in pending {
            calls += call.wait()?.map_err(anyhow::Error::msg)?;
        }
        Ok(calls as usize)
    };
    everywhere(1)?;
    let memory = || -> anyhow::Result<f64> {
        villages.iter().filter_map(AsyncManager::pid).map(resident).sum::<anyhow::Result<f64>>()
    };
    let (before, start) = (memory()?, Instant::now());
    let calls = everywhere(ROUNDS)?;
    let (time, after) = (start.elapsed(), memory()?);
    eprintln!(
        "  {calls} calls in {time:.1?}, memory {:.1} MB, then {:.1} MB",
        before / 1e6,
        after / 1e6
    );
    let row = Row::new(
        "1000 actors in 10 processes, each called by all",
        Figure::Rate(rate(calls, time)),
    );
    table.push(row.note(format!(
        "memory of the 10: {} before, {} after",
        Figure::Bytes(before),
        Figure::Bytes(after)
    )));
    Ok(())
}
