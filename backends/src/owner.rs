//! The process that created a container or pod. A label or annotation of each names it, so that
//! orphans can be found.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::MetadataExt;

use fiber_core::{random, read_lossy, shortage};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::BackendError;
#[cfg(feature = "docker")]
use crate::cluster::session::{Location, ProcessState, SessionProcess};
#[cfg(feature = "docker")]
use crate::{JobPlace, program_name};

/// A process that creates containers or pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobOwner {
    /// The process in the container of this id, since this start of the container. An engine may
    /// start the same container again.
    Container { id: String, started: Option<String> },
    /// The process in this pod.
    #[cfg(feature = "kubernetes")]
    Pod { name: String, uid: String },
    /// A process of a host, during one boot of it.
    Process { boot: String, namespace: u64, user: u32, pid: u32, started: u64 },
}

impl JobOwner {
    /// Returns this process of this host.
    ///
    /// # Errors
    /// `/proc` can't be read. Without it, the next sweep would remove this process's jobs as
    /// orphans.
    pub(crate) fn this_process() -> Result<JobOwner, BackendError> {
        let pid = std::process::id();
        let known = || {
            Ok(JobOwner::Process {
                boot: boot()?,
                namespace: namespace()?,
                user: geteuid().as_raw(),
                pid,
                started: started(pid)?.unwrap_or(0),
            })
        };
        known().map_err(|error: io::Error| {
            let problem = shortage::explain(&error);
            let message = format!("/proc does not say when this process was started: {problem}");
            BackendError::of_system(&error, message)
        })
    }

    pub(crate) fn to_text(&self) -> String {
        match self {
            JobOwner::Container { id, started: None } => format!("container {id}"),
            JobOwner::Container { id, started: Some(started) } => {
                format!("container {id} {started}")
            }
            #[cfg(feature = "kubernetes")]
            JobOwner::Pod { name, uid } => format!("pod {name} {uid}"),
            JobOwner::Process { boot, namespace, user, pid, started } => {
                format!("process {pid} {started} {namespace} {boot} {user}")
            }
        }
    }

    pub(crate) fn from_text(text: &str) -> Option<JobOwner> {
        let mut words = text.split(' ');
        let owner = match words.next()? {
            "container" => JobOwner::Container {
                id: words.next()?.to_string(),
                started: words.next().map(String::from),
            },
            #[cfg(feature = "kubernetes")]
            "pod" => {
                JobOwner::Pod { name: words.next()?.to_string(), uid: words.next()?.to_string() }
            }
            "process" => JobOwner::Process {
                pid: words.next()?.parse().ok()?,
                started: words.next()?.parse().ok()?,
                namespace: words.next()?.parse().ok()?,
                boot: words.next()?.to_string(),
                user: words.next()?.parse().ok()?,
            },
            _ => return None,
        };
        Some(owner)
    }

    /// Returns the head of a session that is a process of a host, as far as it is known here.
    #[cfg(feature = "docker")]
    pub(crate) fn head_on_host(&self) -> SessionProcess {
        let is_dead = self.is_a_dead_process();
        let (name, path) = match self {
            JobOwner::Process { pid, .. } => {
                (format!("pid {pid}"), fs::read_link(format!("/proc/{pid}/exe")).ok())
            }
            other => (other.to_text(), None),
        };
        let path = path.filter(|_| !is_dead);
        SessionProcess {
            program: Some(path.map_or("program".into(), |path| program_name(&path))),
            location: Location::Host,
            has_output: false,
            state: if is_dead { ProcessState::Gone } else { ProcessState::Running },
            ..SessionProcess::new(name.clone(), JobPlace::Other { words: name })
        }
    }

    /// Returns whether this was a process of this host that is certainly dead. For containers and
    /// pods, ask their engine.
    ///
    /// Only root can tell for the processes of other users: a `/proc` that is mounted with
    /// `hidepid` does not show them.
    pub(crate) fn is_a_dead_process(&self) -> bool {
        match self {
            JobOwner::Process {
                boot: its_boot,
                namespace: its_namespace,
                user: its_user,
                pid,
                started: its_start,
            } => {
                may_judge(*its_user)
                    && boot().is_ok_and(|boot| boot == *its_boot)
                    && namespace().is_ok_and(|namespace| namespace == *its_namespace)
                    && started(*pid).is_ok_and(|start| start != Some(*its_start))
            }
            _ => false,
        }
    }
}

/// Returns a random id for the jobs of one process.
pub(crate) fn new_session() -> String {
    random::<6>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Removes leftovers of dead sessions in the background, and logs the result.
pub(crate) fn spawn_sweep(
    sweep: impl Future<Output = Result<Vec<String>, BackendError>> + 'static,
) {
    fiber_core::spawn_local(async move {
        match sweep.await {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => {
                tracing::info!("removed leftovers of dead sessions: {}", removed.join(", "))
            }
            Err(error) => tracing::warn!("leftovers of dead sessions stay for now: {error}"),
        }
    });
}

/// Returns whether this process sees all processes of a user: its own ones, or as root of the host,
/// which the root of a user namespace is not.
fn may_judge(user: u32) -> bool {
    let own = geteuid();
    let all = ["0", "0", "4294967295"];
    match own.is_root() {
        true => read_lossy("/proc/self/uid_map").is_ok_and(|map| map.split_whitespace().eq(all)),
        false => own.as_raw() == user,
    }
}

/// Returns the id of this host's current boot, which no other boot of any host has.
fn boot() -> io::Result<String> {
    Ok(read_lossy("/proc/sys/kernel/random/boot_id")?.trim().to_string())
}

/// Returns the inode of this process's pid namespace.
fn namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// Returns the start time of a process in ticks since boot, or `None` if it does not exist or is a
/// zombie.
///
/// # Errors
/// `/proc` can't be read, which does not prove that there is no such process.
fn started(pid: u32) -> io::Result<Option<u64>> {
    let stat = match read_lossy(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        // It ended during the read.
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
    // The process name, in brackets, may contain anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_owner_survives_its_label() {
        let container = |started: Option<&str>| JobOwner::Container {
            id: "abc".into(),
            started: started.map(String::from),
        };
        let started = container(Some("2026-11-22T12:00:00.5Z"));
        for owner in [JobOwner::this_process().unwrap(), container(None), started] {
            assert_eq!(JobOwner::from_text(&owner.to_text()), Some(owner));
        }
        assert_eq!(JobOwner::from_text("unknown owner"), None);
    }

    #[test]
    fn a_process_is_identified_by_its_start_time() {
        let started = |pid| started(pid).unwrap();
        let start = started(std::process::id());
        assert!(start.is_some());
        assert_eq!(start, started(std::process::id()));
        assert_ne!(start, started(1));
        assert_eq!(started(u32::MAX), None);
    }

    #[test]
    fn the_end_of_a_process_is_known_to_its_user() {
        let mut owner = JobOwner::this_process().unwrap();
        assert!(!owner.is_a_dead_process());
        let JobOwner::Process { user, started, .. } = &mut owner else { panic!("a process") };
        *started += 1;
        let own = *user;
        assert!(owner.is_a_dead_process());
        let JobOwner::Process { user, .. } = &mut owner else { panic!("a process") };
        *user += 1;
        assert_eq!(owner.is_a_dead_process(), own == 0);
    }

    /// Another user, to whom `/proc` hides the process, runs this test once more.
    #[test]
    fn a_process_that_proc_hides_is_not_taken_for_dead() {
        const HIDDEN: &str = "TEST_HIDDEN_OWNER";
        if let Ok(hidden) = std::env::var(HIDDEN) {
            let owner = JobOwner::from_text(&hidden).unwrap();
            let JobOwner::Process { pid, .. } = owner else { panic!("a process") };
            // It looks like one that has ended.
            assert_eq!(started(pid).unwrap(), None);
            assert!(!owner.is_a_dead_process());
            return;
        }
        if !geteuid().is_root() {
            return println!("skipped: a test as another user takes root");
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let program = folder.path().join("program");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let name = "owner::tests::a_process_that_proc_hides_is_not_taken_for_dead";
        let script = "mount -t proc -o hidepid=2 proc /proc || exit 77
            exec setpriv --reuid 54321 --regid 54321 --clear-groups \"$@\"";
        let ended = std::process::Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"])
            .arg(&program)
            .args(["--exact", name])
            .env(HIDDEN, JobOwner::this_process().unwrap().to_text())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&ended.stdout);
        if ended.status.code() == Some(77) {
            return println!("skipped: this root can't mount a `/proc` that hides processes");
        }
        assert!(ended.status.success() && printed.contains("1 passed"), "{ended:?}");
    }

    #[test]
    fn the_name_of_a_process_may_be_any_bytes() {
        // The kernel cuts a name after 15 bytes, also within a letter.
        let program = tempfile::tempdir().unwrap();
        let program = program.path().join("fourteen-bytesü");
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let start = started(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(start.is_some());
    }
}
