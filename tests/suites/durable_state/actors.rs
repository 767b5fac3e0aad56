//! Actors that continue from the last snapshot of the program's earlier runs.

use std::cell::OnceCell;

use actix::prelude::*;

use fiber::manager::{ManagerBuilder, Snapshot, Snapshots};
use fiber::{AsyncManager, Error, Journal, Process};

use super::programs::{Folder, Programs, Runs};

pub(crate) const PROGRAMS: Programs =
    &[("count", count_to_thousand), ("fill the disk with snapshots", fill_the_disk)];

struct Counter {
    count: u64,
    /// Makes a snapshot large.
    ballast: Vec<u8>,
}

impl Counter {
    fn new(ballast: usize) -> Counter {
        Counter { count: 0, ballast: vec![0; ballast] }
    }
}

impl Actor for Counter {
    type Context = Context<Self>;
}

impl Snapshot for Counter {
    type State = (u64, Vec<u8>);

    fn snapshot(&self) -> Self::State {
        (self.count, self.ballast.clone())
    }

    fn restore(&mut self, (count, ballast): Self::State) {
        (self.count, self.ballast) = (count, ballast);
    }
}

#[fiber::message(u64)]
struct Add(u64);

#[fiber::handlers]
impl Counter {
    fn add(&mut self, add: Add) -> u64 {
        self.count += add.0;
        self.count
    }
}

fn builder(name: &str, journal: impl Into<Journal>) -> ManagerBuilder<Snapshots> {
    AsyncManager::builder().name(name).snapshots(Snapshots::every_messages(1)).durable(journal)
}

fn start(name: &str, journal: impl Into<Journal>) -> AsyncManager<Counter> {
    builder(name, journal).start(Counter::new, 0).wait().unwrap()
}

fn add(counter: &AsyncManager<Counter>, n: u64) -> u64 {
    counter.send(Add(n)).wait().unwrap()
}

#[test]
fn an_actor_has_the_state_of_its_last_snapshot_when_it_is_started_again() {
    let place = tempfile::tempdir().unwrap();
    let journal = || Journal::at(place.path());
    for round in 0..3 {
        let [one, other] = ["one", "other"].map(|name| start(name, journal()));
        assert_eq!(add(&one, 5), 5 * round + 5);
        assert_eq!(add(&other, 1), round + 1);
        // A process that dies is restarted from the same snapshots.
        assert_eq!(add(&one, 0), 5 * round + 5, "the answer follows the snapshot before");
        one.kill_process();
        assert_eq!(one.addr().resend().send(Add(0)).wait().unwrap(), 5 * round + 5);
        one.stop().wait().unwrap();
        other.stop().wait().unwrap();
    }
}

#[test]
fn another_version_begins_anew_and_leaves_the_old_one_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    let journal = || Journal::at(place.path());
    for (version, expected) in [("", 1), ("2", 1), ("", 2), ("2", 2)] {
        let counter = start("counter", journal().version(version));
        assert_eq!(add(&counter, 1), expected, "version `{version}`");
        counter.stop().wait().unwrap();
    }
}

#[test]
fn a_name_is_free_when_its_actor_has_ended() {
    let place = tempfile::tempdir().unwrap();
    for sum in 1..=20 {
        let counter = start("counter", Journal::at(place.path()));
        assert_eq!(add(&counter, 1), sum);
        counter.stop().wait().unwrap();
    }
}

#[test]
fn a_state_of_another_type_is_refused() {
    struct Name;
    impl Actor for Name {
        type Context = Context<Self>;
    }
    impl Snapshot for Name {
        type State = String;
        fn snapshot(&self) -> String {
            String::new()
        }
        fn restore(&mut self, _: String) {}
    }
    let place = tempfile::tempdir().unwrap();
    let counter = start("counter", Journal::at(place.path()));
    add(&counter, 1);
    counter.stop().wait().unwrap();
    let error = AsyncManager::builder()
        .name("counter")
        .snapshots(Snapshots::every_messages(1))
        .durable(Journal::at(place.path()))
        .start(|| Name, ())
        .wait()
        .unwrap_err();
    assert!(matches!(error, Error::Start { .. }), "{error}");
    assert!(error.to_string().contains("its last snapshot"), "{error}");
}

#[test]
fn a_durable_actor_needs_a_name_of_its_own() {
    let place = tempfile::tempdir().unwrap();
    let journal = || Journal::at(place.path());
    let refusal = |builder: ManagerBuilder<Snapshots>| {
        let error = builder.start(Counter::new, 0).wait().unwrap_err();
        assert!(matches!(error, Error::Invalid { method: "ManagerBuilder::durable", .. }));
        error.to_string()
    };
    let nameless = AsyncManager::builder().snapshots(Snapshots::every_messages(1));
    assert!(refusal(nameless.durable(journal())).contains("needs a name"));
    for name in ["", "a/b", "a#1", "a@2"] {
        assert!(refusal(builder(name, journal())).contains("can't be the name"), "{name}");
    }
    assert!(refusal(builder("counter", journal().call("x"))).contains("Journal::call"));
    let counter = start("counter", journal());
    assert!(refusal(builder("counter", journal())).contains("already"));
    counter.stop().wait().unwrap();
    drop(counter);
    start("counter", journal());
}

#[test]
fn only_the_first_process_can_start_a_durable_actor() {
    let place = tempfile::tempdir().unwrap();
    let start = |path: std::path::PathBuf| {
        builder("counter", Journal::at(path)).start(Counter::new, 0).wait().unwrap_err().to_string()
    };
    let refusal = Process::spawn(start, place.path().to_path_buf()).wait().unwrap();
    assert!(refusal.contains("only the program's first process"), "{refusal}");
}

/// Counts in steps of 1.
fn count_to_thousand(folder: &Folder) {
    let counter = start("counter", folder.journal());
    let mut count = add(&counter, 0);
    folder.note("starts", count);
    while count < 1000 {
        count = folder.noted("answers", add(&counter, 1));
    }
    counter.stop().wait().unwrap();
}

#[test]
fn a_killed_program_finds_its_actor_in_the_state_of_a_snapshot() {
    let runs = Runs::of("count");
    // An answer can come long before its snapshot is recorded: the first kill waits for a record.
    let first = OnceCell::new();
    runs.kill_when(|folder| {
        let recorded = folder.recorded();
        !recorded.is_empty() && *first.get_or_init(|| recorded.clone()) != recorded
    });
    runs.survive_kills(8, "answers", 100);
    let starts = runs.folder().numbers("starts");
    assert!(starts.is_sorted(), "a state was lost: {starts:?}");
    assert!(starts.iter().any(|start| *start > 0), "every run began anew: {starts:?}");
    assert_eq!(add(&start("counter", runs.folder().journal()), 0), 1000);
}

/// Takes snapshots until the disk is full. Then all calls end.
fn fill_the_disk(folder: &Folder) {
    let builder = builder("counter", folder.journal());
    let counter = builder.start(Counter::new, 20_000).wait().unwrap();
    let error = loop {
        match counter.send(Add(1)).wait() {
            Ok(count) => folder.note("counts", count),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("journal"), "{error}");
    let reason = counter.join().wait().unwrap();
    assert!(reason.to_string().contains("journal"), "{reason}");
    counter.stop().wait().unwrap();
}

#[test]
fn a_full_disk_ends_the_actor_and_its_calls() {
    let runs = Runs::of("fill the disk with snapshots");
    assert!(runs.run_on_a_small_disk().success());
    let counts = runs.folder().lines("counts");
    let last: u64 = counts.last().expect("some snapshots had room").parse().unwrap();
    let recorded = add(&start("counter", runs.folder().journal()), 0);
    assert!((1..=last + 1).contains(&recorded), "{recorded} of {last}");
}
