//! Durable calls, queues and actors of programs that start again.

use std::time::Duration;

use actix::prelude::*;
use fiber::manager::{Snapshot, Snapshots};
use fiber::{AsyncManager, Error, Journal, Pool, Process, Queue};
use fiber_world::{Faults, all_counted, count, counted, is_dead, let_happen, nap, reset};

use super::Outcome;
use crate::Ground;
use crate::restarts::{Death, is_of_surroundings};

const NEVER: u32 = u32::MAX;

/// The tasks of one call and version have numbers of their own.
fn task(call: u64, item: u64) -> u64 {
    version() << 48 | call << 32 | item
}

/// Returns the version of the tasks' function: one of two, so that a program goes back, too.
fn version() -> u64 {
    counted("changes of the version", 0) % 2
}

fn value(item: u64) -> u64 {
    item * item + version()
}

fn square((call, item): (u64, u64)) -> u64 {
    run(call, item);
    value(item)
}

fn fails_at_thirds((call, item): (u64, u64)) -> Result<u64, String> {
    run(call, item);
    if item.is_multiple_of(3) { Err(format!("item {item} fails")) } else { Ok(value(item)) }
}

fn run(call: u64, item: u64) {
    let task = task(call, item);
    count("runs", 0);
    if counted("delivered", task) > 0 {
        count("runs after its outcome", task);
    }
    nap(Duration::from_millis(item % 50));
}

/// A durable call of a program.
#[derive(Clone, Copy)]
struct Call {
    number: u64,
    items: u64,
    kind: u8,
}

impl Call {
    /// Makes the call, and checks its results.
    fn make(self, pool: &Pool, journal: &Journal) -> fiber::Result<()> {
        let Call { number, items, kind } = self;
        let pool = pool.durable(journal.clone().call(format!("call {number}")));
        let arguments = (0..items).map(move |item| (number, item));
        match kind {
            0 => {
                let values = pool.map(square, arguments).wait()?;
                assert_eq!(values, (0..items).map(value).collect::<Vec<_>>());
                (0..items).for_each(|item| self.note(item));
            }
            1 => {
                let mut next = 0;
                for found in pool.imap(square, arguments).wait() {
                    assert_eq!(found?, value(next));
                    self.note(next);
                    next += 1;
                }
                assert_eq!(next, items);
            }
            2 => {
                let mut found = Vec::new();
                for one in pool.imap_unordered(square, arguments).wait() {
                    let one = one?;
                    self.note((one - version()).isqrt());
                    found.push(one);
                }
                found.sort_unstable();
                assert_eq!(found, (0..items).map(value).collect::<Vec<_>>());
            }
            3 => {
                for item in 0..items.min(20) {
                    assert_eq!(pool.apply(square, (number, item)).wait()?, value(item));
                    self.note(item);
                }
            }
            _ => self.make_failing(&pool.durable(journal.clone().keep_failures()))?,
        }
        Ok(())
    }

    fn make_failing(self, pool: &Pool) -> fiber::Result<()> {
        let mut next = 0;
        let arguments = (0..self.items).map(move |item| (self.number, item));
        for outcome in pool.try_imap(fails_at_thirds, arguments).wait() {
            match outcome {
                Err(error) if is_of_surroundings(&error) => return Err(error),
                Ok(found) => assert_eq!((found, next % 3 == 0), (value(next), false)),
                Err(error) => {
                    let text = error.to_string();
                    let expected = format!("item {next} fails");
                    assert!(next % 3 == 0 && text.contains(&expected), "{next}: {text}");
                }
            }
            self.note(next);
            next += 1;
        }
        assert_eq!(next, self.items);
        Ok(())
    }

    /// Notes that the program has the outcome of an item.
    fn note(self, item: u64) {
        count("delivered", task(self.number, item));
    }
}

/// Runs a program whose outcomes are all recorded. No task runs, and none has run whose outcome an
/// earlier run of the program had.
fn check_recorded(
    ground: &mut Ground,
    program: &(dyn Fn() -> fiber::Result<()> + Sync),
) -> Outcome {
    let runs = counted("runs", 0);
    ground.restart_until_completed(None, &[], program, |_, _| {})?;
    assert_eq!(counted("runs", 0), runs, "a task runs although all are recorded");
    let again = all_counted("runs after its outcome");
    assert!(again.is_empty(), "tasks run although the program had their outcomes: {again:x?}");
    Ok(())
}

/// A program makes durable calls, while workers die, the head dies, and the disk fails. It has the
/// results that it would have otherwise, and no task runs whose outcome an earlier run has seen.
pub(super) fn calls(ground: &mut Ground) -> Outcome {
    let journal = Journal::at(ground.folder().join("journal"));
    let is_synced = ground.happens(192);
    let journal = if is_synced { journal } else { journal.without_sync() };
    let processes = ground.processes();
    let calls: Vec<_> = (0..ground.rng.u64(1..4))
        .map(|number| Call { number, items: ground.items(100), kind: ground.rng.u8(..5) })
        .collect();
    let deaths = ground.deaths();
    let program = || {
        let journal = journal.clone().version(version().to_string());
        let pool = Pool::builder().processes(processes).build()?.max_deaths(NEVER);
        for call in &calls {
            call.make(&pool, &journal)?;
        }
        pool.stop().wait()
    };
    // A failing disk may lose outcomes that were delivered without a sync.
    let storm = is_synced.then(|| ground.storm());
    ground.restart_until_completed(storm, &deaths, &program, |ground, death| {
        if death == Some(Death::PowerLoss) && !is_synced {
            reset("delivered");
        }
        if ground.happens(32) {
            count("changes of the version", 0);
        }
    })?;
    // Once more for the last version, and then from the journal alone.
    ground.restart_until_completed(None, &[], &program, |_, _| {})?;
    check_recorded(ground, &program)
}

/// The disk takes its time and fails, and nothing else goes wrong.
static FAILING_DISK: [&str; 2] = ["a sync is slow", "a sync fails"];

/// A program makes more and more durable calls, while its head dies again and again, mostly as it
/// writes. Checks what [`calls`] does.
pub(super) fn crashes(ground: &mut Ground) -> Outcome {
    let journal = Journal::at(ground.folder().join("journal"));
    let processes = ground.processes().min(2);
    let calls: Vec<_> = (0..ground.rng.u64(1..5))
        .map(|number| Call { number, items: ground.items(20), kind: ground.rng.u8(..5) })
        .collect();
    let program = || {
        let pool = Pool::builder().processes(processes).build()?.max_deaths(NEVER);
        for call in &calls[..counted("calls", 0) as usize] {
            call.make(&pool, &journal)?;
        }
        pool.stop().wait()
    };
    for _ in 0..calls.len() {
        count("calls", 0);
        let deaths: Vec<_> = (0..8).flat_map(|_| ground.deaths()).collect();
        let storm = ground.storm_of(|_| Faults::NONE);
        if ground.happens(128) {
            let_happen(&FAILING_DISK);
        }
        ground.restart_until_completed(Some(storm), &deaths, &program, |_, _| {})?;
    }
    check_recorded(ground, &program)
}

/// A program makes a durable graph, while workers die, the head dies, and the disk fails: squares,
/// sums of neighbours, and the sum of all. No task runs whose value an earlier run has seen.
pub(super) fn graph(ground: &mut Ground) -> Outcome {
    const SQUARES: u64 = 1;
    const PAIRS: u64 = 2;
    fn square_of(item: u64) -> u64 {
        run(SQUARES, item);
        value(item)
    }
    fn add(item: u64, one: u64, two: u64) -> u64 {
        run(PAIRS, item);
        one + two
    }
    fn sum(all: Vec<u64>) -> u64 {
        run(PAIRS + 1, 0);
        all.iter().sum()
    }
    let journal = Journal::at(ground.folder().join("journal"));
    let (processes, items) = (ground.processes(), ground.items(60).max(2));
    let deaths = ground.deaths();
    let program = || {
        let journal = journal.clone().version(version().to_string());
        let pool = Pool::builder().processes(processes).build()?.max_deaths(NEVER);
        let durable = pool.durable(journal.call("graph"));
        let squares = durable.map(square_of, 0..items).outputs();
        let neighbours = squares.iter().cloned().zip(squares.iter().skip(1).cloned());
        let neighbours: Vec<_> = (0..).zip(neighbours).map(|(item, (a, b))| (item, a, b)).collect();
        let pairs = durable.map(add, neighbours).outputs();
        let total = durable.apply(sum, pairs.clone()).output();
        for (item, output) in (0..).zip(&pairs) {
            assert_eq!(output.get().wait()?, value(item) + value(item + 1));
            for (call, item) in [(SQUARES, item), (SQUARES, item + 1), (PAIRS, item)] {
                Call { number: call, items: 0, kind: 0 }.note(item);
            }
        }
        let expected = (0..items - 1).map(|item| value(item) + value(item + 1)).sum::<u64>();
        assert_eq!(total.get().wait()?, expected);
        Call { number: PAIRS + 1, items: 0, kind: 0 }.note(0);
        pool.stop().wait()
    };
    let storm = ground.storm();
    ground.restart_until_completed(Some(storm), &deaths, &program, |ground, _| {
        if ground.happens(32) {
            count("changes of the version", 0);
        }
    })?;
    ground.restart_until_completed(None, &[], &program, |_, _| {})?;
    check_recorded(ground, &program)
}

/// Elements of a durable queue, in the order in which the program puts them.
fn element(run: u64, number: u64) -> u64 {
    run << 32 | number
}

fn consume(queue: Queue<u64>) {
    while let Ok(delivery) = queue.get_acknowledged().wait() {
        let element = *delivery;
        if !is_dead() && counted("acknowledged", element) > 0 {
            count("came back", element);
        }
        nap(Duration::from_millis(20));
        if element.is_multiple_of(7) && counted("returned", element) == 0 {
            count("returned", element);
            continue;
        }
        count("acknowledging", element);
        if delivery.acknowledge().wait().is_ok() {
            count("acknowledged", element);
        }
    }
}

/// A program puts elements into a durable queue, and processes acknowledge them, while all of them
/// die and the disk fails. No element is lost whose put was confirmed, none comes back whose
/// acknowledgement was, and those that are left come in their order.
pub(super) fn queue(ground: &mut Ground) -> Outcome {
    let journal = Journal::at(ground.folder().join("journal"));
    let consumers = ground.rng.usize(..3);
    let elements = ground.items(60);
    let capacity = ground.happens(64).then(|| ground.rng.usize(1..10));
    let deaths = ground.deaths();
    let open = || {
        let builder = Queue::<u64>::builder().name("jobs").durable(journal.clone());
        capacity.map_or(builder.clone(), |capacity| builder.capacity(capacity)).build()
    };
    // A bounded queue needs a consumer that lives as long as the program.
    let consumes = capacity.is_some() || ground.happens(64);
    let program = || {
        let queue = open()?;
        let start = |_| Process::spawn(consume, queue.clone());
        let children: Vec<_> = (0..consumers).map(start).collect();
        std::thread::scope(|threads| {
            if consumes {
                threads.spawn(|| consume(queue.clone()));
            }
            for number in 0..elements {
                let element = element(counted("runs", 0), number);
                queue.put(element).wait()?;
                count("put", element);
            }
            queue.close().wait()
        })?;
        for child in children {
            // It may have died.
            let _ = child.wait();
        }
        Ok(())
    };
    let storm = Some(ground.storm());
    ground.restart_until_completed(storm, &deaths, &program, |_, _| _ = count("runs", 0))?;
    let drain = || {
        let queue = open()?;
        let mut last = None;
        while !queue.is_empty().wait()? {
            let delivery = queue.get_acknowledged().wait()?;
            assert!(last < Some(*delivery), "{:x} comes after {last:x?}", *delivery);
            assert_eq!(counted("acknowledged", *delivery), 0, "{:x} came back", *delivery);
            last = Some(*delivery);
            count("acknowledging", *delivery);
            delivery.acknowledge().wait()?;
            count("acknowledged", last.unwrap_or_default());
        }
        Ok(())
    };
    ground.restart_until_completed(None, &[], &drain, |_, _| {})?;
    let lost = all_counted("put").into_iter().filter(|put| counted("acknowledging", *put) == 0);
    let lost: Vec<_> = lost.collect();
    assert!(lost.is_empty(), "elements are lost whose puts were confirmed: {lost:x?}");
    let twice = |element: &u64| counted("acknowledged", *element) > 1;
    let twice: Vec<_> = all_counted("acknowledged").into_iter().filter(twice).collect();
    assert!(twice.is_empty(), "acknowledged twice: {twice:x?}");
    let back = all_counted("came back");
    assert!(back.is_empty(), "elements came back that were acknowledged: {back:x?}");
    Ok(())
}

/// Counts its messages.
#[derive(Default)]
struct Counter(u64);

impl Actor for Counter {
    type Context = Context<Self>;
}

#[fiber::message(u64)]
struct Add;

#[fiber::handlers]
impl Counter {
    fn add(&mut self, Add: Add) -> u64 {
        self.0 += 1;
        if self.0 <= counted("recorded up to", 0) {
            count("went back", self.0);
        }
        self.0
    }
}

impl Snapshot for Counter {
    type State = u64;

    fn snapshot(&self) -> u64 {
        self.0
    }

    fn restore(&mut self, state: u64) {
        if state < counted("recorded up to", 0) {
            count("went back", state);
        }
        recorded_up_to(state);
        self.0 = state;
    }
}

fn recorded_up_to(state: u64) {
    while !is_dead() && counted("recorded up to", 0) < state {
        count("recorded up to", 0);
    }
}

/// A durable actor counts messages, while its process and the head die and the disk fails. A later
/// run never finds an earlier state than one that a run has found or has stopped with.
pub(super) fn actor(ground: &mut Ground) -> Outcome {
    let journal = Journal::at(ground.folder().join("journal"));
    let every = ground.rng.u64(1..5);
    let messages = ground.items(60);
    let deaths = ground.deaths();
    let program = || {
        let builder = AsyncManager::builder().name("counter");
        let builder = builder.intensity(u32::MAX, Duration::from_secs(1));
        let builder = builder.snapshots(Snapshots::every_messages(every));
        let counter = builder.durable(journal.clone()).start(Counter::default, ()).wait()?;
        let mut last = 0;
        for _ in 0..messages {
            nap(Duration::from_millis(10));
            match counter.addr().send(Add).wait() {
                Ok(count) => last = count,
                Err(Error::ActorStopped { .. }) => last = 0,
                Err(other) => return Err(other),
            }
        }
        counter.stop().wait()?;
        if counted("calm", 0) > 0 {
            recorded_up_to((last + 1).saturating_sub(every));
        }
        Ok(())
    };
    let storm = Some(ground.storm());
    ground.restart_until_completed(storm, &deaths, &program, |_, _| {})?;
    count("calm", 0);
    for _ in 0..2 {
        ground.restart_until_completed(None, &[], &program, |_, _| {})?;
    }
    let back = all_counted("went back");
    assert!(back.is_empty(), "it went back to {back:?}");
    Ok(())
}
