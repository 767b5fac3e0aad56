//! Processes that the kernel kills for want of memory.

use std::fs;

/// How many it had killed at some time, on this machine and in its control groups; `None` if it did
/// not say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OomKills(Option<u64>);

impl OomKills {
    pub(crate) fn so_far() -> OomKills {
        let statistics = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        OomKills(statistics.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()))
    }

    /// Whether there were others since, as far as is known.
    pub(crate) fn have_risen(self) -> bool {
        self.0.zip(OomKills::so_far().0).is_some_and(|(then, now)| now > then)
    }
}
