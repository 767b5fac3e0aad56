//! Values in snapshots.

use actix::prelude::*;
use fiber::{
    AsyncManager,
    manager::{Snapshot, Snapshots},
};

use super::kill;

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

#[fiber::message(Option<()>)]
struct Restored;

#[fiber::handlers]
impl Nothing {
    fn restored(&mut self, _: Restored) -> Option<()> {
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
