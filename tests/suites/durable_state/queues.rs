//! Queues whose elements stay on the disk until they are acknowledged.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use fiber::queue::QueueBuilder;
use fiber::sync::Event;
use fiber::{Array, Error, Journal, Process, Queue};
use fiber_test_support::wait::wait_for;
use tempfile::TempDir;

use super::programs::{Folder, Programs, Runs, note};

pub(crate) const PROGRAMS: Programs =
    &[("move elements", move_elements), ("fill the disk with elements", fill_the_disk)];

fn jobs<T>(journal: impl Into<Journal>) -> QueueBuilder<T>
where
    T: serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
{
    Queue::builder().name("jobs").durable(journal)
}

/// A queue that a test opens several times, as the runs of a program do.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn open<T>(&self) -> Queue<T>
    where
        T: serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
    {
        // The end of a process that has a handle is about to be noticed.
        wait_for("the end of all handles", || match jobs(Journal::at(self.0.path())).build() {
            Err(error) if error.to_string().contains("already") => Err(error),
            built => Ok(built.unwrap()),
        })
    }
}

/// Takes an element and acknowledges it.
fn take<T>(queue: &Queue<T>) -> T
where
    T: serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
{
    queue.get_acknowledged().wait().unwrap().acknowledge().wait().unwrap()
}

#[test]
fn elements_that_were_not_acknowledged_are_there_again_in_their_order() {
    let place = Place::new();
    let queue = place.open::<u32>();
    let puts: Vec<_> = (0..100).map(|n| queue.put(n)).collect();
    puts.into_iter().for_each(|put| put.wait().unwrap());
    // 0 to 9 are done, 10 is not, 11 and 12 are.
    (0..10).for_each(|n| assert_eq!(take(&queue), n));
    let tenth = queue.get_acknowledged().wait().unwrap();
    (11..13).for_each(|n| assert_eq!(take(&queue), n));
    assert_eq!(*tenth, 10);
    drop(tenth);
    drop(queue);
    let queue = place.open::<u32>();
    assert_eq!(queue.len().wait().unwrap(), 88);
    queue.put(100).wait().unwrap();
    for n in [10].into_iter().chain(13..=100) {
        assert_eq!(take(&queue), n);
    }
    queue.join().wait().unwrap();
    drop(queue);
    assert!(place.open::<u32>().is_empty().wait().unwrap());
}

#[test]
fn an_element_that_comes_back_keeps_its_position() {
    let place = Place::new();
    let queue = place.open::<u32>();
    (0..3).for_each(|n| queue.put(n).wait().unwrap());
    assert_eq!(take(&queue), 0);
    drop(queue);
    let queue = place.open::<u32>();
    drop(queue.get_acknowledged().wait().unwrap());
    assert_eq!([take(&queue), take(&queue)], [1, 2]);
}

#[test]
fn large_elements_and_arrays_come_back() {
    let place = Place::new();
    type Element = (String, Vec<u8>, Array<f64>);
    let element = |n: usize| -> Element {
        let array: Vec<f64> = (0..n * 10_000).map(|x| x as f64).collect();
        (format!("element {n}"), vec![n as u8; n * 100_000], Array::from(array))
    };
    let queue = place.open::<Element>();
    (0..4).for_each(|n| queue.put(element(n)).wait().unwrap());
    drop(queue);
    let queue = place.open::<Element>();
    (0..4).for_each(|n| assert_eq!(take(&queue), element(n)));
}

#[test]
fn a_bounded_queue_holds_its_capacity_again() {
    let place = Place::new();
    let open = || jobs(Journal::at(place.0.path())).capacity(2).build().unwrap();
    let queue = open();
    assert_eq!(queue.try_put(0).wait().unwrap(), Ok(()));
    queue.put(1).wait().unwrap();
    assert_eq!(queue.try_put(2).wait().unwrap(), Err(2));
    let late = queue.put(2).timeout(Duration::from_millis(1)).wait().unwrap_err();
    assert!(matches!(late, Error::TimedOut { .. }), "{late}");
    drop(queue);
    let queue = open();
    assert_eq!(queue.try_put(2).wait().unwrap(), Err(2));
    let put = queue.put(2);
    assert_eq!(take(&queue), 0);
    put.wait().unwrap();
    assert_eq!([take(&queue), take(&queue)], [1, 2]);
}

#[test]
fn a_closed_queue_ends_when_all_is_acknowledged_and_is_open_in_the_next_run() {
    let place = Place::new();
    let queue = place.open::<u32>();
    let put = queue.put(1);
    queue.close().wait().unwrap();
    assert!(matches!(queue.put(2).wait(), Err(Error::Closed { .. })));
    put.wait().unwrap();
    assert_eq!(take(&queue), 1);
    assert!(matches!(queue.get_acknowledged().wait(), Err(Error::Closed { .. })));
    drop(queue);
    place.open::<u32>().put(2).wait().unwrap();
}

#[test]
fn bad_input_is_refused() {
    let place = Place::new();
    let journal = || Journal::at(place.0.path());
    let refusal = |builder: QueueBuilder<u32>| {
        let error = builder.build().unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        error.to_string()
    };
    assert!(refusal(Queue::builder().durable(journal())).contains("needs a name"));
    assert!(refusal(jobs(journal()).name("a/b")).contains("can't be the name"));
    assert!(refusal(jobs(journal()).capacity(0)).contains("choose 1 or more"));
    assert!(refusal(jobs(journal().call("x"))).contains("Journal::call"));
    let queue = place.open::<u32>();
    assert!(refusal(jobs(journal())).contains("already"));
    queue.put(1).wait().unwrap();
    let unacknowledged = [
        queue.get().wait().unwrap_err(),
        queue.try_get().wait().unwrap_err(),
        queue.stream().wait().next().unwrap().unwrap_err(),
    ];
    for error in unacknowledged {
        assert!(error.to_string().contains("get_acknowledged"), "{error}");
    }
    let of_handles = Queue::builder().name("handles").durable(journal()).build().unwrap();
    let error = of_handles.put(Event::new().unwrap()).wait().unwrap_err();
    assert!(error.to_string().contains("contains a handle"), "{error}");
    let elsewhere = |path: PathBuf| jobs::<u32>(Journal::at(path)).build().unwrap_err().to_string();
    let refusal = Process::spawn(elsewhere, place.0.path().join("elsewhere")).wait().unwrap();
    assert!(refusal.contains("only the program's first process"), "{refusal}");
}

#[test]
fn a_wrong_type_of_elements_does_not_block_the_queue() {
    let place = Place::new();
    place.open::<u32>().put(7).wait().unwrap();
    let queue = place.open::<String>();
    let error = queue.get_acknowledged().wait().unwrap_err();
    assert!(matches!(error, Error::Decode { .. }), "{error}");
    queue.put("text".to_string()).wait().unwrap();
    assert_eq!(take(&queue), "text");
}

const ELEMENTS: u64 = 300;

/// An element, which is unique among all runs: the run and the number.
type Unique = (u64, u64);

/// Moves elements from a producer to a consumer. Each notes what is confirmed.
fn move_elements(folder: &Folder) {
    let run = folder.lines("runs").len() as u64;
    folder.note("runs", run);
    let queue = jobs::<Unique>(folder.journal()).build().unwrap();
    let produce = |queue: Queue<Unique>, run: u64, first: u64, file: PathBuf| {
        for n in first..ELEMENTS {
            queue.put((run, n)).wait().unwrap();
            note(&file, format!("{run} {n}"));
        }
    };
    let first = folder.lines("put").last().map_or(0, |line| number(line).1 + 1);
    let arguments = (queue.clone(), run, first, folder.file("put"));
    let producer = Process::spawn(produce, arguments);
    let consume = |queue: Queue<Unique>, file: PathBuf| {
        while let Ok(delivery) = queue.get_acknowledged().wait() {
            let (run, n) = *delivery;
            note(&file, format!("taken {run} {n}"));
            delivery.acknowledge().wait().unwrap();
            note(&file, format!("acknowledged {run} {n}"));
        }
    };
    let consumers: Vec<_> =
        (0..2).map(|_| Process::spawn(consume, (queue.clone(), folder.file("consumed")))).collect();
    producer.wait().unwrap();
    queue.close().wait().unwrap();
    consumers.into_iter().for_each(|consumer| consumer.wait().unwrap());
}

fn number(line: &str) -> Unique {
    let mut words = line.rsplit(' ').map(|word| word.parse().unwrap());
    let (n, run) = (words.next().unwrap(), words.next().unwrap());
    (run, n)
}

#[test]
fn a_killed_program_loses_no_element_and_repeats_none_that_was_acknowledged() {
    let runs = Runs::of("move elements");
    runs.survive_kills(10, "consumed", 60);
    let mut acknowledged = HashSet::new();
    for line in runs.folder().lines("consumed") {
        match line.split_once(' ') {
            Some(("taken", element)) => {
                assert!(!acknowledged.contains(&number(element)), "{element} comes again");
            }
            Some(("acknowledged", element)) => drop(acknowledged.insert(number(element))),
            other => panic!("{other:?}"),
        }
    }
    let put = runs.folder().lines("put");
    let lost: Vec<_> = put.iter().filter(|line| !acknowledged.contains(&number(line))).collect();
    // A program may be killed between the removal of an element and its note.
    let taken: HashSet<_> = runs
        .folder()
        .lines("consumed")
        .iter()
        .filter(|line| line.starts_with("taken"))
        .map(|line| number(line))
        .collect();
    assert!(lost.iter().all(|line| taken.contains(&number(line))), "lost: {lost:?}");
    assert!(lost.len() <= 2 * runs.folder().lines("runs").len(), "{lost:?}");
    assert!(put.len() as u64 >= ELEMENTS, "{}", put.len());
    assert!(runs.folder().lines("runs").len() > 1);
}

/// Puts elements until the disk is full. Then all operations fail.
fn fill_the_disk(folder: &Folder) {
    let queue = jobs::<Vec<u8>>(folder.journal()).build().unwrap();
    queue.put(Vec::new()).wait().unwrap();
    let delivery = queue.get_acknowledged().wait().unwrap();
    let join = queue.join();
    let put = |queue: Queue<Vec<u8>>| -> fiber::Result<()> {
        loop {
            queue.put(vec![0; 10_000]).wait()?;
        }
    };
    let text = |error: Error| error.to_string();
    let producer = Process::builder().try_spawn(put, queue.clone());
    let error = text(producer.wait().unwrap_err());
    assert!(error.contains("journal"), "{error}");
    let is_journals = |error: Error| matches!(error, Error::Journal { .. });
    assert!(is_journals(join.wait().unwrap_err()));
    assert!(is_journals(queue.put(Vec::new()).wait().unwrap_err()));
    assert!(is_journals(queue.try_put(Vec::new()).wait().unwrap_err()));
    assert!(is_journals(delivery.acknowledge().wait().unwrap_err()));
    assert!(is_journals(queue.get_acknowledged().wait().unwrap_err()));
    assert!(is_journals(queue.join().wait().unwrap_err()));
}

#[test]
fn a_full_disk_fails_all_that_waits() {
    let runs = Runs::of("fill the disk with elements");
    assert!(runs.run_on_a_small_disk().success());
    let queue = jobs::<Vec<u8>>(runs.folder().journal()).build().unwrap();
    assert!(take(&queue).is_empty(), "its acknowledgement was not recorded");
    assert_eq!(take(&queue).len(), 10_000);
}
