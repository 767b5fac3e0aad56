//! A job that a task of the node's thread makes, watches and ends, as its owner sees it.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::{Job, JobState};

/// What an owner may want of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Terminate,
    Kill,
}

/// The orders that a job is given.
#[derive(Debug)]
pub(crate) struct Orders(mpsc::UnboundedReceiver<Order>);

impl Orders {
    /// The next one. When nobody holds the job any more, nobody else could end it: it is to be
    /// killed.
    pub(crate) async fn next(&mut self) -> Order {
        self.0.recv().await.unwrap_or(Order::Kill)
    }

    /// Whether there is one already, of either kind: what has not begun has nothing to end in
    /// order.
    pub(crate) fn came_early(&mut self) -> bool {
        !matches!(self.0.try_recv(), Err(mpsc::error::TryRecvError::Empty))
    }
}

#[derive(Debug)]
struct Attended {
    place: String,
    states: watch::Receiver<JobState>,
    orders: mpsc::UnboundedSender<Order>,
}

/// The job at this place, with what its task needs: where to tell its states, and its orders.
pub(crate) fn job(place: String) -> (Arc<dyn Job>, watch::Sender<JobState>, Orders) {
    let (told, states) = watch::channel(JobState::Starting);
    let (orders, given) = mpsc::unbounded_channel();
    (Arc::new(Attended { place, states, orders }), told, Orders(given))
}

impl Job for Attended {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn states(&self) -> watch::Receiver<JobState> {
        self.states.clone()
    }

    fn terminate(&self) {
        let _ = self.orders.send(Order::Terminate);
    }

    fn kill(&self) {
        let _ = self.orders.send(Order::Kill);
    }
}
