//! The table of backends: a row for each of fiber's own, and those that programs submit.

use std::fmt::Debug;
use std::sync::Arc;

use fiber_core::{Config, ConfigProblem, Error, Result, inventory};

use crate::Backend;
#[cfg(feature = "cluster")]
use crate::cluster::SessionBackend;

/// All backends of fiber. Each has a folder with its row, and a Cargo feature of its name.
const BUILT_IN: &[BackendEntry] = &[
    crate::local::ENTRY,
    #[cfg(feature = "docker")]
    crate::docker::ENTRY,
    #[cfg(not(feature = "docker"))]
    BackendEntry::missing("docker", "the backend `docker`"),
    #[cfg(feature = "kubernetes")]
    crate::kubernetes::ENTRY,
    #[cfg(not(feature = "kubernetes"))]
    BackendEntry::missing("kubernetes", "the backend `kubernetes`"),
    #[cfg(feature = "slurm")]
    crate::slurm::ENTRY,
    #[cfg(not(feature = "slurm"))]
    BackendEntry::missing("slurm", "the backend `slurm`"),
    #[cfg(feature = "ssh")]
    crate::ssh::ENTRY,
    #[cfg(not(feature = "ssh"))]
    BackendEntry::missing("ssh", "the backend `ssh`"),
];

type Make = fn(&Config) -> Result<Arc<dyn Backend>>;

/// A backend that configurations can name. A program adds its own with
/// [`inventory::submit!`](fiber_core::inventory::submit).
#[derive(Clone, Copy, Debug)]
pub struct BackendEntry {
    name: &'static str,
    /// The name in errors, in a build that lacks it.
    make: std::result::Result<Make, &'static str>,
    #[cfg(feature = "cluster")]
    sessions: Option<&'static SessionBackend>,
    helper: Option<fn()>,
}

inventory::collect!(BackendEntry);

impl BackendEntry {
    /// Makes the entry of a backend, which `make` creates as the configuration says.
    pub const fn new(name: &'static str, make: Make) -> BackendEntry {
        BackendEntry {
            name,
            make: Ok(make),
            #[cfg(feature = "cluster")]
            sessions: None,
            helper: None,
        }
    }

    /// Makes the entry of a backend that this build lacks. Its Cargo feature has its name.
    #[allow(dead_code, reason = "a build may have all backends")]
    const fn missing(name: &'static str, part: &'static str) -> BackendEntry {
        BackendEntry {
            name,
            make: Err(part),
            #[cfg(feature = "cluster")]
            sessions: None,
            helper: None,
        }
    }

    /// Adds the backend's part for the command `fiber`: its sessions.
    #[cfg(feature = "cluster")]
    pub(crate) const fn sessions(mut self, sessions: &'static SessionBackend) -> BackendEntry {
        self.sessions = Some(sessions);
        self
    }

    /// Sets what each process does for the backend at its start: it becomes one of the backend's
    /// helper processes, or prepares the end of a job's process, or returns at once.
    pub(crate) const fn helper(mut self, run_if_helper: fn()) -> BackendEntry {
        self.helper = Some(run_if_helper);
        self
    }
}

fn all() -> impl Iterator<Item = &'static BackendEntry> {
    BUILT_IN.iter().chain(inventory::iter::<BackendEntry>())
}

/// Becomes one of this crate's small helper processes and never returns, if this process was
/// started as one. Otherwise prepares the process of a job for its end.
pub fn run_if_helper() {
    BUILT_IN.iter().filter_map(|entry| entry.helper).for_each(|run| run());
}

/// Returns the backend that the configuration names.
///
/// # Errors
/// [`Error::Config`], with the names of those that exist.
pub fn backend(config: &Config) -> Result<Arc<dyn Backend>> {
    let Some(entry) = all().find(|entry| entry.name == config.backend) else {
        let problem = format!(
            "there is no such backend: set `backend` (or FIBER_BACKEND) to {}, or leave it out",
            names()
        );
        return Err(ConfigProblem::value("backend", &config.backend, problem).into());
    };
    match entry.make {
        Ok(make) => make(config),
        Err(part) => Err(Error::missing_feature(part, entry.name)),
    }
}

/// Returns the names of all backends, as a sentence has them.
fn names() -> String {
    let names: Vec<String> = all().map(|entry| format!("`{}`", entry.name)).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// Returns the backends that have sessions, in the order of the table.
#[cfg(feature = "cluster")]
pub(crate) fn session_backends() -> impl Iterator<Item = &'static SessionBackend> {
    all().filter_map(|entry| entry.sessions)
}
