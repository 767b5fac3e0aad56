//! Kills by the OOM killer are reported as such, and handled as any other death.

use std::path::{Path, PathBuf};

use fiber_test_support::program::Setup;
use fiber_test_support::trial;

const LIMIT: &str = "33554432";

/// A control group with a memory limit. Dropping it removes the group.
struct Group(PathBuf);

impl Group {
    /// Makes a group, or returns `None` if this user can't.
    fn new(name: &str) -> Option<Group> {
        let places =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        places.iter().find_map(|(place, limit)| {
            let path = Path::new(place).join(format!("fiber-{name}-{}", std::process::id()));
            std::fs::create_dir(&path).ok()?;
            let group = Group(path);
            // Without swap, the kernel has to kill. Version 1 of cgroups has only the first file.
            let _ = std::fs::write(group.0.join("memory.swappiness"), "0");
            let _ = std::fs::write(group.0.join("memory.swap.max"), "0");
            std::fs::write(group.0.join(limit), LIMIT).ok().map(|()| group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Returns whether the tests can run: they need a memory controller that this user may change.
pub(crate) fn can_be_limited() -> bool {
    Group::new("trial").is_some()
}

#[trial]
fn the_oom_killer_is_named_and_the_task_runs_again() {
    let group = Group::new("test").expect("`can_be_limited` has checked it");
    Setup::new("out of memory").env("GROUP", group.0.join("cgroup.procs")).run().code(0).says(&[
        "again: 7",
        "given up: task 0",
        "2 of its workers died while they ran it; the last one was killed by the OOM killer: out \
         of memory",
        "process: process `process-1` was killed by the OOM killer: out of memory",
        "the pool goes on: 9",
    ]);
}
