//! The processes of sessions whose heads do not answer, as `/proc` has them.

use std::io;
use std::path::Path;

use anyhow::bail;
use fiber_backends::cluster::SessionHead;
use fiber_core::{process_state, read_lossy};

use super::InspectError;
use crate::names::Entry;

/// A process of a session whose head does not answer.
#[derive(Clone, Debug)]
pub(crate) struct Unreachable {
    /// Its pid, if it is a process of this host.
    pub(crate) pid: Option<u32>,
    /// Why the head does not answer.
    pub(crate) problem: InspectError,
}

impl Unreachable {
    /// Returns what the kernel says about its threads, as text. With `all`, those of idle runtime
    /// threads, too.
    pub(crate) fn stack(&self, all: bool) -> anyhow::Result<String> {
        let problem = &self.problem;
        let (Some(pid), InspectError::Silent(_) | InspectError::Stopped(_)) = (self.pid, problem)
        else {
            bail!("{problem}")
        };
        if process_state(pid).is_none_or(|(state, _)| state == 'Z') {
            bail!("pid {pid} has ended");
        }
        let stack = fiber_stacks::from_outside(pid, &problem.to_string())?;
        Ok(if all { format!("{stack:#}") } else { stack.to_string() })
    }
}

/// Returns the names of a head that does not answer, and of the processes below it on this host.
pub(super) fn entries(head: &SessionHead, problem: &InspectError) -> Vec<Entry<Unreachable>> {
    let mut sessions = vec![head.name.clone()];
    let meant = |pid| Unreachable { pid, problem: problem.clone() };
    let mut below = Vec::new();
    if let Some(pid) = head.pid {
        sessions.insert(0, pid.to_string());
        sessions.extend(program(pid));
        add_below(&parents().unwrap_or_default(), pid, "", &mut below);
    }
    let own = Entry::session(&sessions, head.name.clone(), meant(head.pid));
    let below = below.into_iter().map(|(pid, path)| {
        let job = vec![pid.to_string(), format!("pid {pid}")];
        Entry::process(&sessions, &path, job, meant(Some(pid)))
    });
    std::iter::once(own).chain(below).collect()
}

/// Adds the processes that fiber has started below a process, with their paths. `all` is of
/// [`parents`].
fn add_below(all: &[(u32, u32)], parent: u32, path: &str, found: &mut Vec<(u32, String)>) {
    let Some(program) = program(parent) else { return };
    for (pid, _) in all.iter().filter(|(_, above)| *above == parent) {
        // The local backend names it so.
        let title = title(*pid).unwrap_or_default();
        let name = title.strip_prefix(&program).and_then(|title| title.strip_prefix(": "));
        let Some(name) = name else { continue };
        let own = format!("{path}{name}");
        // What runs in a host has its path from the host's parent.
        let is_host = own.rsplit('/').next().is_some_and(|name| name.starts_with("host-"));
        let below = if is_host { path.into() } else { format!("{own}/") };
        found.push((*pid, own));
        add_below(all, *pid, &below, found);
    }
}

/// Returns the pids of all processes, each with that of its parent.
pub(crate) fn parents() -> io::Result<Vec<(u32, u32)>> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        // It may have ended.
        parents.extend(pid.and_then(|pid| Some((pid, process_state(pid)?.1))));
    }
    Ok(parents)
}

/// Returns the first word of a process's command line.
fn title(pid: u32) -> Option<String> {
    let words = read_lossy(format!("/proc/{pid}/cmdline")).ok()?;
    words.split('\0').next().map(String::from)
}

/// Returns the file name of its program.
pub(crate) fn program(pid: u32) -> Option<String> {
    let title = title(pid)?;
    Some(Path::new(&title).file_name()?.to_str()?.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn the_name_of_a_program_does_not_hide_its_parent() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("a) S 7 (b");
        symlink("/bin/sleep", &program).unwrap();
        let mut child = Command::new(program).arg0("sleep").arg("60").spawn().unwrap();
        let found = parents().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&(child.id(), std::process::id())), "{found:?}");
    }
}
