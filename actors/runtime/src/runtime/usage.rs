//! The statistics of this process: CPU time, memory, traffic.

use std::time::{Duration, SystemTime};

use fiber_core::stats::ProcessUsage;
use fiber_core::value_memory;
use fiber_transport::traffic;

/// Returns the statistics of this process. It takes about 10 µs.
pub(super) fn own_usage() -> ProcessUsage {
    let mut usage = ProcessUsage::new(SystemTime::now());
    // A simulated world must not depend on the process that it is in.
    #[cfg(feature = "simulation")]
    if fiber_core::simulation::world().is_some() {
        return usage;
    }
    usage.cpu = cpu_time();
    (usage.memory, usage.threads) = memory_and_threads().unwrap_or_default();
    (usage.sent, usage.received) = traffic();
    let values = value_memory();
    (usage.stored, usage.shared) = (values.stored, values.shared);
    (usage.spilled, usage.value_limit) = (values.spilled, values.limit);
    (usage.elsewhere, usage.outputs) = (values.elsewhere, values.outputs);
    usage
}

/// Returns the CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the resident bytes and the number of threads. `None` without `/proc`.
fn memory_and_threads() -> Option<(u64, u32)> {
    let status = fiber_core::read_lossy("/proc/self/stat").ok()?;
    // The second field, the name, may have spaces.
    let (_, after_name) = status.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // Fields 20 (threads) and 24 (resident pages), counted from 1; the third is the first here.
    let (threads, pages) = (fields.get(17)?.parse().ok()?, fields.get(21)?.parse::<u64>().ok()?);
    Some((pages * rustix::param::page_size() as u64, threads))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_its_memory_and_threads() {
        let usage = own_usage();
        assert!(usage.memory > 100_000 && usage.threads >= 2, "{usage:?}");
        assert!(usage.cpu > Duration::ZERO);
    }
}
