//! The room of a call's caller for outcomes.
//!
//! The caller reports what it has taken when that is a part of its buffer, as a receiver in HTTP/2
//! updates its window. The scheduler counts outcomes as stored until a report says otherwise. When
//! it finds no room, the effect [`throttled`](super::Effects::throttled) asks for the next report.

/// A call takes one part in this many of the process's memory for values at a time, because others
/// take at the same time.
const SHARE: u64 = 4;

/// A number of outcomes, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) tasks: u64,
    pub(crate) bytes: u64,
}

impl Amount {
    fn max(self, other: Amount) -> Amount {
        Amount { tasks: self.tasks.max(other.tasks), bytes: self.bytes.max(other.bytes) }
    }
}

/// The outcomes that a caller has taken and added since its call began. Reports may arrive in any
/// order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) taken: Amount,
    /// Outcomes that did not come from the scheduler: recorded ones, and failures to submit a task.
    pub(crate) added: Amount,
    /// The task whose outcome the caller takes next, if it takes them in order.
    pub(crate) next: u64,
}

/// The scheduler's view of what a caller stores.
#[derive(Debug)]
pub(crate) struct Room {
    /// Bytes of outcomes that the caller stores; `None` if it stores all anyway.
    max: Option<u64>,
    /// Whether the caller takes outcomes in the order of the tasks.
    in_order: bool,
    /// Whether the caller takes each outcome when it arrives, without a report.
    takes_at_once: bool,
    /// Outcomes of the scheduler's own tasks.
    arrived: Amount,
    report: Report,
    /// Expected bytes of the next outcome; 0 before the first.
    expected: u64,
    /// Whether the caller was asked to report, and has not done so.
    pub(super) throttled: bool,
}

impl Room {
    pub(crate) fn new(max: Option<u64>, in_order: bool) -> Room {
        let (arrived, report) = Default::default();
        let (takes_at_once, expected, throttled) = (false, 0, false);
        Room { max, in_order, takes_at_once, arrived, report, expected, throttled }
    }

    /// Notes that the caller takes each outcome when it arrives, and has taken those that were there.
    pub(super) fn take_at_once(&mut self) {
        self.takes_at_once = true;
    }

    /// Notes a report of the caller.
    pub(super) fn note(&mut self, report: Report) {
        self.report.taken = self.report.taken.max(report.taken);
        self.report.added = self.report.added.max(report.added);
        self.report.next = self.report.next.max(report.next);
    }

    /// Counts outcomes that the caller is about to receive.
    pub(super) fn arrive(&mut self, tasks: u64, bytes: u64) {
        self.arrived.tasks += tasks;
        self.arrived.bytes += bytes;
        let each = bytes / tasks.max(1);
        if each > 0 {
            // A large outcome among small ones is expected again for a while.
            self.expected = each.max(self.expected - self.expected / 8);
        }
    }

    /// Returns how many outcomes the caller has reported as taken.
    pub(super) fn taken(&self) -> u64 {
        self.report.taken.tasks
    }

    fn untaken(&self) -> u64 {
        if self.takes_at_once {
            return 0;
        }
        (self.arrived.tasks + self.report.added.tasks).saturating_sub(self.report.taken.tasks)
    }

    /// Returns the bytes of the outcomes that the caller has not taken.
    fn stored(&self) -> u64 {
        if self.takes_at_once {
            return 0;
        }
        (self.arrived.bytes + self.report.added.bytes).saturating_sub(self.report.taken.bytes)
    }

    /// Returns how many more tasks may be handed out while `pending` are pending and values may
    /// take `memory` more bytes. There is room for `least` tasks however large they are.
    pub(super) fn left(&self, pending: u64, least: u64, memory: u64) -> u64 {
        let enough = least.saturating_sub(pending + self.untaken());
        let common = memory / SHARE;
        let free = match self.max {
            Some(max) => max.saturating_sub(self.stored()).min(common),
            None if common == 0 => 0,
            None => return u64::MAX,
        };
        match free.checked_div(self.expected) {
            Some(fitting) => fitting.saturating_sub(pending).max(enough),
            // The first outcome may have any size.
            None => enough,
        }
    }

    /// Returns whether workers should return tasks that they have not started, while `pending` are
    /// pending and values may take `memory` more bytes.
    pub(super) fn overflows(&self, pending: u64, least: u64, memory: u64) -> bool {
        let full = self.max.is_some_and(|max| self.stored() > max) || memory == 0;
        full && pending + self.untaken() > least
    }

    /// Returns the task whose outcome the caller takes next, if it takes them in order. No room
    /// appears before that.
    pub(super) fn next_needed(&self) -> Option<u64> {
        self.in_order.then_some(self.report.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(tasks: u64, bytes: u64) -> Report {
        Report { taken: Amount { tasks, bytes }, ..Report::default() }
    }

    #[test]
    fn before_the_first_outcome_only_the_least_number_of_tasks_is_handed_out() {
        let mut room = Room::new(Some(500), true);
        assert_eq!(room.left(0, 4, u64::MAX), 4);
        assert_eq!(room.left(3, 4, u64::MAX), 1);
        room.arrive(1, 10);
        assert_eq!(room.left(3, 4, u64::MAX), 46, "49 of 10 bytes fit, 3 are pending");
    }

    #[test]
    fn outcomes_that_are_taken_at_once_leave_room_without_a_report() {
        let mut room = Room::new(None, false);
        room.arrive(4, 400);
        assert_eq!(room.left(0, 4, 0), 0);
        room.take_at_once();
        assert_eq!(room.left(1, 4, 0), 3);
        room.arrive(4, 400);
        assert_eq!(room.left(1, 4, 0), 3);
    }

    #[test]
    fn a_large_outcome_is_expected_again_for_a_while() {
        let mut room = Room::new(Some(50_000), false);
        room.arrive(1, 10_000);
        room.note(taken(1, 10_000));
        assert_eq!(room.left(0, 1, u64::MAX), 5);
        for number in 1..100 {
            room.arrive(1, 10);
            room.note(taken(1 + number, 10_000 + 10 * number));
            assert!(number > 1 || room.left(0, 1, u64::MAX) == 5);
        }
        assert!(room.left(0, 1, u64::MAX) > 1000);
    }

    #[test]
    fn reports_count_in_any_order() {
        let mut room = Room::new(Some(50), true);
        room.arrive(4, 40);
        room.note(Report { next: 3, ..taken(3, 30) });
        room.note(Report { next: 2, ..taken(2, 20) });
        assert_eq!((room.left(0, 1, u64::MAX), room.next_needed()), (4, Some(3)));
        room.note(Report { added: Amount { tasks: 1, bytes: 20 }, ..Report::default() });
        assert_eq!(room.left(0, 1, u64::MAX), 2, "outcomes from elsewhere take room, too");
    }

    #[test]
    fn without_memory_for_values_only_the_least_number_of_tasks_is_handed_out() {
        let mut room = Room::new(None, false);
        assert_eq!(room.left(1000, 1, u64::MAX), u64::MAX, "`map` stores all results anyway");
        room.arrive(2, 20);
        assert_eq!(room.left(1, 4, 0), 1);
        assert!(room.overflows(3, 4, 0) && !room.overflows(2, 4, 0) && !room.overflows(9, 4, 1));
    }
}
