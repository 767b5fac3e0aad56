//! How long a process takes to find an actor by its name, and to send to a member of a group.

use std::time::{Duration, Instant};

use actix::prelude::*;
use fiber::{AsyncManager, Group, Pool};
use serde::{Deserialize, Serialize};

use crate::measure::{median, seconds};
use crate::table::{Figure, Row, Table, Target};

/// Names that are looked up once each.
const NAMES: usize = 1000;
/// Look-ups of one name.
const KNOWN: u32 = 100_000;
const CALLS: usize = 10_000;
const GROUP: &str = "group";

struct Idle;

impl Actor for Idle {
    type Context = Context<Self>;
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
struct Nothing;

impl Handler<Nothing> for Idle {
    type Result = ();

    fn handle(&mut self, _: Nothing, _: &mut Context<Self>) {}
}

fn name(number: usize) -> String {
    format!("name {number}")
}

/// The median of look-ups of names that this process has not asked for, the mean of those of one
/// that it knows, and the medians of calls by address and by group.
fn measure(_: ()) -> fiber::Result<[Duration; 4]> {
    let found = fiber::find::<Idle>(&name(0)).wait()?;
    let first = (1..NAMES).map(|number| {
        let start = Instant::now();
        fiber::find::<Idle>(&name(number)).wait().map(|_| start.elapsed())
    });
    let first = median(first.collect::<fiber::Result<_>>()?);
    let start = Instant::now();
    for _ in 0..KNOWN {
        fiber::find::<Idle>(&name(NAMES - 1)).wait()?;
    }
    let known = start.elapsed() / KNOWN;
    let group = Group::<Nothing>::named(GROUP)?;
    let mut calls = [Vec::new(), Vec::new()];
    for _ in 0..CALLS {
        let start = Instant::now();
        found.send(Nothing).wait()?;
        calls[0].push(start.elapsed());
        let start = Instant::now();
        group.send(Nothing).wait()?;
        calls[1].push(start.elapsed());
    }
    let [by_address, by_group] = calls.map(median);
    Ok([first, known, by_address, by_group])
}

pub(super) fn names(table: &mut Table) -> anyhow::Result<()> {
    let actor = AsyncManager::start(|| Idle, ()).wait()?;
    for number in 0..NAMES {
        actor.register(&name(number)).wait()?;
    }
    Group::<Nothing>::named(GROUP)?.join(&actor.recipient()).wait()?;
    let pool = Pool::new(1)?;
    let [first, known, by_address, by_group] = pool.try_apply(measure, ()).wait()?;
    eprintln!("  first: {first:?}, known: {known:?}, calls: {by_address:?}, {by_group:?}");
    table.push(
        Row::new("the first look-up of a name", seconds(first))
            .beside("a call of an actor", seconds(by_address))
            .target(Target::at_most(1.5, "a call of an actor"))
            .target(Target::Below(Figure::Seconds(25e-6))),
    );
    table.push(
        Row::new("a later look-up of a name", seconds(known))
            .beside("a call of an actor", seconds(by_address))
            .target(Target::at_most(0.1, "a call of an actor"))
            .target(Target::Below(Figure::Seconds(1e-6))),
    );
    table.push(
        Row::new("one call of the only member of a group", seconds(by_group))
            .beside("a call of an actor", seconds(by_address))
            .target(Target::at_most(1.2, "a call of an actor")),
    );
    Ok(())
}
