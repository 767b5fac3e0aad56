//! The processes of one host, with what they take of its machine.
//!
//! A process that is killed keeps its place until its end is certain. Until then, other processes
//! may wait for that place: they are *queued*, and count in what will be taken.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use fiber_backends::Room;
use fiber_core::Meta;

use super::HostedJob;
use super::room::Use;
use super::wire::Number;

/// See the module's documentation. Each operation takes the same time, however many there are.
#[derive(Debug, Default)]
pub(super) struct PlacedProcesses {
    by_number: HashMap<Number, Arc<HostedJob>>,
    taken: Use,
    /// Processes that are killed, and have not ended.
    ending: HashSet<Number>,
    /// Resources that `ending` take.
    leaving: Use,
    /// Processes that wait for the place of others, first come first served.
    queued: VecDeque<Arc<HostedJob>>,
    /// Resources that `queued` will take.
    claimed: Use,
}

impl PlacedProcesses {
    pub(super) fn insert(&mut self, job: Arc<HostedJob>) {
        self.taken.add(job.meta());
        self.by_number.insert(job.number, job);
    }

    /// Lets a process wait until others have ended.
    pub(super) fn queue(&mut self, job: Arc<HostedJob>) {
        self.claimed.add(job.meta());
        self.queued.push_back(job);
    }

    /// Notes that a process is killed: its place will be free.
    pub(super) fn is_killed(&mut self, number: Number) {
        if let Some(job) = self.by_number.get(&number)
            && self.ending.insert(number)
        {
            self.leaving.add(job.meta());
        }
    }

    /// Removes a process that has ended, or that is queued no more.
    pub(super) fn remove(&mut self, number: Number) -> Option<Arc<HostedJob>> {
        if let Some(place) = self.queued.iter().position(|job| job.number == number) {
            let job = self.queued.remove(place)?;
            self.claimed.subtract(job.meta());
            return Some(job);
        }
        let job = self.by_number.remove(&number)?;
        self.taken.subtract(job.meta());
        if self.ending.remove(&number) {
            self.leaving.subtract(job.meta());
        }
        // Fractions of cores add up with errors.
        if self.by_number.is_empty() {
            self.taken = Use::default();
        }
        if self.ending.is_empty() {
            self.leaving = Use::default();
        }
        Some(job)
    }

    /// Takes the first queued process if there is room for it.
    pub(super) fn next_queued(&mut self, room: Option<&Room>) -> Option<Arc<HostedJob>> {
        let first = self.queued.front()?;
        if room.is_some_and(|room| !self.taken.leaves_room(room, first.meta())) {
            return None;
        }
        let first = self.queued.pop_front()?;
        self.claimed.subtract(first.meta());
        Some(first)
    }

    /// Takes all queued processes, if there are any. The ends that they waited for count as ends to
    /// come no more.
    pub(super) fn take_queued(&mut self) -> Vec<Arc<HostedJob>> {
        if self.queued.is_empty() {
            return Vec::new();
        }
        (self.claimed, self.leaving) = (Use::default(), Use::default());
        self.ending.clear();
        self.queued.drain(..).collect()
    }

    pub(super) fn is_queued(&self, number: Number) -> bool {
        self.queued.iter().any(|job| job.number == number)
    }

    pub(super) fn get(&self, number: Number) -> Option<&Arc<HostedJob>> {
        self.by_number.get(&number)
    }

    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_number.is_empty() && self.queued.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<HostedJob>> {
        self.by_number.values()
    }

    /// Returns how many there are or will be for which `counts` says so, without those that are
    /// killed.
    pub(super) fn count(&self, counts: impl Fn(&HostedJob) -> bool) -> usize {
        let stay = self.by_number.values().filter(|job| !self.ending.contains(&job.number));
        stay.chain(&self.queued).filter(|job| counts(job)).count()
    }

    /// Returns what they take together, also those that are killed.
    pub(super) fn taken(&self) -> &Use {
        &self.taken
    }

    /// Returns what they will take when those have ended that are killed.
    pub(super) fn will_take(&self) -> Use {
        self.taken.minus(&self.leaving).plus(&self.claimed)
    }

    /// Returns whether a process can start at once.
    pub(super) fn leave_room(&self, room: Option<&Room>, meta: &Meta) -> bool {
        self.queued.is_empty() && room.is_none_or(|room| self.taken.leaves_room(room, meta))
    }

    /// Takes all processes that have a place, in the order of their creation.
    pub(super) fn take_all(&mut self) -> Vec<Arc<HostedJob>> {
        (self.taken, self.leaving) = (Use::default(), Use::default());
        self.ending.clear();
        let mut all: Vec<_> = self.by_number.drain().map(|(_, job)| job).collect();
        all.sort_by_key(|job| job.number);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::hosted_job::tests::job;
    use super::*;

    #[test]
    fn they_take_what_those_take_that_are_there() {
        let room = Room { cpu: 1.0, memory: Some(100), gpu: 0 };
        let small = Meta::new().cpu(0.1).memory(10);
        let mut placed = PlacedProcesses::default();
        for number in 0..10 {
            assert!(placed.taken().leaves_room(&room, &small));
            placed.insert(job(number, small));
        }
        assert!(!placed.taken().leaves_room(&room, &small));
        assert!(placed.remove(3).is_some() && placed.remove(3).is_none());
        assert!(placed.taken().leaves_room(&room, &small));
        assert_eq!((placed.len(), placed.get(3).is_some()), (9, false));
        let numbers: Vec<_> = placed.take_all().iter().map(|job| job.number).collect();
        assert_eq!(numbers, [0, 1, 2, 4, 5, 6, 7, 8, 9]);
        assert!(placed.is_empty() && placed.taken().leaves_room(&room, &Meta::new().memory(100)));
    }

    #[test]
    fn a_killed_process_keeps_its_place_and_counts_no_more_in_what_will_be_taken() {
        let room = Room { cpu: 1.0, memory: None, gpu: 0 };
        let whole = Meta::new().cpu(1.0);
        let mut placed = PlacedProcesses::default();
        placed.insert(job(1, whole));
        assert!(!placed.will_take().leaves_room(&room, &whole));
        placed.is_killed(1);
        placed.is_killed(1);
        assert!(placed.will_take().leaves_room(&room, &whole));
        assert!(!placed.leave_room(Some(&room), &whole));
        placed.queue(job(2, whole));
        assert!(!placed.will_take().leaves_room(&room, &whole));
        assert!(placed.next_queued(Some(&room)).is_none());
        assert!(placed.remove(1).is_some());
        // The place is for the one that waits.
        assert!(!placed.leave_room(Some(&room), &whole));
        assert_eq!(placed.next_queued(Some(&room)).map(|job| job.number), Some(2));
        assert!(placed.is_empty() && placed.will_take().leaves_room(&room, &whole));
    }

    #[test]
    fn an_end_that_does_not_come_counts_no_more() {
        let room = Room { cpu: 1.0, memory: None, gpu: 0 };
        let whole = Meta::new().cpu(1.0);
        let mut placed = PlacedProcesses::default();
        placed.insert(job(1, whole));
        placed.is_killed(1);
        placed.queue(job(2, whole));
        assert_eq!(placed.take_queued().len(), 1);
        assert!(!placed.will_take().leaves_room(&room, &whole));
        assert!(placed.remove(1).is_some());
        assert!(placed.will_take().leaves_room(&room, &whole));
    }
}
