//! The scheduler's view of a call's caller.

use std::time::Duration;

use bytes::Bytes;

use crate::pool::run::Run;

/// The options of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CallOptions {
    /// The least number of tasks to hand out together.
    pub(crate) chunk: u32,
    /// Time limit of one task.
    pub(crate) timeout: Option<Duration>,
    /// How often a task that failed by itself runs again.
    pub(crate) retries: u32,
    /// How many workers may die while they run a task before it is abandoned.
    pub(crate) max_deaths: u32,
    /// How often a task may run past `timeout` before it is abandoned.
    pub(crate) max_timeouts: u32,
}

/// The origin of a call, which prepares its tasks and receives their outcomes.
pub(crate) trait Caller: Clone {
    /// Returns whether outcomes are recorded before the caller receives them.
    fn is_durable(&self) -> bool;

    /// Returns the context that travels with the call's tasks, encoded.
    fn context(&self) -> Bytes;

    /// Takes the tasks that are prepared and not submitted.
    fn take_prepared(&self) -> Option<Run>;

    /// Receives the number of tasks that are worth a message of their own.
    fn set_run_size(&self, tasks: u64);

    /// Counts outcomes that the caller is about to receive.
    fn store_outcomes(&self, tasks: u64, bytes: u64);

    /// Returns how many more tasks may be handed out while `pending` are pending. The caller has
    /// room for `least` tasks however large they are.
    fn room(&self, pending: u64, least: u64) -> u64;

    /// Notes that the call is throttled. The caller requests
    /// [`Scheduler::resume`](super::Scheduler::resume) when it has room.
    fn throttle(&self);

    /// Returns whether workers should return pending tasks that they have not started.
    fn overflows(&self, pending: u64, least: u64) -> bool;

    /// Returns the task whose outcome the caller takes next, if it takes them in order. No room
    /// appears before that.
    fn next_needed(&self) -> Option<u64>;
}
