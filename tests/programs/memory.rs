//! What the kernel kills for want of memory is told as such, and treated as any other death.

use std::path::{Path, PathBuf};

use crate::program::Setup;

crate::tests![a_worker_killed_for_memory_is_told_as_such_and_its_task_runs_again];

const LIMIT: &str = "33554432";

/// A control group that may use little memory. It goes when this is dropped.
struct Group(PathBuf);

impl Group {
    /// `None` where this user can't make one.
    fn new(name: &str) -> Option<Group> {
        let places =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        places.iter().find_map(|(place, limit)| {
            let path = Path::new(place).join(format!("fiber-{name}-{}", std::process::id()));
            std::fs::create_dir(&path).ok()?;
            let group = Group(path);
            // Version 1 has this; what may be swapped out need not be killed.
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

/// Whether the tests can be run here: they need a memory controller that this user may change.
pub(crate) fn can_be_limited() -> bool {
    Group::new("trial").is_some()
}

fn a_worker_killed_for_memory_is_told_as_such_and_its_task_runs_again() {
    let group = Group::new("test").expect("that was tried before");
    Setup::new("out of memory").env("GROUP", group.0.join("cgroup.procs")).run().code(0).says(&[
        "again: 7",
        "given up: task 0",
        "2 of its workers died while they ran it; the last one was killed by the OOM killer: out of memory",
        "process: process `process-1` was killed by the OOM killer: out of memory",
        "the pool goes on: 9",
    ]);
}
