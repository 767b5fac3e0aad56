//! QueueStream from one process to another: many small ones through a queue, large ones through a
//! pipe.

use anyhow::ensure;
use bytes::Bytes;
use fiber::{Pipe, Process, Queue, pipe::PipeSender};

use crate::bare;
use crate::measure::{beside_peers, median_time, rate};
use crate::table::{Figure, Row, Table, Target};

const ELEMENTS: usize = 1_000_000;
const MIB: usize = 1 << 20;
const MESSAGES: usize = 1024;

/// Waits for the signal to begin, so that the start of the process does not count.
fn produce(begin: Queue<usize>, queue: Queue<u64>) {
    for count in begin.stream().wait().flatten() {
        for n in 0..count as u64 {
            if queue.put(n).wait().is_err() {
                return;
            }
        }
    }
}

fn consume(queue: Queue<u64>, sums: Queue<u64>) {
    let (mut sum, mut count) = (0, 0);
    for n in queue.stream().wait().flatten() {
        sum += n;
        count += 1;
        if count == ELEMENTS {
            let _ = sums.put(sum).wait();
            (sum, count) = (0, 0);
        }
    }
}

pub(super) fn queue(table: &mut Table) -> anyhow::Result<()> {
    let expected = (0..ELEMENTS as u64).sum::<u64>();
    let (begin, queue) = (Queue::new()?, Queue::new()?);
    let process = Process::spawn(produce, (begin.clone(), queue.clone()));
    let time = median_time(|| {
        begin.put(ELEMENTS).wait()?;
        let mut sum = 0;
        for _ in 0..ELEMENTS {
            sum += queue.get().wait()?;
        }
        ensure!(sum == expected, "the elements are not those that were put in");
        Ok(())
    })?;
    begin.close().wait()?;
    process.wait()?;
    let row = Row::new("queue: small elements from a child", Figure::Rate(rate(ELEMENTS, time)))
        .target(Target::at_least(20.0, "multiprocessing"));
    let row = beside_peers(row, table, "queue", &[], |peer| peer.rate.map(Figure::Rate));
    table.push(row);

    let (queue, sums) = (Queue::new()?, Queue::new()?);
    let process = Process::spawn(consume, (queue.clone(), sums.clone()));
    let time = median_time(|| {
        for n in 0..ELEMENTS as u64 {
            queue.put(n).wait()?;
        }
        ensure!(sums.get().wait()? == expected, "the elements are not those that were put in");
        Ok(())
    })?;
    queue.close().wait()?;
    process.wait()?;
    let row = Row::new("queue: small elements to a child", Figure::Rate(rate(ELEMENTS, time)));
    table.push(row);
    Ok(())
}

/// Sends the same bytes again and again, as the bare link's other end does.
fn flood(begin: Queue<usize>, pipe: PipeSender<Bytes>) {
    let message = Bytes::from(vec![7; MIB]);
    for count in begin.stream().wait().flatten() {
        for _ in 0..count {
            if pipe.send(message.clone()).wait().is_err() {
                return;
            }
        }
    }
}

pub(super) fn pipe(table: &mut Table) -> anyhow::Result<()> {
    let begin = Queue::new()?;
    let (sender, receiver) = Pipe::one_way()?;
    let process = Process::spawn(flood, (begin.clone(), sender));
    let time = median_time(|| {
        begin.put(MESSAGES).wait()?;
        for _ in 0..MESSAGES {
            ensure!(receiver.recv().wait()?.len() == MIB, "a message is not what was sent");
        }
        Ok(())
    })?;
    begin.close().wait()?;
    process.wait()?;
    let bare = bare::unix_one_way(MIB, MESSAGES)?;
    eprintln!("  bare: {:.0} MB/s", bare / 1e6);
    let row = Row::new("pipe: 1 MiB one way", Figure::Throughput(rate(MIB * MESSAGES, time)))
        .beside("bare", Figure::Throughput(bare))
        .target(Target::at_least(0.5, "bare").aim(0.8));
    let row = beside_peers(row, table, "pipe_bytes", &[], |peer| peer.rate.map(Figure::Throughput));
    table.push(row);
    Ok(())
}
