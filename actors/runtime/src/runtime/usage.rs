//! The statistics of this process: CPU time, memory, traffic.

use std::time::{Duration, Instant, SystemTime};

use fiber_core::stats::ProcessUsage;
use fiber_core::{start_thread, value_memory};
use fiber_transport::traffic;
use parking_lot::Mutex;

/// Returns the statistics of this process. It takes about 10 µs, and 0.2 to 2 ms now and then.
pub(super) fn own_usage() -> ProcessUsage {
    let mut usage = ProcessUsage::new(SystemTime::now());
    // A simulated world must not depend on the process that it is in.
    #[cfg(feature = "simulation")]
    if fiber_core::simulation::world().is_some() {
        return usage;
    }
    usage.cpu = cpu_time();
    (usage.memory, usage.threads) = memory_and_threads().unwrap_or_default();
    usage.pss = pss();
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

/// The proportional set size, as it was read last.
#[derive(Clone, Copy)]
struct Pss {
    bytes: Option<u64>,
    took: Duration,
    /// When to read it again.
    next: Instant,
}

/// The statistics are those of the process.
static PSS: Mutex<Option<Pss>> = Mutex::new(None);

/// The kernel looks at each page for it, which takes 10 ms for 1 GiB: this many times as long passes
/// between two of them.
const PAUSE: u32 = 100;

/// The longest time for which links may wait for it.
const SHORT: Duration = Duration::from_millis(2);

/// Returns the proportional set size, at most a hundred times as old as it takes to read it.
fn pss() -> Option<u64> {
    let mut pss = PSS.lock();
    if let Some(last) = &mut *pss {
        if Instant::now() < last.next {
            return last.bytes;
        }
        let read = || *PSS.lock() = Some(Pss::read());
        if last.took > SHORT && start_thread("fiber-usage", read).is_ok() {
            last.next += PAUSE * last.took;
            return last.bytes;
        }
    }
    pss.insert(Pss::read()).bytes
}

impl Pss {
    fn read() -> Pss {
        let start = Instant::now();
        let rollup = fiber_core::read_lossy("/proc/self/smaps_rollup").ok();
        let took = start.elapsed();
        let bytes = rollup.and_then(|text| pss_in(&text));
        Pss { bytes, took, next: Instant::now() + PAUSE * took }
    }
}

fn pss_in(rollup: &str) -> Option<u64> {
    let size = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    size.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_its_memory_and_threads() {
        let usage = own_usage();
        assert!(usage.memory > 100_000 && usage.threads >= 2, "{usage:?}");
        assert!(usage.cpu > Duration::ZERO);
        assert!(usage.pss.is_some_and(|pss| pss > 100_000 && pss <= 2 * usage.memory), "{usage:?}");
    }

    #[test]
    fn a_system_may_not_tell_the_pss() {
        assert_eq!(
            pss_in("Rss: 17 kB\nPss:                1760 kB\nPss_Dirty: 1 kB\n"),
            Some(1_802_240)
        );
        for other in ["", "Rss: 17 kB\n", "Pss: much kB\n", "Pss: 17\n"] {
            assert_eq!(pss_in(other), None, "{other}");
        }
    }
}
