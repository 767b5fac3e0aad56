//! One message to many actors, each in a process of its own, and all their answers.

use std::time::{Duration, Instant};

use actix::prelude::*;
use anyhow::ensure;
use fiber::ActorPool;
use fiber::actor_pool::ActorPoolAddr;
use serde_bytes::ByteBuf;

use crate::measure::{median, seconds};
use crate::table::{Figure, Row, Table};

const ACTORS: usize = 128;
const SMALL: usize = 200;
const LARGE: usize = 20;
const MIB: usize = 1 << 20;

struct Echo;

impl Actor for Echo {
    type Context = Context<Self>;
}

/// The answer is the same bytes.
#[fiber::message(ByteBuf)]
struct Bytes(ByteBuf);

#[fiber::handlers]
impl Echo {
    fn bytes(&mut self, Bytes(bytes): Bytes) -> ByteBuf {
        bytes
    }
}

/// The medians of so many messages of so many bytes: to all actors, and to one of them.
fn measure(
    actors: &ActorPoolAddr<Echo>,
    count: usize,
    len: usize,
) -> anyhow::Result<[Duration; 2]> {
    let message = || Bytes(ByteBuf::from(vec![7; len]));
    let one = actors.addrs().next().expect("there are some");
    let mut times = [Vec::new(), Vec::new()];
    // The first round connects to all.
    for round in 0..=count {
        let (to_all, to_one) = (message(), message());
        let start = Instant::now();
        let answers = actors.broadcast(to_all).all().wait()?;
        let all = start.elapsed();
        ensure!(answers.iter().all(|answer| answer.len() == len), "an answer is another");
        drop(answers);
        let start = Instant::now();
        one.send(to_one).wait()?;
        if round > 0 {
            times[0].push(all);
            times[1].push(start.elapsed());
        }
    }
    Ok(times.map(median))
}

pub(super) fn replies(table: &mut Table) -> anyhow::Result<()> {
    let pool = ActorPool::builder().start(|_: usize| Echo, 0..ACTORS).wait()?;
    let [small, small_one] = measure(&pool, SMALL, 8)?;
    let [large, large_one] = measure(&pool, LARGE, MIB)?;
    eprintln!("  8 bytes: {small:?}, of one {small_one:?}; 1 MiB: {large:?}, of one {large_one:?}");
    table.push(
        Row::new(format!("one message to {ACTORS} actors, all answers"), seconds(small))
            .beside("a call of an actor", seconds(small_one))
            .below(Figure::Seconds(2e-3)),
    );
    table.push(
        Row::new(format!("1 MiB to {ACTORS} actors and back"), seconds(large))
            .beside("1 MiB to one actor and back", seconds(large_one))
            .below(Figure::Seconds(40e-3)),
    );
    Ok(())
}
