//! Topics: how many messages a second arrive at their subscriptions.

use std::collections::VecDeque;
use std::pin::pin;

use anyhow::ensure;
use fiber::topic::{Slow, Subscription};
use fiber::{Process, Queue, Reply, Topic};
use futures_util::StreamExt;
use futures_util::future::join_all;

use crate::measure::{median_time, rate};
use crate::table::{Figure, Row, Table};

/// Messages of which a publisher has no reply yet.
const WINDOW: usize = 1_000;
pub(crate) const PROCESSES: usize = 8;
pub(crate) const SUBSCRIPTIONS_EACH: usize = 125;
pub(crate) const MESSAGES: u64 = 2_000;

/// Reads all messages by all subscriptions of a process: one round of them for each `()` of `go`.
async fn read(
    topic: Topic<u64>,
    subscriptions: usize,
    messages: u64,
    ready: Queue<()>,
    done: Queue<u64>,
) -> fiber::Result<()> {
    let subscribing = (0..subscriptions).map(|_| topic.subscribe(Slow::Wait));
    let subscriptions =
        join_all(subscribing).await.into_iter().collect::<fiber::Result<Vec<_>>>()?;
    ready.put(()).await?;
    let mut subscriptions: Vec<_> = subscriptions.into_iter().collect();
    loop {
        let reading = subscriptions.iter_mut().map(|subscription| sum(subscription, messages));
        let sums = join_all(reading).await.into_iter().collect::<fiber::Result<Vec<_>>>()?;
        done.put(sums.iter().sum()).await?;
    }
}

async fn sum(subscription: &mut Subscription<u64>, messages: u64) -> fiber::Result<u64> {
    let mut subscription = pin!(subscription);
    let mut sum = 0;
    for _ in 0..messages {
        sum += subscription.next().await.expect("it goes on")?;
    }
    Ok(sum)
}

/// Publishes to subscriptions in other processes. Returns the deliveries a second.
fn deliveries(processes: usize, subscriptions: usize, messages: u64) -> anyhow::Result<f64> {
    let topic = Topic::new()?;
    let (ready, done) = (Queue::new()?, Queue::new()?);
    let readers: Vec<Process<()>> = (0..processes)
        .map(|_| {
            let shared = (topic.clone(), subscriptions, messages, ready.clone(), done.clone());
            Process::builder().try_spawn(read, shared)
        })
        .collect();
    readers.iter().try_for_each(|_| ready.get().wait())?;
    let expected = subscriptions as u64 * (0..messages).sum::<u64>();
    let time = median_time(|| {
        let mut pending = VecDeque::with_capacity(WINDOW);
        for message in 0..messages {
            if pending.len() == WINDOW {
                pending.drain(..WINDOW / 2).try_for_each(Reply::wait)?;
            }
            pending.push_back(topic.publish(message));
        }
        pending.into_iter().try_for_each(Reply::wait)?;
        for _ in &readers {
            let sum = done.get().wait()?;
            ensure!(sum == expected, "{sum} instead of {expected}: messages are lost");
        }
        Ok(())
    })?;
    readers.iter().for_each(Process::kill);
    Ok(rate(processes * subscriptions * messages as usize, time))
}

pub(super) fn topics(table: &mut Table) -> anyhow::Result<()> {
    let many = deliveries(PROCESSES, SUBSCRIPTIONS_EACH, MESSAGES)?;
    let row = Row::new("a topic with 1000 subscriptions in 8 processes", Figure::Rate(many))
        .above(Figure::Rate(1e6))
        .at_least(3.0, "erlang_nodes")
        .note(
            "Deliveries of one publisher; in Erlang, of a group of `pg` with members in 8 nodes.",
        );
    table.push(row);
    let one = deliveries(1, 1, 200_000)?;
    table.push(Row::new("a topic with one subscription in another process", Figure::Rate(one)));
    Ok(())
}
