//! Actors in other processes, of their own or together, and addresses that travel.

mod addresses;
mod calls;
mod counter;
mod dead_letters;
mod ends;
mod groups;
mod handlers;
mod mailboxes;
mod names;
mod pools;
mod replies;
mod restarts;
mod terms;
mod together;
mod told;
mod values;

use actix::prelude::*;
use fiber::supervisor::Down;
use fiber::{Error, error::ExitReason};
use fiber_test_support::signals::{is_running, kill};
use tokio::sync::mpsc;

struct Watcher(mpsc::UnboundedSender<ExitReason>);

impl Actor for Watcher {
    type Context = Context<Self>;
}

#[fiber::handlers]
impl Watcher {
    fn down(&mut self, down: Down) {
        self.0.send(down.reason).unwrap();
    }
}

/// Starts a watcher in the current actix system. Returns the reasons of the ends that it is sent.
fn watcher() -> (Recipient<Down>, mpsc::UnboundedReceiver<ExitReason>) {
    let (sender, reasons) = mpsc::unbounded_channel();
    (Watcher(sender).start().recipient(), reasons)
}

fn stopped(error: Error) -> ExitReason {
    match error {
        Error::ActorStopped { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}
