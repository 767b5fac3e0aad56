//! Kills by the kernel's OOM killer.

/// The number of OOM kills so far, on this machine and in its control groups; `None` if the kernel
/// does not report it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OomKills(Option<u64>);

impl OomKills {
    pub(crate) fn so_far() -> OomKills {
        let statistics = fiber_core::read_lossy("/proc/vmstat").unwrap_or_default();
        OomKills(statistics.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()))
    }

    /// Returns whether the OOM killer has killed another process since then. `false` if unknown.
    pub(crate) fn have_risen(self) -> bool {
        self.0.zip(OomKills::so_far().0).is_some_and(|(then, now)| now > then)
    }
}
