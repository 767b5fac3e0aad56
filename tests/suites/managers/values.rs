//! Values in messages, answers, arguments and snapshots.

use actix::prelude::*;
use fiber::{
    AsyncManager,
    manager::{Snapshot, Snapshots},
};
use fiber_test_support::tricky::{Tricky, tricky};
use serde::{Deserialize, Serialize};

use super::kill;

/// Keeps values, some of which are `None`.
struct Keeper {
    kept: Vec<Option<Option<Tricky>>>,
}

impl Actor for Keeper {
    type Context = Context<Self>;
}

impl Snapshot for Keeper {
    type State = Vec<Option<Option<Tricky>>>;

    fn snapshot(&self) -> Self::State {
        self.kept.clone()
    }

    fn restore(&mut self, state: Self::State) {
        self.kept = state;
    }
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Vec<Option<Option<Tricky>>>")]
struct Keep(Option<Option<Tricky>>);

impl Handler<Keep> for Keeper {
    type Result = Vec<Option<Option<Tricky>>>;

    fn handle(&mut self, Keep(value): Keep, _: &mut Context<Self>) -> Self::Result {
        self.kept.push(value);
        self.kept.clone()
    }
}

#[test]
fn nested_options_in_arguments_messages_answers_and_snapshots_arrive_unchanged() {
    let first = |value| Keeper { kept: vec![value] };
    let builder = AsyncManager::builder().snapshots(Snapshots::every_messages(1));
    let manager = builder.start(first, Some(None)).wait().unwrap();
    let first_two = [Some(None), Some(Some(tricky()))];
    assert_eq!(manager.send(Keep(Some(Some(tricky())))).wait().unwrap(), first_two);
    // The owner receives a snapshot after its message's answer and before the next answer.
    manager.send(Keep(Some(None))).wait().unwrap();
    kill(manager.pid().unwrap());
    let kept = manager.addr().resend().send(Keep(None)).wait().unwrap();
    assert_eq!((&kept[..2], kept.last()), (&first_two[..], Some(&None)));
}

/// An actor whose snapshot is encoded as nil.
struct Nothing {
    restored: Option<()>,
}

impl Actor for Nothing {
    type Context = Context<Self>;
}

impl Snapshot for Nothing {
    type State = ();

    fn snapshot(&self) {}

    fn restore(&mut self, state: ()) {
        self.restored = Some(state);
    }
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Option<()>")]
struct Restored;

impl Handler<Restored> for Nothing {
    type Result = Option<()>;

    fn handle(&mut self, _: Restored, _: &mut Context<Self>) -> Option<()> {
        self.restored
    }
}

#[test]
fn a_snapshot_of_the_unit_type_is_restored() {
    let builder = AsyncManager::builder().snapshots(Snapshots::every_messages(1));
    let manager = builder.start(|| Nothing { restored: None }, ()).wait().unwrap();
    // The first snapshot arrives before the second answer.
    for _ in 0..2 {
        assert_eq!(manager.send(Restored).wait().unwrap(), None);
    }
    kill(manager.pid().unwrap());
    assert_eq!(manager.addr().resend().send(Restored).wait().unwrap(), Some(()));
}
