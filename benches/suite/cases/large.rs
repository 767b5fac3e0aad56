//! Values of 1 to 256 MiB, there and back: the memory that they take is new, or is used again.

use actix::prelude::*;
use anyhow::ensure;
use fiber::{AsyncManager, Pipe, Process, Queue};

use crate::bare;
use crate::measure::{median_time, rate, ready_pool};
use crate::table::{Figure, Row, Table};

const MIB: usize = 1 << 20;
const SIZES: [usize; 5] = [MIB, 8 * MIB, 16 * MIB, 64 * MIB, 256 * MIB];
/// The bytes that each measurement sends, so that it takes as long with each size.
const BYTES: usize = 512 * MIB;

struct Echo;

impl Actor for Echo {
    type Context = Context<Self>;
}

#[fiber::message(Vec<u8>)]
struct Data(Vec<u8>);

#[fiber::handlers]
impl Echo {
    fn data(&mut self, data: Data) -> Vec<u8> {
        data.0
    }
}

fn echo(data: Vec<u8>) -> Vec<u8> {
    data
}

fn echo_elements(there: Queue<Vec<u8>>, back: Queue<Vec<u8>>) {
    for data in there.stream().wait().flatten() {
        if back.put(data).wait().is_err() {
            return;
        }
    }
}

fn echo_messages(pipe: Pipe<Vec<u8>>) {
    while let Ok(data) = pipe.recv().wait() {
        if pipe.send(data).wait().is_err() {
            return;
        }
    }
}

pub(super) fn large(table: &mut Table) -> anyhow::Result<()> {
    let actor = AsyncManager::start(|| Echo, ()).wait()?;
    let pool = ready_pool(1)?;
    let (there, back) = (Queue::new()?, Queue::new()?);
    let _consumer = Process::spawn(echo_elements, (there.clone(), back.clone()));
    let (pipe, far) = Pipe::new()?;
    let _other = Process::spawn(echo_messages, far);
    for size in SIZES {
        let bare = bare::unix_stream(size, BYTES / size, 1)?;
        eprintln!("  {} MiB: bare: {:.0} MB/s", size / MIB, bare / 1e6);
        let mut push = |name: &str, send: &dyn Fn(Vec<u8>) -> fiber::Result<Vec<u8>>| {
            let name = format!("{} MiB to {name} and back", size / MIB);
            table.push(there_and_back(&name, size, bare, send)?);
            anyhow::Ok(())
        };
        push("an actor", &|data| actor.send(Data(data)).wait())?;
        push("a task", &|data| pool.apply(echo, data).wait())?;
        push("a process by queues", &|data| {
            there.put(data).wait()?;
            back.get().wait()
        })?;
        push("a process by a pipe", &|data| {
            pipe.send(data).wait()?;
            pipe.recv().wait()
        })?;
    }
    there.close().wait()?;
    Ok(())
}

/// Sends a value again and again. The copy that is sent counts, too.
fn there_and_back(
    name: &str,
    size: usize,
    bare: f64,
    send: &dyn Fn(Vec<u8>) -> fiber::Result<Vec<u8>>,
) -> anyhow::Result<Row> {
    let (value, count) = (vec![7_u8; size], BYTES / size);
    ensure!(send(value.clone())? == value, "a value is not what was sent");
    let time = median_time(|| {
        for _ in 0..count {
            ensure!(send(value.clone())?.len() == size, "a value is not what was sent");
        }
        Ok(())
    })?;
    Ok(Row::new(name, Figure::Throughput(rate(2 * BYTES, time)))
        .beside("bare", Figure::Throughput(bare))
        .at_least(0.5, "bare"))
}
