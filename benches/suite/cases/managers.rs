//! Thousands of managed actors that share a few processes: how long they take to start, and how much
//! memory each needs.

use std::process;
use std::time::Instant;

use actix::prelude::*;
use anyhow::ensure;
use fiber::AsyncManager;

use crate::measure::{proportional, rate, seconds};
use crate::table::{Figure, Row, Table};

const PROCESSES: usize = 4;
const ACTORS: usize = 10_000;

struct Account(u64);

impl Actor for Account {
    type Context = Context<Self>;
}

#[fiber::message(u64)]
struct Balance;

#[fiber::handlers]
impl Account {
    fn balance(&mut self, _: Balance) -> u64 {
        self.0
    }
}

pub(super) fn managers(table: &mut Table) -> anyhow::Result<()> {
    let hosts = (0..PROCESSES).map(|_| AsyncManager::start(Account, 0).wait());
    let hosts: Vec<_> = hosts.collect::<fiber::Result<_>>()?;
    // The first use of a link and of the handler is not part of it.
    hosts
        .iter()
        .try_for_each(|host| host.spawn(Account, 1).wait()?.send(Balance).wait().map(drop))?;
    let memory = || -> anyhow::Result<f64> {
        let pids = hosts.iter().filter_map(AsyncManager::pid).chain([process::id()]);
        pids.map(proportional).sum()
    };
    let (before, start) = (memory()?, Instant::now());
    let starting: Vec<_> =
        (0..ACTORS).map(|number| hosts[number % PROCESSES].spawn(Account, number as u64)).collect();
    let accounts = starting.into_iter().map(|account| account.wait());
    let accounts: Vec<_> = accounts.collect::<fiber::Result<_>>()?;
    let (started, after) = (start.elapsed(), memory()?);
    let start = Instant::now();
    let calls: Vec<_> = accounts.iter().map(|account| account.send(Balance)).collect();
    for (number, balance) in calls.into_iter().enumerate() {
        ensure!(balance.wait()? == number as u64, "account {number} has another balance");
    }
    let called = start.elapsed();
    let each = (after - before) / ACTORS as f64;
    let used = (memory()? - before) / ACTORS as f64;
    eprintln!(
        "  started in {started:.1?}, called in {called:.1?}, {each:.0} bytes, then {used:.0}"
    );
    let row = Row::new("10,000 managed actors in 4 processes start", seconds(started));
    table.push(row.below(Figure::Seconds(1.0)));
    let row = Row::new("memory of a managed actor among others", Figure::Bytes(each));
    table.push(row.below(Figure::Bytes(4096.0)).note(format!(
        "In its process and at its owner together; {} once it has been called.",
        Figure::Bytes(used)
    )));
    let row = Row::new("one call of each of them", Figure::Rate(rate(ACTORS, called)));
    table.push(row);
    Ok(())
}
