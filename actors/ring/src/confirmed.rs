//! The checkpoints of a rank that its coordinator has recorded.

use parking_lot::{Condvar, Mutex};

/// The number of the last recorded checkpoint of this rank.
#[derive(Debug, Default)]
pub(super) struct ConfirmedCheckpoints {
    last: Mutex<u64>,
    changed: Condvar,
}

impl ConfirmedCheckpoints {
    pub(super) fn set(&self, number: u64) {
        *self.last.lock() = number;
        self.changed.notify_all();
    }

    /// Blocks until the checkpoint of this number is recorded.
    pub(super) fn wait_for(&self, number: u64) {
        let mut last = self.last.lock();
        self.changed.wait_while(&mut last, |last| *last < number);
    }
}
