//! What a supervisor's own tasks tell it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fiber_core::ExitReason;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::start::Control;

pub(super) enum Event {
    Child { key: Key, incarnation: u64, news: News },
    TimeOver { timer: u64, whose: Whose },
}

pub(super) enum News {
    Started { place: Option<String>, control: Box<dyn Control> },
    Ended(ExitReason),
}

/// What a timer is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose {
    /// The present state of a child.
    Child(Key),
    /// The pause before a group is restarted.
    Pause,
}

/// The place of a child in the order of starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(pub(super) u64);

/// Tells the supervisor when a time is over, unless dropped before.
pub(super) struct Timer {
    pub(super) id: u64,
    _task: Task,
}

impl Timer {
    pub(super) fn start(
        events: &mpsc::UnboundedSender<Event>,
        whose: Whose,
        time: Duration,
    ) -> Timer {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let events = events.clone();
        let task = Task::spawn(async move {
            tokio::time::sleep(time).await;
            let _ = events.send(Event::TimeOver { timer: id, whose });
        });
        Timer { id, _task: task }
    }
}

/// A task that ends when it is dropped.
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
