//! Results on their way to the caller.

use fiber_core::Error;
use fiber_core::value_memory::Stored;

use super::run::Run;

/// The event that lets the feeder add another task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// The outcome of a task has arrived.
    Completed,
    /// The caller has taken the outcome of a task.
    Taken,
}

/// The order in which a caller takes the outcomes of its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// All together.
    Together,
    /// One by one, in the order of the tasks.
    Tasks,
    /// One by one, in the order of arrival.
    Arrival,
}

impl Order {
    pub(super) fn release(self) -> Release {
        if self == Order::Together { Release::Completed } else { Release::Taken }
    }
}

/// Results that the caller receives together.
#[derive(Debug)]
pub(super) enum ResultBatch {
    /// Outcomes of consecutive tasks, and the count of their bytes.
    Outcomes(Run, Stored),
    /// A task without an outcome of its own.
    Failed(u64, Error),
}

impl ResultBatch {
    pub(super) fn of(outcomes: Run) -> ResultBatch {
        // It may wait for earlier ones.
        let outcomes = outcomes.unshared();
        let stored = Stored::new(outcomes.private_size());
        ResultBatch::Outcomes(outcomes, stored)
    }

    /// Returns the number of tasks.
    pub(super) fn len(&self) -> u64 {
        match self {
            ResultBatch::Outcomes(run, _) => run.len(),
            ResultBatch::Failed(..) => 1,
        }
    }

    /// Returns the index of the first task.
    pub(super) fn start(&self) -> u64 {
        match self {
            ResultBatch::Outcomes(run, _) => run.start,
            ResultBatch::Failed(index, _) => *index,
        }
    }

    /// Returns the index after the last task.
    pub(super) fn end(&self) -> u64 {
        self.start() + self.len()
    }

    /// Returns the size in bytes.
    pub(super) fn size(&self) -> u64 {
        match self {
            ResultBatch::Outcomes(run, _) => run.size() as u64,
            ResultBatch::Failed(..) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_small_batch_keeps_no_other_bytes_that_came_with_it() {
        let received = Bytes::from(vec![0; 64 << 10]);
        let batch = ResultBatch::of(Run::new(1, 0, 1, received.slice(..12)));
        assert!(received.is_unique());
        assert_eq!(batch.size(), 12);
    }
}
