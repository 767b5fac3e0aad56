//! The processes of one host, with what they take of its machine.

use std::collections::HashMap;
use std::sync::Arc;

use super::HostedJob;
use super::room::Use;
use super::wire::Number;

/// See the module's documentation. Each operation takes the same time, however many there are.
#[derive(Debug, Default)]
pub(super) struct PlacedProcesses {
    by_number: HashMap<Number, Arc<HostedJob>>,
    taken: Use,
}

impl PlacedProcesses {
    pub(super) fn insert(&mut self, job: Arc<HostedJob>) {
        self.taken.add(job.meta());
        self.by_number.insert(job.number, job);
    }

    pub(super) fn remove(&mut self, number: Number) -> Option<Arc<HostedJob>> {
        let job = self.by_number.remove(&number)?;
        self.taken.subtract(job.meta());
        if self.by_number.is_empty() {
            // Fractions of cores add up with errors.
            self.taken = Use::default();
        }
        Some(job)
    }

    pub(super) fn get(&self, number: Number) -> Option<&Arc<HostedJob>> {
        self.by_number.get(&number)
    }

    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<HostedJob>> {
        self.by_number.values()
    }

    /// Returns what they take together.
    pub(super) fn taken(&self) -> &Use {
        &self.taken
    }

    /// Takes all processes, in the order of their creation.
    pub(super) fn take_all(&mut self) -> Vec<Arc<HostedJob>> {
        self.taken = Use::default();
        let mut all: Vec<_> = self.by_number.drain().map(|(_, job)| job).collect();
        all.sort_by_key(|job| job.number);
        all
    }
}

#[cfg(test)]
mod tests {
    use fiber_backends::Room;
    use fiber_core::Meta;

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
}
