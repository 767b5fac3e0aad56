//! Mailboxes whose senders wait for a place.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fiber::manager::Full;
use fiber::{AsyncManager, Error, RemoteAddr};
use fiber_test_support::wait::{wait_for, wait_until};
use tempfile::TempDir;

use super::counter::{Add, Counter, Meet};

/// An actor with a mailbox of so many places, whose senders wait for them.
fn waited_for(places: usize) -> AsyncManager<Counter> {
    let builder = AsyncManager::builder().mailbox(places).when_full(Full::Wait);
    builder.start(Counter::new, 0).wait().unwrap()
}

/// Blocks an actor until [`Gate::open`].
struct Gate {
    folder: TempDir,
    blocked: fiber::Reply<()>,
}

impl Gate {
    fn close(actor: &RemoteAddr<Counter>) -> Gate {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().to_path_buf();
        let blocked = actor.send(Meet { place, name: 0, others: 2 });
        wait_until("the start of the handler", || !entered(folder.path()).is_empty());
        Gate { folder, blocked }
    }

    fn open(self) {
        std::fs::write(self.folder.path().join("1"), "").unwrap();
        self.blocked.wait().unwrap();
    }
}

fn entered(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Waits until the actor has so many messages that it does not handle yet.
fn wait_for_arrivals(actor: &AsyncManager<Counter>, count: u64) {
    wait_for("the arrival of messages", || {
        let actors = fiber::stats().unwrap().report.actors;
        let waiting = actors.iter().find(|one| one.name == actor.name()).map(|one| one.waiting);
        if waiting == Some(count) { Ok(()) } else { Err(waiting) }
    });
}

#[test]
fn messages_wait_for_a_place_and_stay_in_their_order() {
    let actor = waited_for(2);
    let gate = Gate::close(&actor);
    // The first one gets the second place.
    let sums: Vec<_> = (0..3).map(|number| actor.send(Add(10u64.pow(number)))).collect();
    actor.do_send(Add(1_000));
    // It has no place when its time ends, so the actor never gets it.
    let late = actor.addr().timeout(Duration::from_millis(20)).send(Add(10_000));
    assert!(matches!(late.wait(), Err(Error::TimedOut { .. })));
    let last = actor.send(Add(100_000));
    // An urgent message needs no place, and is handled before those that wait for one.
    let urgent = actor.addr().urgent().send(Add(1_000_000));
    wait_for_arrivals(&actor, 2);
    gate.open();
    assert_eq!(urgent.wait().unwrap(), 1_000_000);
    let sums: Vec<_> = sums.into_iter().map(|sum| sum.wait().unwrap() % 1_000_000).collect();
    assert_eq!(sums, [1, 11, 111]);
    assert_eq!(last.wait().unwrap(), 1_101_111);
}

#[test]
fn messages_without_a_place_outlive_the_actors_process() {
    let actor = waited_for(1);
    let gate = Gate::close(&actor);
    let sums: Vec<_> = (0..3).map(|_| actor.send(Add(1))).collect();
    actor.kill_process();
    assert!(matches!(gate.blocked.wait(), Err(Error::ActorStopped { .. })));
    // Each gives its place to the next, whatever becomes of it.
    let sums: Vec<_> = sums.into_iter().map(|sum| sum.wait().unwrap()).collect();
    assert_eq!(sums, [1, 2, 3]);
}

#[test]
fn messages_without_a_place_fail_when_the_actor_has_ended() {
    let actor = waited_for(1);
    let gate = Gate::close(&actor);
    let sums: Vec<_> = (0..3).map(|_| actor.send(Add(1))).collect();
    let stopped = actor.stop();
    gate.open();
    stopped.wait().unwrap();
    for sum in sums {
        // One that got the place in time was handled.
        assert!(matches!(sum.wait(), Ok(_) | Err(Error::ActorStopped { .. })));
    }
    assert!(matches!(actor.send(Add(1)).wait(), Err(Error::ActorStopped { .. })));
}
