//! Messages between a pool and its workers.
//!
//! The two frequent messages, assignments and results, have a layout of their own: little-endian
//! integers, then the encoded arguments or outcomes. All others are small and use serde.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use fiber_core::stacks::ThreadStack;
use fiber_core::{Error, Exit, Failure, FailureKind, Result};
use fiber_transport::{Message, Received};
use fiber_values::blob::Blobs;
use fiber_values::codec;
use fiber_values::entry::EntryRef;
use serde::{Deserialize, Serialize};

use super::run::{CallId, PREFIX, push_item};
use super::scheduler::{CallOptions, Values};
use fiber_runtime::endpoint::{ALL_STAY, LARGE_STAY, MAIN};

/// A worker sends an outcome of this many bytes in a message of its own, without a copy.
pub(crate) const LARGE: usize = 64 << 10;

/// The nanoseconds of a task without a time limit.
const NO_TIMEOUT: u64 = u64::MAX;

fn nanos(limit: Duration) -> u64 {
    // The largest are no limit to anybody.
    u64::try_from(limit.as_nanos()).unwrap_or(NO_TIMEOUT)
}

const CONTROL: u8 = 0;
const ASSIGNMENT: u8 = 1;
const RESULTS: u8 = 2;
const BROADCAST: u8 = 3;
const COMMAND: u8 = 4;
const FOLLOWER: u8 = 5;

/// Tasks for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) call: CallId,
    pub(crate) entry: EntryRef,
    /// The options of the call. Options that the pool alone needs don't travel to the worker.
    pub(crate) options: CallOptions,
    /// How many tasks are around the call: each has made the next.
    pub(crate) depth: u32,
    pub(crate) values: Values,
    pub(crate) first: u64,
    pub(crate) count: u32,
    /// The context in which the call was made: see `telemetry`. At most 64 KiB.
    pub(crate) context: Bytes,
    pub(crate) arguments: Bytes,
    pub(crate) blobs: Blobs,
}

/// A task that its worker runs as soon as another one there has made the value that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Follower {
    /// The task that makes the value. It comes behind this.
    pub(crate) after: (CallId, u64),
    /// The task, whose arguments are without the value.
    pub(crate) assignment: Assignment,
    /// The value's place among the arguments, in bytes.
    pub(crate) place: u32,
}

/// Outcomes of tasks of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Results {
    pub(crate) call: CallId,
    /// Nanoseconds that the worker spent on the tasks.
    pub(crate) busy: u64,
    /// How many of the tasks failed.
    pub(crate) failed: u32,
    /// The number of the worker's thread that ran them.
    pub(crate) thread: u32,
    /// The tasks of `outcomes`.
    pub(crate) runs: Vec<ResultRun>,
    pub(crate) outcomes: Bytes,
    /// The blobs of the outcome, if there is one alone.
    pub(crate) blobs: Blobs,
}

/// Consecutive tasks of [`Results`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResultRun {
    pub(crate) first: u64,
    pub(crate) count: u32,
    /// Bytes of the encoded outcomes.
    pub(crate) length: u32,
}

/// A small message from a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WorkerEvent {
    /// The worker returns tasks that it has not started.
    Returned { call: CallId, first: u64, count: u64 },
    /// The worker has been running this task for a while.
    Running { call: CallId, index: u64 },
    /// The worker runs this task past its timeout. Holds what it is doing, if that is known.
    Overdue { call: CallId, index: u64, stack: Option<Arc<ThreadStack>> },
    /// The worker runs a task of a call that was cancelled with `kill`.
    RunsCancelled,
    /// SIGTERM asked the worker to end: it starts no more tasks.
    Terminating,
    /// This task waits for others of the pool and lends them its slot, or goes on.
    Waits { call: CallId, index: u64, waits: bool },
}

/// A small message from a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PoolCommand {
    /// Drops the tasks of a call that the worker has not started. With `kill`, the worker reports
    /// whether it runs one.
    Cancel { call: CallId, kill: bool },
    /// Requests the tasks of a call that the worker has not started, because the caller has no room
    /// for their outcomes.
    Return(CallId),
    /// Requests all tasks that the worker has not started, and lets it start no more, because the
    /// program is about to end.
    Drain,
    /// Drops a broadcast value.
    DropBroadcast(u64),
    /// Ends a task that `workers` workers did not survive. The worker's tasks have made its call.
    Abandoned { call: CallId, index: u64, workers: u32, exit: Box<Exit> },
}

/// A message between a pool and a worker, whose tasks make calls that are sent the other way.
pub(crate) enum PoolMessage {
    Assignment(Assignment),
    Follower(Follower),
    Results(Results),
    Broadcast { id: u64, value: Received },
    Command(PoolCommand),
    Event(WorkerEvent),
}

impl PoolMessage {
    pub(crate) fn message(self) -> Message {
        match self {
            PoolMessage::Assignment(assignment) => {
                let mut head = Vec::with_capacity(64 + assignment.context.len());
                head.extend_from_slice(&[MAIN, ASSIGNMENT]);
                assignment.message(head)
            }
            PoolMessage::Follower(Follower { after, assignment, place }) => {
                let mut head = Vec::with_capacity(84 + assignment.context.len());
                head.extend_from_slice(&[MAIN, FOLLOWER]);
                let (call, index) = after;
                [call, index].iter().for_each(|number| head.extend(number.to_le_bytes()));
                head.extend_from_slice(&place.to_le_bytes());
                assignment.message(head)
            }
            PoolMessage::Results(results) => {
                Message { head: results.head(), body: results.outcomes, blobs: results.blobs }
            }
            PoolMessage::Broadcast { id, value } => {
                let mut head = vec![MAIN, BROADCAST];
                head.extend_from_slice(&id.to_le_bytes());
                Message { head, body: value.bytes, blobs: value.blobs }
            }
            PoolMessage::Command(command) => small_message(COMMAND, &command),
            PoolMessage::Event(event) => small_message(CONTROL, &event),
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`Error::Decode`] if the message is malformed.
    pub(crate) fn read(message: Received) -> Result<PoolMessage> {
        let Received { bytes: mut message, blobs } = message;
        match message.try_get_u8() {
            Ok(CONTROL) => codec::decode(&message).map(PoolMessage::Event),
            Ok(COMMAND) => codec::decode(&message).map(PoolMessage::Command),
            Ok(ASSIGNMENT) => Assignment::read(message, blobs).map(PoolMessage::Assignment),
            Ok(FOLLOWER) => Follower::read(message, blobs).map(PoolMessage::Follower),
            Ok(RESULTS) => Results::read(message, blobs).map(PoolMessage::Results),
            Ok(BROADCAST) => {
                let id = message.try_get_u64_le().map_err(|_| malformed())?;
                Ok(PoolMessage::Broadcast { id, value: Received { bytes: message, blobs } })
            }
            _ => Err(malformed()),
        }
    }
}

impl Follower {
    fn read(mut message: Bytes, blobs: Blobs) -> Result<Follower> {
        if message.len() < 20 {
            return Err(malformed());
        }
        let (after, place) = ((message.get_u64_le(), message.get_u64_le()), message.get_u32_le());
        let assignment = Assignment::read(message, blobs)?;
        let is_within = (PREFIX..=assignment.arguments.len()).contains(&(place as usize));
        if is_within { Ok(Follower { after, assignment, place }) } else { Err(malformed()) }
    }
}

impl Assignment {
    /// Returns the message with this behind what `head` has.
    fn message(self, mut head: Vec<u8>) -> Message {
        let CallOptions { chunk, timeout, max_deaths, max_timeouts, .. } = self.options;
        let timeout = timeout.map_or(NO_TIMEOUT, nanos);
        let numbers = [self.call, self.entry.offset, self.entry.name, self.first, timeout];
        numbers.iter().for_each(|number| head.extend_from_slice(&number.to_le_bytes()));
        let numbers = [chunk, max_deaths, max_timeouts, self.count, self.depth];
        numbers.iter().for_each(|number| head.extend_from_slice(&number.to_le_bytes()));
        head.push(self.values.to_byte());
        head.extend_from_slice(&(self.context.len() as u16).to_le_bytes());
        head.extend_from_slice(&self.context);
        Message { head, body: self.arguments, blobs: self.blobs }
    }

    fn read(mut message: Bytes, blobs: Blobs) -> Result<Assignment> {
        if message.len() < 63 {
            return Err(malformed());
        }
        Ok(Assignment {
            call: message.get_u64_le(),
            entry: EntryRef { offset: message.get_u64_le(), name: message.get_u64_le() },
            first: message.get_u64_le(),
            options: CallOptions {
                timeout: Some(message.get_u64_le())
                    .filter(|nanos| *nanos != NO_TIMEOUT)
                    .map(Duration::from_nanos),
                chunk: message.get_u32_le(),
                max_deaths: message.get_u32_le(),
                max_timeouts: message.get_u32_le(),
                // The process that makes the call counts retries.
                retries: 0,
                comes_first: false,
            },
            count: message.get_u32_le(),
            depth: message.get_u32_le(),
            values: Values::from_byte(message.get_u8()),
            context: read_context(&mut message)?,
            arguments: message,
            blobs,
        })
    }
}

impl Results {
    /// Returns the failures of tasks that did not run, all for this reason.
    pub(crate) fn failures(
        call: CallId,
        first: u64,
        count: u32,
        kind: FailureKind,
        problem: &str,
    ) -> Results {
        let failure = codec::encode(&Failure::new(kind, problem));
        let failure = failure.expect("a failure contains only text");
        let mut outcomes = Vec::new();
        (0..count).for_each(|_| push_item(&mut outcomes, &failure, true));
        let runs = vec![ResultRun { first, count, length: outcomes.len() as u32 }];
        let (outcomes, blobs) = (outcomes.into(), Blobs::default());
        Results { call, busy: 1, failed: count, thread: 0, runs, outcomes, blobs }
    }

    /// Returns the number of tasks.
    pub(crate) fn tasks(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.count)).sum()
    }

    fn head(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(30 + 16 * self.runs.len() + PREFIX);
        head.extend_from_slice(&[MAIN, RESULTS]);
        head.extend_from_slice(&self.call.to_le_bytes());
        head.extend_from_slice(&self.busy.to_le_bytes());
        head.extend_from_slice(&self.failed.to_le_bytes());
        head.extend_from_slice(&self.thread.to_le_bytes());
        head.extend_from_slice(&(self.runs.len() as u32).to_le_bytes());
        for run in &self.runs {
            head.extend_from_slice(&run.first.to_le_bytes());
            head.extend_from_slice(&run.count.to_le_bytes());
            head.extend_from_slice(&run.length.to_le_bytes());
        }
        head
    }

    /// Returns the message of one outcome that is not copied behind its length, `prefix`.
    pub(crate) fn large_message(self, prefix: [u8; PREFIX], values: Values) -> Message {
        let mut head = self.head();
        head.extend_from_slice(&prefix);
        head[0] = match values {
            Values::Come => MAIN,
            Values::LargeStay => LARGE_STAY,
            Values::Stay => ALL_STAY,
        };
        Message { head, body: self.outcomes, blobs: self.blobs }
    }

    fn read(mut message: Bytes, blobs: Blobs) -> Result<Results> {
        if message.len() < 28 {
            return Err(malformed());
        }
        let (call, busy, failed) =
            (message.get_u64_le(), message.get_u64_le(), message.get_u32_le());
        let (thread, count) = (message.get_u32_le(), message.get_u32_le() as usize);
        if message.len() / 16 < count {
            return Err(malformed());
        }
        let run = |message: &mut Bytes| ResultRun {
            first: message.get_u64_le(),
            count: message.get_u32_le(),
            length: message.get_u32_le(),
        };
        let runs: Vec<_> = (0..count).map(|_| run(&mut message)).collect();
        let length: u64 = runs.iter().map(|run| u64::from(run.length)).sum();
        let is_single = matches!(runs[..], [ResultRun { count: 1, .. }]);
        if length != message.len() as u64 || !(blobs.is_empty() || is_single) {
            return Err(malformed());
        }
        Ok(Results { call, busy, failed, thread, runs, outcomes: message, blobs })
    }
}

fn read_context(message: &mut Bytes) -> Result<Bytes> {
    let length = usize::from(message.get_u16_le());
    if length > message.len() { Err(malformed()) } else { Ok(message.split_to(length)) }
}

fn small_message<T: Serialize>(kind: u8, content: &T) -> Message {
    let mut head = vec![MAIN, kind];
    codec::append(&mut head, content).expect("control messages contain only numbers and text");
    Message::new(head)
}

pub(crate) fn malformed() -> Error {
    Error::decode("a message between a pool and a worker", "it has another layout")
}
