//! The inputs of a supervisor: events from its own tasks and commands from references.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::Message;
use fiber_core::{ExitReason, Result};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::super::spec::ChildSpec;
use super::super::start::Control;

pub(super) enum Event {
    /// An incarnation of a child has started or exited.
    Child {
        key: Key,
        incarnation: u64,
        event: ChildEvent,
    },
    TimerExpired {
        timer: u64,
        purpose: TimerPurpose,
    },
}

pub(super) enum ChildEvent {
    Started { place: Option<String>, control: Box<dyn Control> },
    Exited(ExitReason),
}

pub(in crate::supervisor) enum Command {
    /// Adds a child. The answer comes when the child has started, or could not.
    Add(ChildSpec, oneshot::Sender<Result<()>>),
    /// Adds a child whose first start is retried as any other. The answer comes before the start.
    AddInBackground(ChildSpec, oneshot::Sender<Result<()>>),
    StopChild {
        name: String,
        method: StopMethod,
        /// Gets the receiver that resolves at the end of the child.
        answer: oneshot::Sender<Result<oneshot::Receiver<()>>>,
    },
    /// Stops the children in order, then the supervisor.
    Stop,
    /// Kills the children, then ends the supervisor for this reason.
    Kill(ExitReason),
}

impl Message for Command {
    type Result = ();
}

/// How a caller ends one child.
pub(in crate::supervisor) enum StopMethod {
    /// As its specification says; then it is removed.
    Stop,
    /// At once, as if it had failed for this reason.
    Kill(ExitReason),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum TimerPurpose {
    /// Ends the backoff of a child, or the step of its stop.
    Child(Key),
    /// Ends the pause before a group restart.
    Group,
}

/// Identifies a child. Keys ascend in the order of first starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(pub(super) u64);

/// Sends an event after some time, unless it is dropped before.
pub(super) struct Timer {
    pub(super) id: u64,
    _task: Task,
}

impl Timer {
    pub(super) fn start(
        events: &mpsc::UnboundedSender<Event>,
        purpose: TimerPurpose,
        time: Duration,
    ) -> Timer {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let events = events.clone();
        let task = Task::spawn(async move {
            tokio::time::sleep(time).await;
            let _ = events.send(Event::TimerExpired { timer: id, purpose });
        });
        Timer { id, _task: task }
    }
}

/// A task that is aborted when it is dropped.
pub(super) struct Task(JoinHandle<()>);

impl Task {
    pub(super) fn spawn(future: impl Future<Output = ()> + 'static) -> Task {
        Task(actix::spawn(future))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
