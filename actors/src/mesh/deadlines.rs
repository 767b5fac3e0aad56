//! Who waits for an answer, and until when.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fiber_core::{Error, ExitReason};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::wire::CallFailure;
use crate::endpoint::Endpoint;

/// What comes of a call.
pub(crate) type Answer = Result<Bytes, Unanswered>;

/// Why a call has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Unanswered {
    Failed(CallFailure),
    /// Its actor, or the node, is gone.
    Lost(ExitReason),
    TimedOut(Duration),
    /// It could not be asked at all.
    Refused(Error),
}

/// Who waits for the answer of a call.
pub(crate) enum Waiter {
    /// For as long as it takes.
    Patient(oneshot::Sender<Answer>),
    Timed(Arc<Timed>),
    /// Not somebody, but something that is to be done.
    Callback(Box<dyn FnOnce(Answer) + Send>),
}

/// Waits until a deadline.
pub(crate) struct Timed {
    sender: Mutex<Option<oneshot::Sender<Answer>>>,
    deadline: Deadline,
    deadlines: &'static Deadlines,
}

/// When, and a number that tells it from others at the same time.
type Deadline = (Instant, u64);

impl Waiter {
    /// Tells it what came of its call. Whether it still listens makes no difference.
    pub(crate) fn tell(self, answer: Answer) {
        match self {
            Waiter::Patient(sender) => drop(sender.send(answer)),
            Waiter::Callback(then) => then(answer),
            Waiter::Timed(timed) => {
                timed.deadlines.waiting.lock().times.remove(&timed.deadline);
                timed.tell(answer);
            }
        }
    }
}

impl Timed {
    fn tell(&self, answer: Answer) {
        let sender = self.sender.lock().take();
        if let Some(sender) = sender {
            let _ = sender.send(answer);
        }
    }
}

/// The deadlines of all calls that this node waits for.
pub(crate) struct Deadlines {
    endpoint: &'static Endpoint,
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Default)]
struct Waiting {
    times: BTreeMap<Deadline, (Duration, Weak<Timed>)>,
    last: u64,
    /// Whether the task that looks after them runs.
    watched: bool,
}

impl Deadlines {
    pub(crate) fn new(endpoint: &'static Endpoint) -> Deadlines {
        Deadlines { endpoint, waiting: Mutex::default(), changed: Notify::new() }
    }

    /// A waiter that is told so when `limit` has passed.
    pub(crate) fn within(
        &'static self,
        limit: Duration,
        sender: oneshot::Sender<Answer>,
    ) -> Waiter {
        let mut waiting = self.waiting.lock();
        waiting.last += 1;
        let deadline = (Instant::now() + limit, waiting.last);
        let timed = Arc::new(Timed { sender: Mutex::new(Some(sender)), deadline, deadlines: self });
        let is_first = waiting.times.first_key_value().is_none_or(|(first, _)| deadline < *first);
        waiting.times.insert(deadline, (limit, Arc::downgrade(&timed)));
        let watched = std::mem::replace(&mut waiting.watched, true);
        drop(waiting);
        if !watched {
            self.endpoint.spawn(|| self.watch());
        } else if is_first {
            self.changed.notify_one();
        }
        Waiter::Timed(timed)
    }

    async fn watch(&'static self) {
        loop {
            let next = self.expire();
            let wait = async {
                match next {
                    Some(time) => tokio::time::sleep_until(time.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wait => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Tells those whose time is over, and says when the next is.
    fn expire(&self) -> Option<Instant> {
        loop {
            let mut waiting = self.waiting.lock();
            let first = waiting.times.first_entry()?;
            if first.key().0 > Instant::now() {
                return Some(first.key().0);
            }
            let (limit, timed) = first.remove();
            drop(waiting);
            if let Some(timed) = timed.upgrade() {
                timed.tell(Err(Unanswered::TimedOut(limit)));
            }
        }
    }
}
