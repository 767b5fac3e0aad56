//! Workers that were evicted, preempted, or asked to end by SIGTERM. The pool replaces them without
//! limit, and nothing counts against their tasks. So it says now and then that nothing gets done.

/// The number of workers in a row after which the pool logs the first warning.
const FIRST_WARNING: u32 = 8;

/// Disrupted workers in a row, while no task was completed.
#[derive(Debug, Default)]
pub(super) struct DisruptedWorkers {
    in_a_row: u32,
    /// The tasks that the pool had completed at the last one.
    done: u64,
}

impl DisruptedWorkers {
    /// Counts one. Returns the number of those in a row if there is to be a warning: after twice as
    /// many workers each time.
    pub(super) fn add(&mut self, done: u64) -> Option<u32> {
        if std::mem::replace(&mut self.done, done) != done {
            self.in_a_row = 0;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        let is_due = self.in_a_row >= FIRST_WARNING && self.in_a_row.is_power_of_two();
        is_due.then_some(self.in_a_row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_warns_ever_more_rarely_while_nothing_is_completed() {
        let mut disrupted = DisruptedWorkers::default();
        let warnings: Vec<_> = (0..40).filter_map(|_| disrupted.add(0)).collect();
        assert_eq!(warnings, [8, 16, 32]);
        assert_eq!((0..7).find_map(|_| disrupted.add(1)), None, "a task was completed");
        assert_eq!(disrupted.add(1), Some(8));
        assert_eq!((2..100).find_map(|done| disrupted.add(done)), None);
    }
}
