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
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc;

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
}

/// Returns whether a process runs. A zombie does not.
fn exists(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z")
}

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
