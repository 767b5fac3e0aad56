//! Streams: tasks and handlers that answer with many values.

use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use actix::prelude::*;
use fiber::simulation::in_this_session;
use fiber::supervisor::Backoff;
use fiber::{AsyncManager, Error, Pool, Process, Sender, Stream};
use fiber_world::{count, counted, is_dead, nap};
use serde::{Deserialize, Serialize};

use super::Outcome;
use crate::Ground;
use crate::ground::Storm;

type Items = Stream<(u64, u64)>;

/// The items of a stream: its number, and from 0 to an end; and the longest pause before each.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Numbers {
    stream: u64,
    end: u64,
    pause: Duration,
    /// How many are taken before the stream is dropped, or passed on, there and here.
    some: u64,
    comes_back: bool,
}

/// The fate of a stream.
#[derive(Clone, Copy)]
enum Fate {
    Taken,
    Dropped,
    PassedOn,
}

impl Numbers {
    fn draw(ground: &mut Ground, stream: u64, fate: Fate, storm: &Storm) -> Numbers {
        let end = match fate {
            Fate::Dropped => u64::MAX,
            Fate::Taken | Fate::PassedOn => ground.items(100),
        };
        let pause = Duration::from_millis(ground.rng.u64(..20));
        Numbers { stream, end, pause, some: ground.items(30), comes_back: storm.is_calm() }
    }
}

fn draw_fate(ground: &mut Ground) -> Fate {
    [Fate::Taken, Fate::Dropped, Fate::PassedOn][ground.rng.usize(..3)]
}

fn produce(numbers: Numbers, out: Sender<(u64, u64)>) -> fiber::Result<()> {
    count("runs", numbers.stream);
    for number in 0..numbers.end {
        if number % 8 == 0 {
            nap(numbers.pause);
        }
        if let Err(error) = out.send((numbers.stream, number)).wait() {
            if !is_dead() {
                count("stopped", numbers.stream);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Sends the items of a stream that another task of the pool makes.
fn relay(numbers: Numbers, out: Sender<(u64, u64)>) -> fiber::Result<()> {
    let pool = Pool::current()?.max_deaths(u32::MAX);
    for item in pool.stream(produce, numbers) {
        out.send(item?).wait()?;
    }
    Ok(())
}

/// Takes so many items, which have to be the next ones, or all.
fn take(items: &mut Items, stream: u64, next: &mut u64, most: u64) -> fiber::Result<()> {
    let until = next.saturating_add(most);
    while *next < until
        && let Some(item) = items.into_iter().next()
    {
        assert_eq!(item?, (stream, *next), "another item comes");
        *next += 1;
    }
    Ok(())
}

/// Takes items in another process: some, and returns the stream and the number of the next item, or
/// all. A stream in a result that is lost with its process would stay.
fn elsewhere(mut items: Items, numbers: Numbers, mut next: u64) -> Option<(Option<Items>, u64)> {
    let most = if numbers.comes_back { numbers.some } else { u64::MAX };
    match take(&mut items, numbers.stream, &mut next, most) {
        Ok(()) => Some((numbers.comes_back.then_some(items), next)),
        Err(error) => {
            println!("stream {} ended before item {next}: {error}", numbers.stream);
            None
        }
    }
}

/// Lets a stream have its fate. Returns whether all its items came, unless it is dropped.
fn consume(mut items: Items, numbers: Numbers, fate: Fate) -> Result<bool, Error> {
    let Numbers { stream, end, some, .. } = numbers;
    let mut next = 0;
    match fate {
        Fate::Taken => {}
        Fate::Dropped => {
            take(&mut items, stream, &mut next, some)?;
            return Ok(true);
        }
        Fate::PassedOn => {
            take(&mut items, stream, &mut next, some)?;
            match Process::spawn(elsewhere, (items, numbers, next)).wait() {
                Ok(Some((Some(back), there))) => (items, next) = (back, there),
                Ok(Some((None, last))) => {
                    assert_eq!(last, end, "stream {stream} ends before its end");
                    return Ok(true);
                }
                Ok(None) => return Ok(false),
                Err(error @ Error::Task { .. }) => return Err(error),
                // Its process has died, or its links.
                Err(_) => return Ok(false),
            }
        }
    }
    take(&mut items, stream, &mut next, u64::MAX)?;
    assert_eq!(next, end, "stream {stream} ends before its end");
    Ok(true)
}

/// Streams of tasks whose workers die, some of which are passed on and some of which are dropped: no
/// item is lost, comes twice or out of order. Where nothing goes wrong, a task runs once, and stops
/// when its stream is dropped.
pub(super) fn tasks(ground: &mut Ground) -> Outcome {
    // A worker that dies takes the streams with it that its tasks have made.
    ground.has_dead_processes = true;
    ground.session(|ground| {
        let pool = Pool::builder().processes(ground.processes()).build()?.max_deaths(u32::MAX);
        // Endless producers don't run far ahead.
        let pool = pool.buffer(8 << 10);
        pool.apply(|| (), ()).wait()?;
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let mut streams = Vec::new();
        for stream in 0..ground.items(5) {
            let fate = draw_fate(ground);
            let numbers = Numbers::draw(ground, stream, fate, &storm);
            let is_relayed = ground.happens(64);
            let items = match is_relayed {
                true => pool.stream(relay, numbers),
                false => pool.stream(produce, numbers),
            };
            // All are taken at once: a producer that waits for its consumer keeps its worker.
            let consume = in_this_session(move || consume(items, numbers, fate));
            let consumer = std::thread::spawn(consume);
            streams.push((consumer, stream, fate, is_relayed));
            nap(Duration::from_millis(20));
        }
        let mut dropped = Vec::new();
        for (consumer, stream, fate, is_relayed) in streams {
            let consumed = consumer.join().unwrap_or_else(|panic| resume_unwind(panic));
            let is_whole = match consumed {
                // The two workers lost their link, and neither is dead.
                Err(error @ Error::Task { .. }) if is_relayed && is_link_lost(&error) => false,
                other => other?,
            };
            assert!(is_whole || !is_calm, "stream {stream} lacks items");
            let runs = counted("runs", stream);
            assert!(!is_calm || runs == 1, "stream {stream} has run {runs} times");
            if matches!(fate, Fate::Dropped) {
                dropped.push(stream);
            }
        }
        ground.wait_for_calm(storm);
        if is_calm {
            wait_for_stops(&dropped);
        }
        pool.stop().wait()?;
        Ok(())
    })
}

fn is_link_lost(error: &Error) -> bool {
    error.to_string().contains("is gone: its owner")
}

/// Waits until the producers of streams that were dropped have stopped.
fn wait_for_stops(dropped: &[u64]) {
    let until = Instant::now() + Duration::from_secs(60);
    while let Some(stream) = dropped.iter().find(|stream| counted("stopped", **stream) == 0) {
        assert!(Instant::now() < until, "the producer of stream {stream} goes on");
        std::thread::sleep(Duration::from_secs(1));
    }
}

struct Site;

impl Actor for Site {
    type Context = Context<Self>;
}

#[fiber::message(Items)]
struct Ask(Numbers);

/// Counts that the producer of a stream was dropped before its end.
struct Stopped(u64);

impl Drop for Stopped {
    fn drop(&mut self) {
        if !is_dead() {
            count("stopped", self.0);
        }
    }
}

#[fiber::handlers]
impl Site {
    fn ask(&mut self, Ask(numbers): Ask) -> Items {
        let stopped = Stopped(numbers.stream);
        Stream::new(move |out| async move {
            let _stopped = stopped;
            for number in 0..numbers.end {
                if number % 8 == 7 {
                    actix::clock::sleep(numbers.pause).await;
                }
                out.send((numbers.stream, number)).await?;
            }
            fiber::Result::<()>::Ok(())
        })
    }
}

/// Streams of an actor whose process may die, some of which are passed on and some of which are
/// dropped: the items come in order, until the end or the death. The producers of those that are
/// dropped stop.
pub(super) fn handlers(ground: &mut Ground) -> Outcome {
    ground.session(|ground| {
        let builder = AsyncManager::builder().intensity(u32::MAX, Duration::from_secs(1));
        let site = builder.backoff(Backoff::none()).start(|()| Site, ()).wait()?;
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        // A process that dies has items that nobody takes.
        ground.has_dead_processes = !is_calm;
        let mut dropped = Vec::new();
        for stream in 0..ground.items(6) {
            let fate = draw_fate(ground);
            let numbers = Numbers::draw(ground, stream, fate, &storm);
            let outcome = site
                .addr()
                .resend()
                .send(Ask(numbers))
                .wait()
                .and_then(|items| consume(items, numbers, fate));
            let is_whole = match outcome {
                Ok(is_whole) => is_whole,
                Err(error @ (Error::Task { .. } | Error::StreamFailed { .. })) => {
                    return Err(error.into());
                }
                // The actor's process has ended.
                Err(_) => false,
            };
            assert!(is_whole || !is_calm, "stream {stream} lacks items");
            if matches!(fate, Fate::Dropped) {
                dropped.push(stream);
            }
        }
        ground.wait_for_calm(storm);
        if is_calm {
            wait_for_stops(&dropped);
        }
        site.stop().wait()?;
        Ok(())
    })
}
