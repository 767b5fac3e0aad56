//! Shared objects: queues, locks, values, pipes.

use std::time::{Duration, Instant};

use fiber::sync::{Lock, Value};
use fiber::{Pipe, Pool, Process, Queue};
use fiber_world::{count, counted, is_dead, nap};

use super::Outcome;
use crate::Ground;

/// Consumers take elements, return some, and acknowledge them: none is lost, and each is
/// acknowledged once. Where nothing goes wrong, each is received once, and once for each return.
/// A consumer that returns one and waits for no other keeps nobody from it.
pub(super) fn queue(ground: &mut Ground) -> Outcome {
    fn consume(queue: Queue<u64>) {
        while let Ok(element) = queue.get_acknowledged().wait() {
            let number = *element;
            count("received", number);
            nap(Duration::from_millis(20));
            if number % 7 == 6 && counted("returned", number) == 0 {
                count("returned", number);
                continue;
            }
            count("acknowledging", number);
            if element.acknowledge().wait().is_ok() {
                count("acknowledged", number);
            }
        }
    }
    fn return_one(queue: Queue<u64>) {
        let Ok(element) = queue.get_acknowledged().wait() else { return };
        count("received", *element);
        nap(Duration::from_millis(20));
        count("returned", *element);
        drop(element);
        while counted("joined", 0) == 0 && !is_dead() {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    ground.session(|ground| {
        let queue = Queue::new()?;
        let consumers = ground.processes();
        let start = || Process::spawn(consume, queue.clone());
        let mut children: Vec<_> = (0..consumers).map(|_| start()).collect();
        for child in &children {
            child.started().wait()?;
        }
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let elements = ground.items(200);
        for element in 0..elements {
            queue.put(element).wait()?;
            nap(Duration::from_millis(5));
        }
        ground.wait_for_calm(storm);
        let last = start();
        last.started().wait()?;
        children.extend([last, Process::spawn(return_one, queue.clone())]);
        let (first, elements) = (elements, elements + ground.items(3));
        for element in first..elements {
            std::thread::sleep(Duration::from_secs(2));
            queue.put(element).wait()?;
        }
        queue.join().wait()?;
        count("joined", 0);
        let is_early = |element: &u64| counted("acknowledging", *element) == 0;
        let early: Vec<_> = (0..elements).filter(is_early).collect();
        assert!(early.is_empty(), "all count as done, but {early:?} were not acknowledged");
        queue.close().wait()?;
        for child in children {
            // It may have died.
            let _ = child.wait();
        }
        for element in 0..elements {
            let times = |what| counted(what, element);
            let (received, acknowledged) = (times("received"), times("acknowledged"));
            let is_right = received >= 1 && acknowledged <= 1;
            let expected = (1 + times("returned"), 1);
            assert!(
                is_right && (!is_calm || (received, acknowledged) == expected),
                "element {element} was received {received} times, and acknowledged {acknowledged}"
            );
        }
        assert_eq!(queue.len().wait()?, 0);
        Ok(())
    })
}

/// Consumers take elements without acknowledging them: one that dies loses the element that it
/// waited for, one that lives gets none twice, and the others get the rest. Where nothing goes
/// wrong, the only consumer gets them in order.
pub(super) fn gets(ground: &mut Ground) -> Outcome {
    fn consume(queue: Queue<u64>, consumer: u64) {
        let mut last = None;
        while let Ok(number) = queue.get().wait() {
            if last > Some(number) {
                count("out of order", consumer);
            }
            last = Some(number);
            count("received", number);
            if count("received by", consumer << 32 | number) > 1 {
                count("twice", consumer);
            }
            nap(Duration::from_millis(3));
        }
    }
    ground.session(|ground| {
        let queue = Queue::new()?;
        let consumers = ground.processes() as u64;
        let start = |consumer| Process::spawn(consume, (queue.clone(), consumer));
        let mut children: Vec<_> = (0..consumers).map(start).collect();
        for child in &children {
            child.started().wait()?;
        }
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let (elements, haste) = (ground.items(200), ground.rng.u8(..));
        for element in 0..elements {
            queue.put(element).wait()?;
            if !ground.happens(haste) {
                nap(Duration::from_millis(5));
            }
        }
        ground.wait_for_calm(storm);
        if !is_calm {
            // The others may have died.
            children.push(start(consumers));
        }
        queue.close().wait()?;
        let dead = children.into_iter().filter_map(|child| child.wait().err()).count();
        let lost = (0..elements).filter(|element| counted("received", *element) == 0).count();
        assert!(lost <= dead, "{lost} elements were lost with {dead} consumers");
        for consumer in 0..=consumers {
            assert_eq!(counted("twice", consumer), 0, "consumer {consumer} gets elements twice");
        }
        let is_in_order = counted("out of order", 0) == 0;
        assert!(
            is_in_order || !is_calm || consumers > 1,
            "the consumer gets a later element first"
        );
        Ok(())
    })
}

/// Tasks count up under a lock: nobody holds it twice, and a holder's death frees it, for those, too,
/// that wait already.
pub(super) fn lock(ground: &mut Ground) -> Outcome {
    fn work(lock: Lock) {
        hold(lock, Duration::from_millis(10));
    }
    fn hold(lock: Lock, time: Duration) {
        let Ok(held) = lock.lock().wait() else { return };
        if is_dead() {
            return;
        }
        let holder = count("holders", 0);
        nap(time);
        if !is_dead() {
            assert_eq!(counted("holders", 0), holder, "two hold the lock");
        }
        drop(held);
    }
    ground.session(|ground| {
        let lock = Lock::new()?;
        let pool = Pool::builder().processes(ground.processes()).build()?.max_deaths(u32::MAX);
        pool.apply(work, lock.clone()).wait()?;
        // A process without its links would think that it holds the lock.
        let storm = ground.storm_of_processes();
        let tasks = ground.items(100);
        let waiting: Vec<_> = (0..ground.processes())
            .map(|_| Process::spawn(hold, (lock.clone(), Duration::from_secs(2))))
            .collect();
        pool.map(work, (0..tasks).map(|_| lock.clone()).collect::<Vec<_>>()).wait()?;
        for process in waiting {
            // It may have died.
            let _ = process.wait();
        }
        ground.wait_for_calm(storm);
        drop(lock.lock().wait()?);
        pool.stop().wait()?;
        Ok(())
    })
}

/// Tasks change a value of the head: each change counts once, unless its task was repeated.
pub(super) fn values(ground: &mut Ground) -> Outcome {
    fn add(value: Value<u64>, task: u64) {
        nap(Duration::from_millis(10));
        match value.update(|sum| *sum += 1).wait() {
            Ok(_) => count("added", task),
            Err(error) => panic!("task {task}: {error}"),
        };
    }
    ground.session(|ground| {
        let value = Value::new(0u64)?;
        let pool = Pool::builder().processes(ground.processes()).build()?.max_deaths(u32::MAX);
        pool.apply(add, (value.clone(), 0)).wait()?;
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let tasks = ground.items(100);
        pool.map(add, (1..=tasks).map(|task| (value.clone(), task)).collect::<Vec<_>>()).wait()?;
        ground.wait_for_calm(storm);
        let sum = value.get().wait()?;
        let added: u64 = (0..=tasks).map(|task| counted("added", task)).sum();
        assert!(sum >= added, "{sum}, although {added} additions were confirmed");
        assert!(sum > tasks, "{sum} of {} additions", tasks + 1);
        assert!(!is_calm || sum == tasks + 1, "{sum}, more than {} additions", tasks + 1);
        pool.stop().wait()?;
        Ok(())
    })
}

/// Handles of queues travel in arguments and results: each queue is there as long as a handle of it
/// is somewhere, and ends with the last one, although the processes that had them live on.
pub(super) fn handles(ground: &mut Ground) -> Outcome {
    fn hold(queue: Queue<u64>, task: u64, returns: bool) -> Option<Queue<u64>> {
        nap(Duration::from_millis(200));
        queue.put(task).wait().expect("the queue is there");
        returns.then_some(queue)
    }
    ground.session(|ground| {
        let pool = Pool::builder().processes(ground.processes()).build()?.max_deaths(u32::MAX);
        pool.apply(|| (), ()).wait()?;
        let storm = ground.storm();
        // A queue whose handle is in a result that is lost with its worker stays.
        let returns = storm.is_calm();
        let (tasks, several) = (ground.items(50), ground.items(4));
        let queues = (0..several).map(|_| Queue::new()).collect::<Result<Vec<_>, _>>()?;
        let of_task = |task| queues[(task % several) as usize].clone();
        let arguments: Vec<_> = (0..tasks).map(|task| (of_task(task), task, returns)).collect();
        let call = pool.map(hold, arguments);
        let own = if returns { queues[..0].to_vec() } else { queues.clone() };
        drop(queues);
        let mut held: Vec<_> = call.wait()?.into_iter().flatten().chain(own).collect();
        while let Some(queue) = held.pop() {
            while let Some(task) = queue.try_get().wait()? {
                count("taken", task);
            }
        }
        for task in 0..tasks {
            assert!(counted("taken", task) > 0, "the element of task {task} is lost");
        }
        ground.wait_for_calm(storm);
        let until = Instant::now() + Duration::from_secs(60);
        while !fiber::stats()?.report.queues.is_empty() {
            assert!(Instant::now() < until, "a queue outlives its handles");
            std::thread::sleep(Duration::from_secs(1));
        }
        pool.stop().wait()?;
        Ok(())
    })
}

/// Both directions of a pipe keep the order, and end when the other end's process does.
pub(super) fn pipe(ground: &mut Ground) -> Outcome {
    fn echo(there: Pipe<u64>) {
        while let Ok(number) = there.recv().wait() {
            nap(Duration::from_millis(5));
            if there.send(number).wait().is_err() {
                return;
            }
        }
    }
    ground.session(|ground| {
        let (here, there) = Pipe::new()?;
        let child = Process::spawn(echo, there);
        child.started().wait()?;
        let storm = ground.storm();
        let is_calm = storm.is_calm();
        let elements = ground.items(100);
        let sender = here.clone();
        let sends = std::thread::spawn(move || {
            (0..elements).try_for_each(|element| sender.send(element).wait()).is_ok()
        });
        let mut expected = 0;
        while expected < elements
            && let Ok(number) = here.recv().wait()
        {
            assert_eq!(number, expected, "a pipe keeps the order");
            expected += 1;
        }
        sends.join().expect("it does not panic");
        assert!(!is_calm || expected == elements, "{expected} of {elements} elements came back");
        ground.wait_for_calm(storm);
        drop(here);
        let _ = child.wait();
        Ok(())
    })
}
