//! Who made a container or pod. It is written on each, so that what belongs to nobody any more can
//! be told.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::MetadataExt;

use fiber_core::{random, shortage};
use rustix::io::Errno;

/// A process that makes containers or pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobOwner {
    /// Whatever runs in a container.
    Container(String),
    /// Whatever runs in a pod.
    #[cfg(feature = "kubernetes")]
    Pod { name: String, uid: String },
    /// A process of a host that runs since a certain boot.
    Process { boot: String, namespace: u64, pid: u32, started: u64 },
}

impl JobOwner {
    /// # Errors
    /// Why the system does not say who this process is: what it made would be taken for something
    /// that is left over.
    pub(crate) fn this_process() -> Result<JobOwner, String> {
        let pid = std::process::id();
        let known = || {
            Ok(JobOwner::Process {
                boot: boot()?,
                namespace: namespace()?,
                pid,
                started: started(pid)?.unwrap_or(0),
            })
        };
        known().map_err(|error: io::Error| {
            format!(
                "/proc does not say when this process was started: {}",
                shortage::explain(&error)
            )
        })
    }

    pub(crate) fn to_text(&self) -> String {
        match self {
            JobOwner::Container(id) => format!("container {id}"),
            #[cfg(feature = "kubernetes")]
            JobOwner::Pod { name, uid } => format!("pod {name} {uid}"),
            JobOwner::Process { boot, namespace, pid, started } => {
                format!("process {pid} {started} {namespace} {boot}")
            }
        }
    }

    pub(crate) fn from_text(text: &str) -> Option<JobOwner> {
        let mut words = text.split(' ');
        let owner = match words.next()? {
            "container" => JobOwner::Container(words.next()?.to_string()),
            #[cfg(feature = "kubernetes")]
            "pod" => {
                JobOwner::Pod { name: words.next()?.to_string(), uid: words.next()?.to_string() }
            }
            "process" => JobOwner::Process {
                pid: words.next()?.parse().ok()?,
                started: words.next()?.parse().ok()?,
                namespace: words.next()?.parse().ok()?,
                boot: words.next()?.to_string(),
            },
            _ => return None,
        };
        Some(owner)
    }

    /// What a process of a host is called, and which program it runs, as far as that is known here.
    pub(crate) fn on_host(&self) -> (String, String) {
        let JobOwner::Process { pid, .. } = self else { return (self.to_text(), "program".into()) };
        let path =
            fs::read_link(format!("/proc/{pid}/exe")).ok().filter(|_| !self.is_a_dead_process());
        let program =
            path.as_deref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy());
        let role = program
            .map_or("program".to_string(), |name| name.trim_end_matches(" (deleted)").to_string());
        (format!("pid {pid}"), role)
    }

    /// Whether it is certain that it was a process which is no more. Of containers and pods their
    /// engine knows.
    pub(crate) fn is_a_dead_process(&self) -> bool {
        match self {
            JobOwner::Process {
                boot: its_boot,
                namespace: its_namespace,
                pid,
                started: its_start,
            } => {
                boot().is_ok_and(|boot| boot == *its_boot)
                    && namespace().is_ok_and(|namespace| namespace == *its_namespace)
                    && started(*pid).is_ok_and(|start| start != Some(*its_start))
            }
            _ => false,
        }
    }
}

/// What tells the containers or pods of a process from all others.
pub(crate) fn new_session() -> String {
    random::<6>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Removes what dead sessions left, while others go on, and logs what came of it.
pub(crate) fn spawn_sweep(sweep: impl Future<Output = Result<Vec<String>, String>> + 'static) {
    tokio::task::spawn_local(async move {
        match sweep.await {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => {
                tracing::info!("removed what dead sessions had left: {}", removed.join(", "))
            }
            Err(error) => tracing::warn!("what dead sessions may have left stays for now: {error}"),
        }
    });
}

/// When this host was booted, in a name that no other boot of any host has.
fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_string())
}

/// Where this process's pids mean something.
fn namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// When a process was started, in ticks since the boot. `None`, if there is none, or it only waits
/// to be buried.
///
/// # Errors
/// Why the system does not say, which is no proof that there is none.
fn started(pid: u32) -> io::Result<Option<u64>> {
    let stat = match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        // It ends while it is read.
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || Errno::from_io_error(&error) == Some(Errno::SRCH) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    Ok(start_in(&stat))
}

fn start_in(stat: &str) -> Option<u64> {
    // The name, in brackets, may contain anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_survives_its_label() {
        let owners = [JobOwner::this_process().unwrap(), JobOwner::Container("abc".into())];
        for owner in owners {
            assert_eq!(JobOwner::from_text(&owner.to_text()), Some(owner));
        }
        assert_eq!(JobOwner::from_text("somebody else"), None);
    }

    #[test]
    fn this_process_lives_and_no_other_can_be_taken_for_it() {
        let started = |pid| started(pid).unwrap();
        let start = started(std::process::id());
        assert!(start.is_some());
        assert_eq!(start, started(std::process::id()));
        assert_ne!(start, started(1));
        assert_eq!(started(u32::MAX), None);
    }
}
