//! Runs of tasks in a worker.

use std::time::Duration;

use bytes::Bytes;
use fiber_values::blob::Blobs;
use fiber_values::entry::Entry;

use crate::run::{CallId, Items, PREFIX};
use crate::scheduler::Values;
use crate::wire::Assignment;

/// A run of tasks in a worker. Its first task may have started.
#[derive(Clone)]
pub(super) struct LocalRun {
    pub(super) call: CallId,
    pub(super) entry: &'static Entry,
    /// The time limit of one task.
    pub(super) timeout: Option<Duration>,
    /// How many tasks are around its call.
    pub(super) depth: u32,
    pub(super) values: Values,
    pub(super) chunk: u64,
    /// The first task of the first chunk.
    pub(super) start: u64,
    /// The next task to start.
    pub(super) first: u64,
    pub(super) end: u64,
    /// The context in which the call was made, encoded.
    pub(super) context: Bytes,
    pub(super) arguments: Bytes,
    pub(super) blobs: Blobs,
}

impl LocalRun {
    pub(super) fn new(entry: &'static Entry, assignment: Assignment) -> LocalRun {
        LocalRun {
            call: assignment.call,
            entry,
            timeout: assignment.options.timeout,
            depth: assignment.depth,
            values: assignment.values,
            chunk: u64::from(assignment.options.chunk).max(1),
            start: assignment.first,
            first: assignment.first,
            end: assignment.first + u64::from(assignment.count),
            context: assignment.context,
            arguments: assignment.arguments,
            blobs: assignment.blobs,
        }
    }

    /// Returns how many tasks have not started.
    pub(super) fn len(&self) -> u64 {
        self.end - self.first
    }

    /// Takes out the first `count` tasks.
    pub(super) fn split_front(&mut self, count: u64) -> LocalRun {
        let mut items = Items::new(&self.arguments);
        let length: usize =
            (0..count).map_while(|_| items.next()).map(|(item, _)| item.len() + PREFIX).sum();
        let front = LocalRun {
            end: self.first + count,
            arguments: self.arguments.split_to(length),
            ..self.clone()
        };
        self.first += count;
        self.start = self.first;
        front
    }
}
