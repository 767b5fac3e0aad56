//! The first process of a container inherits the orphans of all others, and has to reap them.

use std::time::Duration;

use rustix::process::{Pid, WaitOptions, getpid, waitpid};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::read_lossy;

/// The pause before a look at all processes. Many of them may end at once.
const PAUSE: Duration = Duration::from_millis(500);

/// Reaps the orphans that this process inherits, if it is the first one of a container. It leaves
/// the children that this process has started: they are in its own process group, or lead one.
pub async fn reap_orphans() {
    if getpid() != Pid::INIT {
        return;
    }
    let Ok(mut ends) = signal(SignalKind::child()) else { return };
    while ends.recv().await.is_some() {
        sleep(PAUSE).await;
        for orphan in orphans() {
            let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
        }
    }
}

fn orphans() -> impl Iterator<Item = Pid> {
    // Not by `getpgrp`: a group from outside of the container has the ID 0 here.
    let own = read_lossy("/proc/self/stat").ok().and_then(|stat| fields(&stat)?[2].parse().ok());
    let names = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    names.filter_map(move |entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = read_lossy(entry.path().join("stat")).ok()?;
        is_orphan(&stat, pid, own?).then_some(Pid::from_raw(pid)?)
    })
}

/// Returns whether a process has ended and is a child of the first process, which did not start it.
fn is_orphan(stat: &str, pid: i32, own_group: i32) -> bool {
    let Some([state, parent, group]) = fields(stat) else { return false };
    let group = group.parse::<i32>();
    state == "Z" && parent == "1" && group.is_ok_and(|group| group != own_group && group != pid)
}

/// Returns a process's state, parent and process group.
fn fields(stat: &str) -> Option<[&str; 3]> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some([fields.next()?, fields.next()?, fields.next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_orphans_are_reaped() {
        for (stat, expected) in [
            ("12 (sh) Z 1 9 9 0", true),
            ("12 (a) Z) Z 1 9 9 0", true),
            ("12 (sh) S 1 9 9 0", false),
            ("12 (sh) Z 7 9 9 0", false),
            ("12 (of this one) Z 1 3 3 0", false),
            ("12 (leads a group) Z 1 12 3 0", false),
            ("12 (sh", false),
        ] {
            assert_eq!(is_orphan(stat, 12, 3), expected, "{stat}");
        }
    }
}
