//! Slices of the workers' time: the parts of a timeline.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::units;

/// Work of a worker's thread without a pause: one task, or short tasks of one call in a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Slice {
    /// The pool's name.
    pub pool: String,
    /// The worker's name in it.
    pub worker: String,
    /// The number of the worker's thread, from 0 on.
    pub thread: u32,
    /// The function.
    pub function: String,
    /// The number of the call.
    pub call: u64,
    /// The index of the first task in the call.
    pub first: u64,
    /// The number of tasks. They are consecutive if one worker got them all.
    pub count: u64,
    /// How many of them failed.
    pub failed: u64,
    /// When the first task began.
    #[serde(with = "units::time")]
    pub start: SystemTime,
    /// For how long they ran.
    #[serde(with = "units::duration")]
    pub duration: Duration,
    /// How it ended.
    pub kind: SliceKind,
}

/// How the tasks of a [`Slice`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SliceKind {
    /// They returned or failed.
    Ran,
    /// The same. One of them had run before, in a worker that died.
    Redelivered,
    /// The worker died while it ran the task.
    Died,
}

impl Slice {
    /// Makes a slice of thread 0 that begins at 1970.
    #[doc(hidden)]
    pub fn new(pool: String, worker: String, function: String, call: u64, first: u64) -> Slice {
        Slice {
            pool,
            worker,
            thread: 0,
            function,
            call,
            first,
            count: 1,
            failed: 0,
            start: SystemTime::UNIX_EPOCH,
            duration: Duration::ZERO,
            kind: SliceKind::Ran,
        }
    }

    /// Returns when the last task ended.
    pub fn end(&self) -> SystemTime {
        self.start + self.duration
    }
}
