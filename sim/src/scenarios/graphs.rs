//! Work that depends on work.

use std::thread;
use std::time::{Duration, Instant};

use fiber::{Array, Error, Output, Pool, Queue};
use fiber_world::{count, counted, is_dead, nap};

use super::Outcome;
use super::maps::pool;
use crate::Ground;

/// Tasks take the outputs of others, in layers of a drawn graph. Each has its value, and runs again
/// only for a death; one whose input fails never runs. Then comes a [`chain`]. Tasks that nothing
/// needs any more before their input is there never run.
pub(super) fn graph(ground: &mut Ground) -> Outcome {
    fn add(task: u64, inputs: Vec<u64>) -> Result<u64, String> {
        count("runs", task);
        nap(Duration::from_millis(task % 20));
        if task.is_multiple_of(61) && task > 0 {
            Err(format!("task {task} fails"))
        } else {
            Ok(inputs.iter().fold(task, |sum, input| sum.wrapping_mul(31).wrapping_add(*input)))
        }
    }
    ground.session(|ground| {
        let pools = [pool(ground)?, pool(ground)?];
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let tasks = ground.items(200);
        // The value of each task: none if it or an input of it fails.
        let (mut outputs, mut expected) = (Vec::new(), Vec::<Option<u64>>::new());
        for task in 0..tasks {
            let width = if task == 0 { 0 } else { ground.rng.u64(..4.min(task + 1)) };
            let inputs: Vec<_> = (0..width).map(|_| ground.rng.usize(..outputs.len())).collect();
            let values: Option<Vec<u64>> = inputs.iter().map(|input| expected[*input]).collect();
            let is_failing = task.is_multiple_of(61) && task > 0;
            let sum = |values: Vec<u64>| {
                values.iter().fold(task, |sum, input| sum.wrapping_mul(31).wrapping_add(*input))
            };
            expected.push(values.filter(|_| !is_failing).map(sum));
            let inputs: Vec<fiber::Output<u64>> =
                inputs.into_iter().map(|input| Clone::clone(&outputs[input])).collect();
            let pool = &pools[ground.rng.usize(..2)];
            outputs.push(pool.try_apply(add, (task, inputs)).output());
        }
        for (task, (output, expected)) in (0..).zip(outputs.iter().zip(&expected)) {
            match (output.get().wait(), expected) {
                (Ok(value), Some(expected)) => assert_eq!(value, *expected, "task {task}"),
                (Err(Error::Task { .. }), None) => {}
                (Err(Error::InputFailed { .. }), None) => {
                    assert_eq!(counted("runs", task), 0, "runs of task {task} without its input");
                }
                (found, _) => panic!("task {task}: {found:?} in place of {expected:?}"),
            }
            let runs = counted("runs", task);
            assert!(runs <= 1 || !is_calm, "{runs} runs of task {task}");
        }
        chain(ground, &pools[0], is_calm)?;
        let first = pools[0].apply(after_release, (0, tasks)).output();
        let mut last = first.clone();
        let unwanted = tasks..tasks + ground.items(20);
        for task in unwanted.clone() {
            last = pools[1].try_apply(add, (task, vec![last])).output();
        }
        drop(last);
        while pools[1].stats().tasks.held > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        count("release", 0);
        ground.wait_for_calm(storm);
        first.get().wait()?;
        drop((outputs, first));
        for pool in pools {
            pool.stop().wait()?;
        }
        for task in unwanted {
            assert_eq!(counted("runs", task), 0, "task {task} runs, which nothing needs");
        }
        Ok(())
    })
}

/// Returns a value when a number has been counted as a release.
fn after_release<T>(number: u64, value: T) -> T {
    while counted("release", number) == 0 && !is_dead() {
        thread::sleep(Duration::from_millis(1));
    }
    value
}

/// The tasks of a chain follow each other in one worker as long as all goes well.
fn chain(ground: &mut Ground, pool: &Pool, is_calm: bool) -> Outcome {
    /// A value, and the process that has made it.
    type Link = (u64, u32);
    fn link(number: u64, failing: u64, before: Vec<Link>) -> Result<Link, String> {
        count("link", number);
        if number == failing {
            return Err(format!("link {number} fails"));
        }
        Ok((before[0].0 + number, std::process::id()))
    }
    let (links, failing) = (1 + ground.items(60), ground.rng.u64(..100));
    let start: Link = (0, 0);
    let mut outputs: Vec<Output<Link>> = vec![pool.apply(after_release, (1, start)).output()];
    for number in 1..=links {
        let before = outputs[outputs.len() - 1].clone();
        outputs.push(pool.try_apply(link, (number, failing, vec![before])).output());
    }
    count("release", 1);
    let released = Instant::now();
    let mut processes = Vec::new();
    for (number, output) in (0..).zip(&outputs) {
        let is_whole = number < failing || failing == 0;
        match output.get().wait() {
            Ok((value, process)) if is_whole => {
                assert_eq!(value, number * (number + 1) / 2, "link {number}");
                processes.push(process);
            }
            Err(Error::Task { .. }) if number == failing => {}
            Err(Error::InputFailed { .. }) if number > failing && !is_whole => {
                assert_eq!(counted("link", number), 0, "link {number} runs without its input");
            }
            found => panic!("link {number}: {found:?}"),
        }
        assert!(counted("link", number) <= 1 || !is_calm, "link {number} runs again");
    }
    // Links whose mean time is long, or not known yet, follow none. Threads that sleep between two
    // steps make it long.
    let is_swift = is_calm && released.elapsed() < Duration::from_millis(2);
    let changes = processes.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64;
    assert!(changes <= 3 + links / 16 || !is_swift, "a chain of {links} changes: {processes:?}");
    Ok(())
}

/// The values of a map are merged in the order of their items, and the first failure is that of
/// all.
pub(super) fn reduce(ground: &mut Ground) -> Outcome {
    fn list((item, failing): (u64, u64)) -> Result<Vec<u64>, String> {
        count("runs", item);
        nap(Duration::from_millis(item % 30));
        if item == failing { Err(format!("item {item} fails")) } else { Ok(vec![item]) }
    }
    fn join(mut one: Vec<u64>, other: Vec<u64>) -> Vec<u64> {
        nap(Duration::from_millis(other.len() as u64));
        one.extend(other);
        one
    }
    ground.session(|ground| {
        let pool = pool(ground)?;
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let items = ground.items(120);
        let failing = if ground.happens(64) { ground.rng.u64(..items + 1) } else { u64::MAX };
        let merged = pool.try_map(list, (0..items).map(move |item| (item, failing))).reduce(join);
        match merged.wait() {
            Ok(merged) => {
                assert!(failing >= items, "item {failing} fails, and the whole does not");
                let expected: Vec<_> = (0..items).collect();
                assert_eq!(merged, (items > 0).then_some(expected));
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains(&format!("item {failing} fails")), "{text}");
            }
        }
        for item in (0..items).filter(|_| is_calm) {
            assert!(counted("runs", item) <= 1, "item {item} runs again");
        }
        ground.wait_for_calm(storm);
        pool.stop().wait()?;
        Ok(())
    })
}

/// Outputs of endless calls come as results do, and go on as the arguments of other calls.
pub(super) fn streams(ground: &mut Ground) -> Outcome {
    fn square(x: u64) -> u64 {
        nap(Duration::from_millis(x % 20));
        x * x
    }
    ground.session(|ground| {
        let pools = [pool(ground)?, pool(ground)?];
        let storm = ground.storm();
        let (count, pause) = (ground.items(60), ground.rng.u64(..20));
        let squares = pools[0].imap(square, 0..).outputs();
        let fourth = pools[1].imap(square, squares).wait();
        for (x, found) in (0..count).zip(fourth) {
            assert_eq!(found?, x.pow(4), "{x}");
            nap(Duration::from_millis(pause));
        }
        // Outputs that are left end with their handles.
        let mut unordered: Vec<_> = Vec::new();
        for output in pools[0].imap_unordered(square, 0..count).outputs().wait() {
            unordered.push(output.get().wait()?);
        }
        unordered.sort_unstable();
        assert_eq!(unordered, (0..count).map(|x| x * x).collect::<Vec<_>>());
        ground.wait_for_calm(storm);
        for pool in pools {
            pool.stop().wait()?;
        }
        Ok(())
    })
}

/// Outputs go to tasks and processes before their values are there, and come back. Each has its
/// value wherever it is, and is gone only with the process that made its call.
pub(super) fn travel(ground: &mut Ground) -> Outcome {
    fn square(x: u64) -> u64 {
        nap(Duration::from_millis(x % 50));
        x * x
    }
    /// Returns the output, too.
    fn take(output: Output<u64>, x: u64) -> Result<(Output<u64>, u64), Error> {
        if x.is_multiple_of(3) {
            return Ok((output, x * x));
        }
        let value = output.get().wait()?;
        Ok((output, value))
    }
    /// Makes calls of its own, and lives until all outputs have been taken.
    fn make(market: Queue<(u64, Output<u64>)>, calls: u64) -> Result<(), Error> {
        let pool = Pool::builder().processes(1).build()?;
        for (x, output) in (0..).zip(pool.map(square, 0..calls).outputs()) {
            market.put((x, output)).wait()?;
        }
        market.flush().wait()?;
        while counted("over", 0) == 0 {
            thread::sleep(Duration::from_secs(1));
        }
        pool.stop().wait()
    }
    // A worker that dies takes the values with it that it has asked for.
    ground.has_dead_processes = true;
    ground.session(|ground| {
        let pools = [pool(ground)?, pool(ground)?];
        let (market, made) = (Queue::new()?, ground.items(20));
        let maker = fiber::Process::builder().try_spawn(make, (market.clone(), made));
        for _ in 0..made {
            let (x, output) = market.get().wait()?;
            assert_eq!(pools[1].apply(square, output.clone()).wait()?, x.pow(4));
            let (output, value) = pools[1].try_apply(take, (output, 1)).wait()?;
            assert_eq!((value, output.get().wait()?), (x * x, x * x));
        }
        count("over", 0);
        maker.wait()?;
        let storm = ground.storm();
        let count_of = ground.items(60);
        let outputs = pools[0].map(square, 0..count_of).outputs();
        let taken: Vec<_> =
            (0..).zip(&outputs).map(|(x, y)| pools[1].try_apply(take, (y.clone(), x))).collect();
        drop(outputs);
        for (x, taken) in (0..).zip(taken) {
            let (output, value) = taken.wait()?;
            assert_eq!((value, output.get().wait()?), (x * x, x * x));
            assert_eq!(pools[0].apply(square, output).wait()?, x.pow(4));
        }
        ground.wait_for_calm(storm);
        for pool in pools {
            pool.stop().wait()?;
        }
        Ok(())
    })
}

/// Arrays that tasks of hosts make and take stay where they are, and are right wherever they go.
pub(super) fn near(ground: &mut Ground) -> Outcome {
    fn fill(value: u64) -> Array<u64> {
        nap(Duration::from_millis(value % 20));
        vec![value; 10_000].into()
    }
    fn add(one: Array<u64>, two: Array<u64>) -> Array<u64> {
        nap(Duration::from_millis(one[0] % 20));
        one.iter().zip(&*two).map(|(a, b)| a + b).collect()
    }
    // A host that dies takes the values with it that stay there.
    ground.has_dead_processes = true;
    ground.session(|ground| {
        let (processes, per_job) = (3 * ground.processes(), ground.rng.usize(2..=4));
        let pool = Pool::builder().processes(processes).processes_per_job(per_job).build()?;
        let pool = pool.max_deaths(u32::MAX);
        assert_eq!(pool.apply(|| 9, ()).wait()?, 9);
        let storm = ground.storm();
        let (own, count) = (Array::from(vec![1; 10_000]), ground.items(40));
        let mut arrays = pool.map(fill, 0..count).outputs();
        let mut expected: Vec<_> = (0..count).collect();
        for _ in 0..ground.rng.u64(1..4) {
            let items: Vec<_> = arrays.iter().map(|array| (array.clone(), own.clone())).collect();
            arrays = pool.map(add, items).outputs();
            expected.iter_mut().for_each(|value| *value += 1);
        }
        for (array, expected) in arrays.iter().zip(&expected) {
            let array = array.get().wait()?;
            assert!(array.len() == 10_000 && array.iter().all(|value| value == expected));
        }
        drop((arrays, own));
        ground.wait_for_calm(storm);
        pool.stop().wait()?;
        Ok(())
    })
}

/// Large values stay at the hosts where they were made, and other hosts get them from there. Those
/// of lost hosts are made again, with inputs that nothing has any more.
pub(super) fn stay(ground: &mut Ground) -> Outcome {
    /// More bytes than go to the program's process at once.
    const LEN: usize = 40_000;
    fn fill(value: u64) -> Array<u64> {
        nap(Duration::from_millis(value % 20));
        vec![value; LEN].into()
    }
    fn add(one: Array<u64>, two: Array<u64>) -> Array<u64> {
        nap(Duration::from_millis(one[0] % 20));
        one.iter().zip(&*two).map(|(a, b)| a + b).collect()
    }
    fn sum(arrays: Vec<Array<u64>>) -> u64 {
        assert!(arrays.iter().all(|array| array.iter().all(|value| *value == array[0])));
        arrays.iter().map(|array| array[0]).sum()
    }
    // A host that dies takes the values with it that stay there.
    ground.has_dead_processes = true;
    ground.session(|ground| {
        let (processes, per_job) = (3 * ground.processes(), ground.rng.usize(2..=3));
        let pool = Pool::builder().processes(processes).processes_per_job(per_job).build()?;
        let pool = pool.max_deaths(u32::MAX);
        assert_eq!(pool.apply(|| 9, ()).wait()?, 9);
        let storm = ground.storm();
        let (count, is_calm) = (2 + ground.items(20), storm.is_calm());
        let mut arrays = pool.map(fill, 0..count).outputs();
        let mut expected: Vec<_> = (0..count).collect();
        // Each of a layer takes two of the layer before, which nothing else has then.
        for _ in 0..ground.rng.u64(1..4) {
            let other = ground.rng.usize(1..count as usize);
            let place = |place: usize| (place + other) % count as usize;
            let pairs =
                (0..arrays.len()).map(|one| (arrays[one].clone(), arrays[place(one)].clone()));
            let pairs: Vec<_> = pairs.collect();
            expected = (0..arrays.len()).map(|one| expected[one] + expected[place(one)]).collect();
            arrays = pool.map(add, pairs).outputs();
        }
        let total = pool.apply(sum, arrays.clone());
        assert_eq!(total.wait()?, expected.iter().sum::<u64>());
        for (array, expected) in arrays.iter().zip(&expected) {
            if ground.happens(128) {
                let array = array.get().wait()?;
                assert!(array.len() == LEN && array.iter().all(|value| value == expected));
            }
        }
        // Outputs that come one by one stay, too.
        let filled = pool.imap(fill, 0..ground.items(10)).outputs();
        let sums = pool.imap(sum, filled.wait().map(|array| vec![array]));
        for (value, found) in (0..).zip(sums.wait()) {
            assert_eq!(found?, value);
        }
        // A call without outputs has its values, too.
        let plain = pool.map(fill, 0..ground.items(5)).wait()?;
        assert!((0..).zip(&plain).all(|(value, array)| **array == [value; LEN]));
        let (last, expected) = (arrays[0].clone(), expected[0]);
        drop((arrays, plain));
        ground.wait_for_calm(storm);
        pool.stop().wait()?;
        // Hosts that end in order leave no value behind.
        match last.get().wait() {
            Ok(array) => assert_eq!(array[0], expected),
            Err(error) => assert!(!is_calm, "a value is lost with its pool: {error}"),
        }
        Ok(())
    })
}
