//! The room for processes on a machine, and in a job for several of them.

use fiber_backends::Room;
use fiber_core::Meta;

/// Memory for a host itself, in bytes, where the memory of its job is limited.
const HOST_MEMORY: u64 = 64 << 20;

/// Returns the cores for which a process counts. One without a request counts as one core.
fn cores(meta: &Meta) -> f64 {
    meta.cpu.unwrap_or(1.0)
}

/// What processes take of a machine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Use {
    cpu: f64,
    memory: u64,
    gpu: u32,
}

impl Use {
    pub(super) fn add(&mut self, meta: &Meta) {
        self.cpu += cores(meta);
        self.memory += meta.memory.map_or(0, |size| size.as_u64());
        self.gpu += meta.gpu.unwrap_or(0);
    }

    pub(super) fn subtract(&mut self, meta: &Meta) {
        self.cpu -= cores(meta);
        self.memory -= meta.memory.map_or(0, |size| size.as_u64());
        self.gpu -= meta.gpu.unwrap_or(0);
    }

    /// Returns whether `room` has enough for another process.
    pub(super) fn leaves_room(&self, room: &Room, meta: &Meta) -> bool {
        let memory = meta.memory.map_or(0, |size| size.as_u64());
        // Fractions of cores add up with errors.
        self.cpu + cores(meta) <= room.cpu + 1e-6
            && room.memory.is_none_or(|limit| self.memory.saturating_add(memory) <= limit)
            && self.gpu.saturating_add(meta.gpu.unwrap_or(0)) <= room.gpu
    }

    /// Returns the share of the cores that is free. Of a machine whose room is not known, it is
    /// an estimate that lets processes spread.
    pub(super) fn free_share(&self, room: Option<&Room>) -> f64 {
        match room {
            Some(room) => 1.0 - self.cpu / room.cpu.max(f64::MIN_POSITIVE),
            None => 1.0 / (1.0 + self.cpu),
        }
    }
}

/// Returns what a job requests that is for several processes.
pub(super) fn of_job(meta: &Meta, processes: usize) -> Meta {
    let count = processes as u64;
    let mut sum = Meta::new();
    if let Some(size) = meta.memory {
        sum = sum.memory(size.as_u64().saturating_mul(count).saturating_add(HOST_MEMORY));
    }
    sum.cpu = meta.cpu.map(|cores| cores * processes as f64);
    sum.gpu = meta.gpu.map(|gpus| gpus.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)));
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { cpu: 4.0, memory: Some(1000), gpu: 1 };

    #[test]
    fn a_machine_is_full_when_one_resource_is() {
        let two = [Meta::new().cpu(1.5).memory(300), Meta::new()];
        let mut used = Use::default();
        two.iter().for_each(|meta| used.add(meta));
        assert!(used.leaves_room(&ROOM, &Meta::new().cpu(1.5)));
        assert!(!used.leaves_room(&ROOM, &Meta::new().cpu(1.6)));
        assert!(!used.leaves_room(&ROOM, &Meta::new().memory(701)));
        assert!(used.leaves_room(&ROOM, &Meta::new().gpu(1)));
        assert!(!used.leaves_room(&ROOM, &Meta::new().gpu(2)));
        let share = used.free_share(Some(&ROOM));
        assert!(Use::default().free_share(Some(&ROOM)) > share);
        used.subtract(&two[0]);
        assert!(used.free_share(Some(&ROOM)) > share);
        assert!(used.leaves_room(&ROOM, &Meta::new().memory(1000)));
    }

    #[test]
    fn a_job_requests_the_sum() {
        let job = of_job(&Meta::new().cpu(0.5).memory(1 << 20).gpu(2), 8);
        assert_eq!((job.cpu, job.gpu), (Some(4.0), Some(16)));
        assert_eq!(job.memory, Meta::new().memory((8 << 20) + HOST_MEMORY).memory);
        assert_eq!(of_job(&Meta::new(), 8), Meta::new());
    }
}
