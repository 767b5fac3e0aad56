//! The room for processes on a machine, and in a job for several of them.

use bytesize::ByteSize;
use fiber_backends::Room;
use fiber_core::{Meta, gpus_in_words};

/// Memory for a host itself, in bytes, where the memory of its job is limited.
const HOST_MEMORY: u64 = 64 << 20;

/// Returns the cores for which a process counts. One without a request counts as one core.
fn cores(meta: &Meta) -> f64 {
    meta.cpu.unwrap_or(1.0)
}

/// The resources of a machine that processes use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Use {
    cpu: f64,
    memory: u64,
    gpu: u32,
}

impl Use {
    pub(super) fn add(&mut self, meta: &Meta) {
        *self = self.plus(&Use::of(meta));
    }

    pub(super) fn subtract(&mut self, meta: &Meta) {
        *self = self.minus(&Use::of(meta));
    }

    pub(super) fn plus(&self, other: &Use) -> Use {
        Use {
            cpu: self.cpu + other.cpu,
            memory: self.memory.saturating_add(other.memory),
            gpu: self.gpu.saturating_add(other.gpu),
        }
    }

    pub(super) fn minus(&self, other: &Use) -> Use {
        Use {
            cpu: self.cpu - other.cpu,
            memory: self.memory.saturating_sub(other.memory),
            gpu: self.gpu.saturating_sub(other.gpu),
        }
    }

    fn of(meta: &Meta) -> Use {
        Use {
            cpu: cores(meta),
            memory: meta.memory.map_or(0, |size| size.as_u64()),
            gpu: meta.gpu.unwrap_or(0),
        }
    }

    /// Returns whether `room` has enough for another process.
    pub(super) fn leaves_room(&self, room: &Room, meta: &Meta) -> bool {
        let with_it = self.plus(&Use::of(meta));
        // Fractions of cores add up with errors.
        with_it.cpu <= room.cpu + 1e-6
            && room.memory.is_none_or(|limit| with_it.memory <= limit)
            && with_it.gpu <= room.gpu
    }

    /// Returns the share that is free of what a process requests, in millionths: the smallest of
    /// its cores, memory and graphics processors. Of a machine whose room is not known, it is an
    /// estimate that lets processes spread.
    pub(super) fn free_share(&self, room: Option<&Room>, meta: &Meta) -> i64 {
        let free = |taken: f64, of: f64| 1.0 - taken / of.max(f64::MIN_POSITIVE);
        let share = match room {
            None => 1.0 / (1.0 + self.cpu),
            Some(room) => {
                let memory = room.memory.filter(|_| meta.memory.is_some());
                let memory = memory.map(|room| free(self.memory as f64, room as f64));
                let gpu = meta.gpu.filter(|count| *count > 0);
                let gpu = gpu.map(|_| free(self.gpu.into(), room.gpu.into()));
                let cpu = free(self.cpu, room.cpu);
                [memory, gpu].into_iter().flatten().fold(cpu, f64::min)
            }
        };
        // Fractions of cores add up with errors, which must not make equal machines differ.
        (share * 1e6).round() as i64
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

/// Returns whether a process may have the place of one with the request `place`: it requests no
/// more of what that one has limited.
pub(super) fn fits(meta: &Meta, place: &Meta) -> bool {
    fn leaves<T: PartialOrd>(own: Option<T>, of: Option<T>) -> bool {
        own.zip(of).is_none_or(|(own, of)| own <= of)
    }
    leaves(meta.cpu, place.cpu)
        && leaves(meta.memory, place.memory)
        && meta.gpu.unwrap_or(0) <= place.gpu.unwrap_or(0)
}

/// Returns whether all of a room is known.
pub(super) fn is_complete(room: &Room) -> bool {
    room.gpu < u32::MAX
}

/// Returns the room on a machine that has `own`, of which the backend grants a part, or all if it
/// does not know it.
pub(super) fn completed(granted: Option<Room>, own: Room) -> Room {
    match granted {
        None => own,
        Some(room) if is_complete(&room) => room,
        Some(room) => Room { gpu: own.gpu, ..room },
    }
}

/// Returns the most of each resource that machines have, as words.
pub(super) fn largest(rooms: &[Room]) -> String {
    let cores = rooms.iter().map(|room| room.cpu).fold(0.0, f64::max);
    // Without a limit on one of them there is none.
    let memory: Option<Vec<u64>> = rooms.iter().map(|room| room.memory).collect();
    let memory = memory.and_then(|sizes| sizes.into_iter().max());
    let memory = memory.map_or(String::new(), |size| format!(", {} of memory", ByteSize(size)));
    let gpus = rooms.iter().map(|room| room.gpu).max().filter(|count| *count < u32::MAX);
    let gpus = gpus.map_or(String::new(), |count| format!(" and {}", gpus_in_words(count)));
    format!("{cores} cores{memory}{gpus}")
}

/// Returns the requests of a process as words: `a process of 2 cores and 1 GiB`.
pub(super) fn requested(meta: &Meta) -> String {
    let cpu = meta.cpu.map(|cores| format!("{cores} cores"));
    let memory = meta.memory.map(|size| format!("{size} of memory"));
    let gpu = meta.gpu.map(gpus_in_words);
    let parts: Vec<_> = [cpu, memory, gpu].into_iter().flatten().collect();
    match parts.as_slice() {
        [] => "a process without requests".into(),
        parts => format!("a process of {}", parts.join(" and ")),
    }
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
        used.subtract(&two[0]);
        assert!(used.leaves_room(&ROOM, &Meta::new().memory(1000)));
    }

    #[test]
    fn the_free_share_is_that_of_the_scarcest_resource_that_a_process_requests() {
        let mut used = Use::default();
        used.add(&Meta::new().cpu(1.0).memory(600).gpu(1));
        let share = |meta: Meta| used.free_share(Some(&ROOM), &meta);
        assert_eq!(share(Meta::new()), 750_000);
        assert_eq!(share(Meta::new().memory(1)), 400_000);
        assert_eq!(share(Meta::new().memory(1).gpu(1)), 0);
        let thirds = |sum: f64| {
            let mut used = Use::default();
            used.add(&Meta::new().cpu(sum));
            used.free_share(Some(&ROOM), &Meta::new())
        };
        assert_eq!(thirds(0.1 + 0.2), thirds(0.3));
        assert!(
            used.free_share(None, &Meta::new()) < Use::default().free_share(None, &Meta::new())
        );
    }

    #[test]
    fn a_place_is_for_what_requests_no_more() {
        let place = Meta::new().cpu(1.0).memory(100);
        for (meta, expected) in [
            (Meta::new(), true),
            (Meta::new().cpu(1.0).memory(100), true),
            (Meta::new().cpu(1.5), false),
            (Meta::new().memory(101), false),
            (Meta::new().gpu(1), false),
        ] {
            assert_eq!(fits(&meta, &place), expected, "{}", requested(&meta));
        }
        assert!(fits(&place, &Meta::new()), "nothing limits that place");
    }

    #[test]
    fn a_job_requests_the_sum() {
        let job = of_job(&Meta::new().cpu(0.5).memory(1 << 20).gpu(2), 8);
        assert_eq!((job.cpu, job.gpu), (Some(4.0), Some(16)));
        assert_eq!(job.memory, Meta::new().memory((8 << 20) + HOST_MEMORY).memory);
        assert_eq!(of_job(&Meta::new(), 8), Meta::new());
    }
}
