//! Who made a container or pod. It is written on each, so that what belongs to nobody any more can be told.

use std::fs;
use std::future::Future;
use std::os::unix::fs::MetadataExt;

use fiber_core::random;

/// A process that makes containers or pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Whatever runs in a container.
    Container(String),
    /// Whatever runs in a pod.
    #[cfg(feature = "kubernetes")]
    Pod { name: String, uid: String },
    /// A process of a host that runs since a certain boot.
    Process { boot: String, namespace: u64, pid: u32, started: u64 },
}

impl Owner {
    pub(crate) fn this_process() -> Owner {
        let pid = std::process::id();
        Owner::Process { boot: boot(), namespace: namespace(), pid, started: started(pid).unwrap_or(0) }
    }

    pub(crate) fn to_text(&self) -> String {
        match self {
            Owner::Container(id) => format!("container {id}"),
            #[cfg(feature = "kubernetes")]
            Owner::Pod { name, uid } => format!("pod {name} {uid}"),
            Owner::Process { boot, namespace, pid, started } => format!("process {pid} {started} {namespace} {boot}"),
        }
    }

    pub(crate) fn from_text(text: &str) -> Option<Owner> {
        let mut words = text.split(' ');
        let owner = match words.next()? {
            "container" => Owner::Container(words.next()?.to_string()),
            #[cfg(feature = "kubernetes")]
            "pod" => Owner::Pod { name: words.next()?.to_string(), uid: words.next()?.to_string() },
            "process" => Owner::Process {
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
        let Owner::Process { pid, .. } = self else { return (self.to_text(), "program".into()) };
        let path = fs::read_link(format!("/proc/{pid}/exe")).ok().filter(|_| !self.is_a_dead_process());
        let program = path.as_deref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy());
        let role = program.map_or("program".to_string(), |name| name.trim_end_matches(" (deleted)").to_string());
        (format!("pid {pid}"), role)
    }

    /// Whether it is certain that it was a process which is no more. Of containers and pods their engine knows.
    pub(crate) fn is_a_dead_process(&self) -> bool {
        match self {
            Owner::Process { boot: its_boot, namespace: its_namespace, pid, started: its_start } => {
                *its_boot == boot() && *its_namespace == namespace() && started(*pid) != Some(*its_start)
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
pub(crate) fn sweep_beside(sweep: impl Future<Output = Result<Vec<String>, String>> + 'static) {
    tokio::task::spawn_local(async move {
        match sweep.await {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => tracing::info!("removed what dead sessions had left: {}", removed.join(", ")),
            Err(error) => tracing::warn!("what dead sessions may have left stays for now: {error}"),
        }
    });
}

/// When this host was booted, in a name that no other boot of any host has.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_string()
}

/// Where this process's pids mean something.
fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// When a process was started, in ticks since the boot. `None`, if there is none, or it only waits to be buried.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
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
        let owners = [Owner::this_process(), Owner::Container("abc".into())];
        for owner in owners {
            assert_eq!(Owner::from_text(&owner.to_text()), Some(owner));
        }
        assert_eq!(Owner::from_text("somebody else"), None);
    }

    #[test]
    fn this_process_lives_and_no_other_can_be_taken_for_it() {
        let start = started(std::process::id());
        assert!(start.is_some());
        assert_eq!(start, started(std::process::id()));
        assert_ne!(start, started(1));
        assert_eq!(started(u32::MAX), None);
    }
}
