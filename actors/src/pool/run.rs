//! Runs: tasks of one call that follow each other, with their encoded arguments.
//!
//! A pool tracks every task on its own, and yet costs nanoseconds a task, because what it stores,
//! sends and takes back are runs. Any run can be split anywhere; a chunk is only the least number
//! of tasks that is handed out at a time.

use bytes::{Buf, Bytes};

/// Before each task's arguments, and before each result, stands its length.
pub(crate) const PREFIX: usize = 4;
/// The bit of a result's length that says that it is a failure.
pub(crate) const FAILED: u32 = 1 << 31;

/// Which call of a pool.
pub(crate) type CallId = u64;

/// Tasks `start..end` of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) call: CallId,
    /// The index of the first task in `bytes`. It is below `start` when tasks at the front are done
    /// already.
    base: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    bytes: Bytes,
}

impl Run {
    pub(crate) fn new(call: CallId, start: u64, end: u64, bytes: Bytes) -> Run {
        Run { call, base: start, start, end, bytes }
    }

    /// How many tasks.
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// The arguments of its tasks, each after its length. (The end is not cut: it is up to the
    /// reader to stop.)
    pub(crate) fn arguments(&self) -> Bytes {
        self.bytes.slice(offset(&self.bytes, self.start - self.base)..)
    }

    /// Takes the first `count` tasks out, at most all.
    pub(crate) fn split_front(&mut self, count: u64) -> Run {
        self.trim();
        let count = count.min(self.len());
        let bytes = self.bytes.split_to(offset(&self.bytes, count));
        let front = Run {
            call: self.call,
            base: self.start,
            start: self.start,
            end: self.start + count,
            bytes,
        };
        self.start += count;
        self.base = self.start;
        front
    }

    /// Takes the tasks of `from..to` out, which are in this run, and forgets those before them.
    pub(crate) fn take(&mut self, from: u64, to: u64) -> Run {
        if (from, to) == (self.start, self.end) {
            let empty = Run { start: to, base: to, bytes: Bytes::new(), ..*self };
            return std::mem::replace(self, empty);
        }
        drop(self.split_front(from - self.start));
        self.split_front(to - from)
    }

    /// The tasks of `from..to` that are in this run, as a run, and what is left before and after
    /// them. Nothing is copied, and no length is read.
    pub(crate) fn cut(self, from: u64, to: u64) -> (Option<Run>, Option<Run>, Option<Run>) {
        let (from, to) = (from.clamp(self.start, self.end), to.clamp(self.start, self.end));
        let part = |start, end| (start < end).then(|| Run { start, end, ..self.clone() });
        if from >= to {
            return (None, Some(self), None);
        }
        (part(from, to), part(self.start, from), part(to, self.end))
    }

    /// Whether the task of this index is in it.
    pub(crate) fn contains(&self, index: u64) -> bool {
        (self.start..self.end).contains(&index)
    }

    /// Bytes of arguments from its first task on.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets the arguments of tasks that are not in it any more.
    fn trim(&mut self) {
        if self.base < self.start {
            self.bytes.advance(offset(&self.bytes, self.start - self.base));
            self.base = self.start;
        }
    }
}

/// Where, in `bytes`, the item after the first `count` items begins.
fn offset(bytes: &[u8], count: u64) -> usize {
    let mut items = Items::new(bytes);
    for _ in 0..count {
        items.next();
    }
    bytes.len() - items.rest.len()
}

/// Reads items, each after its length, and whether each is a failure.
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

/// Appends an item after its length.
pub(crate) fn push_item(bytes: &mut Vec<u8>, item: &[u8], failed: bool) {
    bytes.reserve(PREFIX + item.len());
    bytes.extend_from_slice(&prefix(item.len(), failed));
    bytes.extend_from_slice(item);
}

/// The length that stands before an item.
pub(crate) fn prefix(length: usize, failed: bool) -> [u8; PREFIX] {
    (length as u32 | if failed { FAILED } else { 0 }).to_le_bytes()
}
