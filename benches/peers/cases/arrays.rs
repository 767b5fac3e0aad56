//! Large arrays: there and back, and to all workers.

use std::collections::BTreeSet;

use anyhow::ensure;
use fiber::{Array, Broadcast};

use crate::measure::{median_time, proportional, rate, ready_pool, seconds};
use crate::table::{Figure, Row, Table};

const MIB: usize = 1 << 20;
/// Elements of an array of 16 MiB.
const LARGE: usize = 16 * MIB / size_of::<f64>();
const ARRAYS: usize = 64;
/// Elements of an array of 256 MiB.
const BROADCAST: usize = 256 * MIB / size_of::<f64>();
const READERS: usize = 16;
const WORKERS: usize = 2;

fn array(len: usize) -> Array<f64> {
    Array::build(len, |elements| elements.fill(1.0))
}

fn add_one(array: Array<f64>) -> Array<f64> {
    Array::build(array.len(), |sums| {
        sums.iter_mut().zip(&array).for_each(|(sum, element)| *sum = element + 1.0);
    })
}

/// Returns also which process has read the array.
fn sum(array: Broadcast<Array<f64>>) -> fiber::Result<(f64, u32)> {
    Ok((array.get()?.iter().sum(), std::process::id()))
}

pub(super) fn arrays(table: &mut Table) -> anyhow::Result<()> {
    there_and_back(table)?;
    to_all_workers(table)
}

fn there_and_back(table: &mut Table) -> anyhow::Result<()> {
    let pool = ready_pool(WORKERS)?;
    let time = median_time(|| {
        for result in pool.imap(add_one, (0..ARRAYS).map(|_| array(LARGE))).wait() {
            ensure!(result?[LARGE - 1] == 2.0, "a result is wrong");
        }
        Ok(())
    })?;
    let bytes = 2 * LARGE * size_of::<f64>() * ARRAYS;
    let row = Row::new("64 arrays of 16 MiB there and back", Figure::Throughput(rate(bytes, time)))
        .at_least(2.0, "ray");
    table.push(row);
    Ok(())
}

fn to_all_workers(table: &mut Table) -> anyhow::Result<()> {
    const RECEIVERS: usize = 4;
    let pool = ready_pool(RECEIVERS)?;
    let value = array(BROADCAST);
    let mut memory = 0.0;
    let time = median_time(|| {
        let broadcast = pool.broadcast(value.clone())?;
        let sums = pool.try_map(sum, vec![broadcast.clone(); READERS]).wait()?;
        ensure!(sums.iter().all(|(sum, _)| *sum == BROADCAST as f64), "a sum is wrong");
        let readers: BTreeSet<u32> = sums.into_iter().map(|(_, pid)| pid).collect();
        memory = proportional(std::process::id())?;
        for reader in readers {
            memory += proportional(reader)?;
        }
        Ok(())
    })?;
    let row =
        Row::new("256 MiB to 4 workers, 16 tasks that read it", seconds(time)).at_most(1.0, "ray");
    table.push(row);
    let copy = (BROADCAST * size_of::<f64>()) as f64;
    table.push(
        Row::new("memory of all processes then", Figure::Bytes(memory))
            .beside("one copy", Figure::Bytes(copy))
            .at_most(1.2, "one copy"),
    );
    Ok(())
}
