//! Processes that the kernel kills for want of memory.

use std::fs;

/// How many it had killed at some time, on this machine and in its control groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OomKills(u64);

impl OomKills {
    pub(crate) fn so_far() -> OomKills {
        let statistics = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let count = statistics.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok());
        OomKills(count.unwrap_or(0))
    }

    /// Whether there were others since.
    pub(crate) fn have_risen(self) -> bool {
        OomKills::so_far().0 > self.0
    }
}
