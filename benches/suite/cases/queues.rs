//! Small elements from one process to another through a queue.

use anyhow::ensure;
use fiber::{Process, Queue};

use crate::measure::{median_time, rate};
use crate::table::{Figure, Row, Table};

const ELEMENTS: usize = 1_000_000;

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
        .at_least(20.0, "multiprocessing");
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
