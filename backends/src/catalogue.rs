//! The table of backends: a row for each of fiber's own, and those that programs register.

use std::fmt::Debug;
use std::sync::Arc;

use fiber_core::{Config, ConfigProblem, Error, Result, SectionEntry, SectionTable, inventory};
use parking_lot::Mutex;

#[cfg(feature = "cluster")]
use crate::cluster::SessionBackend;
use crate::sections::{DockerSection, KubernetesSection, SlurmSection, SshSection};
use crate::{Backend, local};

/// All backends of fiber. A build that lacks one knows its section, so that programs with different
/// features can share a file.
const BUILT_IN: &[BackendEntry] = &[
    local::ENTRY,
    #[cfg(feature = "docker")]
    crate::docker::ENTRY.section(DockerSection::ENTRY),
    #[cfg(not(feature = "docker"))]
    BackendEntry::missing("docker", "the backend `docker`").section(DockerSection::ENTRY),
    #[cfg(feature = "kubernetes")]
    crate::kubernetes::ENTRY.section(KubernetesSection::ENTRY),
    #[cfg(not(feature = "kubernetes"))]
    BackendEntry::missing("kubernetes", "the backend `kubernetes`")
        .section(KubernetesSection::ENTRY),
    #[cfg(feature = "slurm")]
    crate::slurm::ENTRY.section(SlurmSection::ENTRY),
    #[cfg(not(feature = "slurm"))]
    BackendEntry::missing("slurm", "the backend `slurm`").section(SlurmSection::ENTRY),
    // In a crate of its own.
    BackendEntry::missing("gridengine", "the backend `gridengine`")
        .section(SectionEntry::missing("gridengine")),
    #[cfg(feature = "ssh")]
    crate::ssh::ENTRY.section(SshSection::ENTRY),
    #[cfg(not(feature = "ssh"))]
    BackendEntry::missing("ssh", "the backend `ssh`").section(SshSection::ENTRY),
];

type Make = fn(&Config) -> Result<Arc<dyn Backend>>;

/// A backend that configurations can name. A program adds its own with
/// `fiber::backend::register!`.
#[derive(Clone, Copy, Debug)]
pub struct BackendEntry {
    name: &'static str,
    /// The name in errors, in a build that lacks it.
    make: std::result::Result<Make, &'static str>,
    section: Option<SectionEntry>,
    #[cfg(feature = "cluster")]
    sessions: Option<&'static SessionBackend>,
    helper: Option<fn()>,
    job_variable: Option<&'static str>,
}

/// The backends of the program itself.
static REGISTERED: Mutex<Vec<BackendEntry>> = Mutex::new(Vec::new());

/// Adds a backend of the program itself. Children need it before they do anything else.
#[doc(hidden)]
pub fn register(entry: BackendEntry) {
    REGISTERED.lock().push(entry);
}

inventory::submit! {
    SectionTable(|| all().filter_map(|entry| entry.section).collect())
}

impl BackendEntry {
    /// Makes the entry of a backend, which `make` creates as the configuration says.
    pub const fn new(name: &'static str, make: Make) -> BackendEntry {
        BackendEntry::of(name, Ok(make))
    }

    /// Makes the entry of a backend that this build lacks. Its Cargo feature has its name.
    const fn missing(name: &'static str, part: &'static str) -> BackendEntry {
        BackendEntry::of(name, Err(part))
    }

    const fn of(name: &'static str, make: std::result::Result<Make, &'static str>) -> BackendEntry {
        BackendEntry {
            name,
            make,
            section: None,
            #[cfg(feature = "cluster")]
            sessions: None,
            helper: None,
            job_variable: None,
        }
    }

    /// Gives the backend a section of the configuration.
    #[must_use]
    pub const fn section(mut self, section: SectionEntry) -> BackendEntry {
        self.section = Some(section);
        self
    }

    /// Adds the backend's part for the command `fiber`: its sessions.
    #[cfg(feature = "cluster")]
    #[must_use]
    pub const fn sessions(mut self, sessions: &'static SessionBackend) -> BackendEntry {
        self.sessions = Some(sessions);
        self
    }

    /// Sets what each process does for the backend at its start: it becomes one of the backend's
    /// helper processes, or prepares the end of a job's process, or returns at once.
    #[must_use]
    pub const fn helper(mut self, run_if_helper: fn()) -> BackendEntry {
        self.helper = Some(run_if_helper);
        self
    }

    /// Names the variable in which each process of a job finds the job's id. Several jobs may share
    /// a machine.
    #[must_use]
    pub const fn job_variable(mut self, name: &'static str) -> BackendEntry {
        self.job_variable = Some(name);
        self
    }
}

fn all() -> impl Iterator<Item = BackendEntry> {
    table(REGISTERED.lock().clone()).into_iter()
}

/// Returns the table. A backend from another crate takes the place of the row that says that the
/// build lacks it.
fn table(mut registered: Vec<BackendEntry>) -> Vec<BackendEntry> {
    let mut rows = BUILT_IN.to_vec();
    for row in rows.iter_mut().filter(|row| row.make.is_err()) {
        if let Some(at) = registered.iter().position(|entry| entry.name == row.name) {
            *row = registered.remove(at);
        }
    }
    rows.append(&mut registered);
    rows
}

/// Becomes one of the backends' small helper processes and never returns, if this process was
/// started as one. Otherwise prepares the process of a job for its end.
pub fn run_if_helper() {
    if !fiber_core::variables::are_own() {
        return;
    }
    all().filter_map(|entry| entry.helper).for_each(|run| run());
}

/// Returns the variables in which processes find the ids of their jobs, where several jobs may
/// share a machine.
pub fn job_variables() -> impl Iterator<Item = &'static str> {
    all().filter_map(|entry| entry.job_variable)
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

/// Returns the names of the backends that this build lacks. Each is a Cargo feature.
#[cfg(feature = "cluster")]
pub fn missing() -> impl Iterator<Item = &'static str> {
    all().filter(|entry| entry.make.is_err()).map(|entry| entry.name)
}

/// Returns all backends that this build has, in the order of the help.
#[cfg(feature = "cluster")]
pub fn session_backends() -> impl Iterator<Item = &'static SessionBackend> {
    all().filter_map(|entry| entry.sessions)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_backend_has_a_name_of_its_own() {
        let mut names = HashSet::new();
        assert!(all().all(|entry| names.insert(entry.name)));
        assert_eq!(
            all().filter(|entry| entry.section.is_some()).count(),
            ["docker", "kubernetes", "slurm", "gridengine", "ssh"].len()
        );
    }

    #[test]
    fn a_backend_of_another_crate_takes_the_place_of_its_row_and_none_else() {
        let made = |name| BackendEntry::new(name, |config| Ok(Arc::new(local::Local::new(config))));
        let missing = BUILT_IN.iter().filter(|row| row.make.is_err()).map(|row| row.name);
        let registered = missing.chain(["local", "own"]).map(made).collect();
        let rows = table(registered);
        assert!(rows.iter().all(|row| row.make.is_ok()));
        let names: Vec<_> = rows.iter().map(|row| row.name).collect();
        let built_in = BUILT_IN.iter().map(|row| row.name);
        assert_eq!(names, built_in.chain(["local", "own"]).collect::<Vec<_>>());
    }
}
