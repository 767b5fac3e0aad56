//! Runs: consecutive tasks of one call with their encoded arguments.
//!
//! A pool tracks every task on its own at a cost of nanoseconds a task, because it stores, sends
//! and redelivers runs. Any run can be split anywhere. A chunk is only the least number of tasks
//! that is handed out at a time.

use bytes::{Buf, Bytes};
use fiber_values::Parts;
use fiber_values::blob::Blobs;

use fiber_runtime::runtime::HostNumber;

/// Bytes of the length in front of each task's arguments and of each outcome.
pub(crate) const PREFIX: usize = 4;
/// The bit of an outcome's length that marks a failure.
pub(crate) const FAILED: u32 = 1 << 31;

/// Identifies a call.
pub(crate) type CallId = u64;

/// The tasks `start..end` of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) call: CallId,
    /// The index of the first task in `bytes`. It is below `start` if tasks were cut off at the
    /// front.
    base: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    bytes: Bytes,
    /// The blobs of its task. A task with blobs is a run of its own.
    blobs: Blobs,
    /// The arguments of its task, if outputs of others are among them, in place of the bytes and
    /// blobs: they are put together when the task is sent. Such a task is a run of its own.
    parts: Option<Parts>,
    /// The host to which its task has least to travel.
    near: Option<Near>,
    /// Whether its task went to a worker ahead of the value that it takes, so that neither the
    /// place nor the size of that is known.
    pub(crate) is_ahead: bool,
}

/// Fewer bytes travel in about the time in which a worker is chosen.
const MIN_NEAR: u64 = 64 << 10;

/// A host that has inputs of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Near {
    pub(crate) host: HostNumber,
    /// How many bytes of them it has.
    pub(crate) bytes: u64,
}

impl Run {
    pub(crate) fn new(call: CallId, start: u64, end: u64, bytes: Bytes) -> Run {
        let (blobs, parts, near) = (Blobs::default(), None, None);
        Run { call, base: start, start, end, bytes, blobs, parts, near, is_ahead: false }
    }

    /// Makes the run of consecutive tasks, or of the first one with its blobs.
    pub(crate) fn of(call: CallId, first: u64, count: u32, bytes: Bytes, blobs: Blobs) -> Run {
        if blobs.is_empty() {
            Run::new(call, first, first + u64::from(count), bytes)
        } else {
            Run::with_blobs(call, first, bytes, blobs)
        }
    }

    /// Makes the run of one task with blobs.
    pub(crate) fn with_blobs(call: CallId, index: u64, bytes: Bytes, blobs: Blobs) -> Run {
        Run { blobs, ..Run::new(call, index, index + 1, bytes) }
    }

    /// Makes the run of one task with outputs among its arguments, which are there. It has no bytes,
    /// and keeps what owns them.
    pub(crate) fn with_parts(call: CallId, index: u64, no_bytes: Bytes, parts: Parts) -> Run {
        let near = parts.nearest().filter(|(_, bytes)| *bytes >= MIN_NEAR);
        let near = near.map(|(host, bytes)| Near { host, bytes });
        Run { parts: Some(parts), near, ..Run::new(call, index, index + 1, no_bytes) }
    }

    #[cfg(test)]
    pub(crate) fn with_near(self, near: Near) -> Run {
        Run { near: Some(near), ..self }
    }

    /// Returns the host that has most bytes of its task's inputs, if any has some.
    pub(crate) fn near(&self) -> Option<Near> {
        self.near
    }

    /// Returns the arguments of its tasks as they are sent, and the blobs of its task; `None` if an
    /// input is there no more, because it was lost with its machine.
    pub(crate) fn to_send(&self) -> Option<(Bytes, Blobs)> {
        let Some(parts) = &self.parts else { return Some((self.arguments(), self.blobs.clone())) };
        let (bytes, blobs) = encode_parts(parts)?;
        Some((bytes.into(), blobs))
    }

    /// Returns the arguments of its task, if outputs of others are among them.
    pub(crate) fn parts(&self) -> Option<&Parts> {
        self.parts.as_ref()
    }

    /// Returns whether its task waits for the value of another one.
    pub(crate) fn lacks_input(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| !parts.are_there())
    }

    /// Returns a copy of the arguments of its first task, behind their length.
    pub(crate) fn first_arguments(&self) -> Bytes {
        let bytes = self.arguments();
        Bytes::copy_from_slice(&bytes[..offset(&bytes, 1)])
    }

    /// Returns the blobs of its task, if it has any.
    pub(crate) fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// Returns the number of tasks.
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Returns the arguments of its tasks, each after its length. Arguments of later tasks may
    /// follow: the reader has to stop at the end of the run.
    pub(crate) fn arguments(&self) -> Bytes {
        self.bytes.slice(offset(&self.bytes, self.start - self.base)..)
    }

    /// Takes out the first `count` tasks, or all if there are fewer.
    pub(crate) fn split_front(&mut self, count: u64) -> Run {
        self.trim();
        let count = count.min(self.len());
        let bytes = self.bytes.split_to(offset(&self.bytes, count));
        let front = Run { end: self.start + count, bytes, ..self.clone() };
        self.start += count;
        self.base = self.start;
        front
    }

    /// Takes out the tasks `from..to`, which are in this run, and drops those before them.
    pub(crate) fn take(&mut self, from: u64, to: u64) -> Run {
        if (from, to) == (self.start, self.end) {
            let empty = Run::new(self.call, to, to, Bytes::new());
            return std::mem::replace(self, empty);
        }
        drop(self.split_front(from - self.start));
        self.split_front(to - from)
    }

    /// Splits the run into those of the tasks `from..to` that are in it, the tasks before and the
    /// tasks after them. Copies nothing and reads no lengths.
    pub(crate) fn cut(self, from: u64, to: u64) -> (Option<Run>, Option<Run>, Option<Run>) {
        let (from, to) = (from.clamp(self.start, self.end), to.clamp(self.start, self.end));
        let run = |start, end| (start < end).then(|| Run { start, end, ..self.clone() });
        if from >= to {
            return (None, Some(self), None);
        }
        (run(from, to), run(self.start, from), run(to, self.end))
    }

    /// Returns whether the task with this index is in the run.
    pub(crate) fn contains(&self, index: u64) -> bool {
        (self.start..self.end).contains(&index)
    }

    /// Returns the bytes of its tasks' arguments.
    pub(crate) fn size(&self) -> usize {
        let apart = self.parts.as_ref().map_or(0, |parts| parts.size());
        self.bytes.len() + self.blobs.total_len() + apart
    }

    /// Returns the bytes that it keeps in this process's own memory.
    pub(crate) fn private_size(&self) -> usize {
        self.bytes.len() + self.blobs.private_len()
    }

    /// Returns the same run in memory of its own, if it is so small that it may keep a far larger
    /// block of received bytes from being freed.
    pub(crate) fn unshared(mut self) -> Run {
        self.bytes = fiber_transport::unshared(self.bytes);
        self
    }

    /// Drops the arguments of tasks that were cut off at the front.
    fn trim(&mut self) {
        if self.base < self.start {
            self.bytes.advance(offset(&self.bytes, self.start - self.base));
            self.base = self.start;
        }
    }
}

/// Returns the offset in `bytes` after the first `count` items.
fn offset(bytes: &[u8], count: u64) -> usize {
    let mut items = Items::new(bytes);
    for _ in 0..count {
        items.next();
    }
    bytes.len() - items.rest.len()
}

/// An iterator over items that follow their lengths, and whether each is a failure.
#[derive(Clone, Debug)]
pub(crate) struct Items<'a> {
    rest: &'a [u8],
}

impl<'a> Items<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Items<'a> {
        Items { rest: bytes }
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = (&'a [u8], bool);

    #[inline]
    fn next(&mut self) -> Option<(&'a [u8], bool)> {
        let (prefix, rest) = self.rest.split_first_chunk::<PREFIX>()?;
        let prefix = u32::from_le_bytes(*prefix);
        let (item, rest) = rest.split_at_checked((prefix & !FAILED) as usize)?;
        self.rest = rest;
        Some((item, prefix & FAILED != 0))
    }
}

/// Encodes the arguments of one task behind their length, if its inputs are there.
pub(crate) fn encode_parts(parts: &Parts) -> Option<(Vec<u8>, Blobs)> {
    let mut bytes = vec![0; PREFIX];
    let blobs = parts.append(&mut bytes).ok()?;
    let length = bytes.len() - PREFIX;
    bytes[..PREFIX].copy_from_slice(&prefix(length, false));
    Some((bytes, blobs))
}

/// Appends the length of an item, and the item.
pub(crate) fn push_item(bytes: &mut Vec<u8>, item: &[u8], failed: bool) {
    bytes.reserve(PREFIX + item.len());
    bytes.extend_from_slice(&prefix(item.len(), failed));
    bytes.extend_from_slice(item);
}

/// Encodes the length in front of an item.
pub(crate) fn prefix(length: usize, failed: bool) -> [u8; PREFIX] {
    (length as u32 | if failed { FAILED } else { 0 }).to_le_bytes()
}
