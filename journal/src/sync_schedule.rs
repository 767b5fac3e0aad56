//! When records are written to the disk.

use std::time::{Duration, Instant};

/// The time from the beginning of one sync to that of the next. Entries collect meanwhile.
const PAUSE: Duration = Duration::from_millis(5);
/// How long outcomes that were delivered before they are on disk may stay so.
const UNSYNCED: Duration = Duration::from_secs(1);

/// Decides when the committer syncs. It has no clock: the present time is a parameter.
#[derive(Debug)]
pub(crate) struct SyncSchedule {
    /// Whether entries are delivered only when they are on disk.
    is_required: bool,
    /// When the last sync began. `None` before the first.
    last: Option<Instant>,
    /// Since when there are records that are not on disk.
    dirty_since: Option<Instant>,
}

impl SyncSchedule {
    pub(crate) fn new() -> SyncSchedule {
        SyncSchedule { is_required: false, last: None, dirty_since: None }
    }

    /// Notes that entries are delivered only when they are on disk, from now on.
    pub(crate) fn require(&mut self) {
        self.is_required = true;
    }

    /// Returns until when entries collect, so that one sync serves them all.
    pub(crate) fn pause_until(&self) -> Option<Instant> {
        self.last.filter(|_| self.is_required).map(|last| last + PAUSE)
    }

    /// Returns when a sync is due even without further entries.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        let since = self.dirty_since?;
        // The first records after a long pause do not wait.
        Some(self.last.unwrap_or(since) + UNSYNCED)
    }

    /// Returns whether the next entries are to be synced, which begins now in that case.
    pub(crate) fn begins(&mut self, now: Instant) -> bool {
        let begins = self.is_required || self.due_at().is_some_and(|due| now >= due);
        if begins {
            self.last = Some(now);
        }
        begins
    }

    /// Notes whether there are records that are not on disk.
    pub(crate) fn note_dirty(&mut self, is_dirty: bool, now: Instant) {
        self.dirty_since = is_dirty.then(|| self.dirty_since.unwrap_or(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_syncs_follow_each_other_after_a_pause() {
        let (mut schedule, start) = (SyncSchedule::new(), Instant::now());
        schedule.require();
        assert_eq!(schedule.pause_until(), None, "the first one does not wait");
        assert!(schedule.begins(start));
        schedule.note_dirty(false, start);
        assert_eq!(schedule.pause_until(), Some(start + PAUSE));
        assert_eq!(schedule.due_at(), None);
        assert!(schedule.begins(start + PAUSE));
        assert_eq!(schedule.pause_until(), Some(start + 2 * PAUSE));
    }

    #[test]
    fn records_that_were_delivered_first_are_on_disk_within_a_second() {
        let (mut schedule, start) = (SyncSchedule::new(), Instant::now());
        let after = |millis| start + Duration::from_millis(millis);
        assert!(!schedule.begins(start) && schedule.due_at().is_none());
        schedule.note_dirty(true, start);
        for millis in [100, 500, 900] {
            assert!(!schedule.begins(after(millis)));
            schedule.note_dirty(true, after(millis));
            assert_eq!(schedule.due_at(), Some(after(1000)), "more records put nothing off");
        }
        assert!(schedule.begins(after(1000)));
        schedule.note_dirty(false, after(1001));
        assert_eq!((schedule.due_at(), schedule.pause_until()), (None, None));
        schedule.note_dirty(true, after(5000));
        assert!(schedule.begins(after(5000)), "the last sync is long ago");
    }
}
