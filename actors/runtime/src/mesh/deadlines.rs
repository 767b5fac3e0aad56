//! The receivers of answers, and their deadlines.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fiber_core::{Error, ExitReason, deadline_after};
use fiber_transport::Received;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep_until;

use super::wire::CallFailure;
use crate::endpoint::{Endpoint, or_never};

/// The answer to a call, or the reason why there is none.
pub type Answer = Result<Received, Unanswered>;

/// The reason why a call has no answer.
#[derive(Clone, Debug)]
pub enum Unanswered {
    /// The callee has answered that the call failed.
    Failed(CallFailure),
    /// The actor, or its process, is gone.
    Lost(ExitReason),
    /// No answer has arrived within the time limit of the call, which this is.
    TimedOut(Duration),
    /// The request could not be sent.
    Refused(Error),
}

impl Unanswered {
    /// Returns the answer of a process that has dropped the sender of the answer.
    pub(crate) fn gone(_: oneshot::error::RecvError) -> Answer {
        Err(Unanswered::Lost(ExitReason::LinkLost("its process stopped answering".into())))
    }

    /// Returns the error of a call with this `message` to `name`. `stopped` returns the error
    /// of the actor's end, and `answer` the name of the answer.
    pub(crate) fn into_error(
        self,
        name: &str,
        message: &'static str,
        stopped: &dyn Fn(ExitReason) -> Error,
        answer: &dyn Fn() -> String,
    ) -> Error {
        match self {
            Unanswered::Lost(reason) | Unanswered::Failed(CallFailure::Stopped(reason)) => {
                stopped(reason)
            }
            Unanswered::Failed(CallFailure::Moved) => stopped(ExitReason::Shutdown),
            Unanswered::Failed(CallFailure::Failed(failure)) => {
                Error::Call { name: name.to_string(), message, failure }
            }
            Unanswered::Failed(CallFailure::Full { capacity }) => {
                Error::MailboxFull { name: name.to_string(), capacity }
            }
            Unanswered::Failed(CallFailure::Journal { journal, cause }) => {
                CallFailure::journal_error(journal, cause)
            }
            Unanswered::Failed(CallFailure::Late) => {
                Error::TimedOut { what: answer(), limit: Duration::ZERO }
            }
            Unanswered::TimedOut(limit) => Error::TimedOut { what: answer(), limit },
            Unanswered::Refused(error) => error,
        }
    }
}

/// The receiver of a call's answer.
pub enum Waiter {
    /// Sends the answer to a future, without a deadline.
    Sender(oneshot::Sender<Answer>),
    /// Sends the answer to a future, or [`Unanswered::TimedOut`] at a deadline. From
    /// `Deadlines::within`.
    Timed(Arc<TimedWaiter>),
    /// Calls a function with the answer, on the thread that receives it. It must not block.
    Callback(Box<dyn FnOnce(Answer) + Send>),
}

/// A receiver with a deadline.
pub struct TimedWaiter {
    sender: Mutex<Option<oneshot::Sender<Answer>>>,
    deadline: Deadline,
    deadlines: &'static Deadlines,
}

/// A time, and a number that distinguishes deadlines at the same time.
type Deadline = (Instant, u64);

impl Waiter {
    /// Returns whether it has got an answer already: that its time has ended.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Waiter::Timed(timed) if timed.sender.lock().is_none())
    }

    /// Passes the answer on. A receiver that is gone ignores it.
    pub fn complete(self, answer: Answer) {
        match self {
            Waiter::Sender(sender) => drop(sender.send(answer)),
            Waiter::Callback(then) => then(answer),
            Waiter::Timed(timed) => {
                let limit = timed.deadlines.queue.lock().times.remove(&timed.deadline);
                // The callee may see the end of the time first.
                timed.complete(match (answer, limit) {
                    (Err(Unanswered::Failed(CallFailure::Late)), Some((limit, _))) => {
                        Err(Unanswered::TimedOut(limit))
                    }
                    (answer, _) => answer,
                });
            }
        }
    }
}

impl TimedWaiter {
    fn complete(&self, answer: Answer) {
        let sender = self.sender.lock().take();
        if let Some(sender) = sender {
            let _ = sender.send(answer);
        }
    }
}

/// The deadlines of all calls of this process.
pub struct Deadlines {
    endpoint: &'static Endpoint,
    queue: Mutex<DeadlineQueue>,
    changed: Notify,
}

#[derive(Default)]
struct DeadlineQueue {
    times: BTreeMap<Deadline, (Duration, Weak<TimedWaiter>)>,
    last: u64,
    /// Whether the task that waits for the next deadline runs.
    running: bool,
}

impl Deadlines {
    pub(crate) fn new(endpoint: &'static Endpoint) -> Deadlines {
        Deadlines { endpoint, queue: Mutex::default(), changed: Notify::new() }
    }

    /// Returns a waiter that gets [`Unanswered::TimedOut`] after `limit`.
    pub fn within(&'static self, limit: Duration, sender: oneshot::Sender<Answer>) -> Waiter {
        let mut queue = self.queue.lock();
        queue.last += 1;
        let deadline = (deadline_after(limit), queue.last);
        let timed =
            Arc::new(TimedWaiter { sender: Mutex::new(Some(sender)), deadline, deadlines: self });
        let is_first = queue.times.first_key_value().is_none_or(|(first, _)| deadline < *first);
        queue.times.insert(deadline, (limit, Arc::downgrade(&timed)));
        let running = std::mem::replace(&mut queue.running, true);
        drop(queue);
        if !running {
            self.endpoint.spawn(|| self.run());
        } else if is_first {
            self.changed.notify_one();
        }
        Waiter::Timed(timed)
    }

    async fn run(&'static self) {
        loop {
            let next = self.expire(Instant::now());
            tokio::select! {
                () = or_never(next.map(|time| sleep_until(time.into()))) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Completes the calls whose deadline has passed. Returns the next deadline.
    fn expire(&self, now: Instant) -> Option<Instant> {
        loop {
            let mut queue = self.queue.lock();
            let first = queue.times.first_entry()?;
            if first.key().0 > now {
                return Some(first.key().0);
            }
            let (limit, timed) = first.remove();
            drop(queue);
            if let Some(timed) = timed.upgrade() {
                timed.complete(Err(Unanswered::TimedOut(limit)));
            }
        }
    }
}
