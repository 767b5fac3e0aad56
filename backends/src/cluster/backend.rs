//! A backend, as the command sees it: its names, its options and the way to its sessions.

use fiber_core::{Config, ConfigProblem, Error, Result};
use futures_util::future::LocalBoxFuture;

use super::options::{BackendOption, OptionValues};
use super::session::Cluster;
use crate::catalogue::{missing, session_backends};

/// A backend, as the command sees it.
#[derive(Clone, Copy, Debug)]
pub struct SessionBackend {
    /// The name that selects it: `kubernetes`.
    pub name: &'static str,
    /// Its name in texts: `Kubernetes`.
    pub title: &'static str,
    /// A description of its processes, for the help.
    pub about: &'static str,
    /// Its options of `fiber run`, in their order in the help.
    pub run_options: &'static [BackendOption],
    /// How `fiber run` starts programs there, as a paragraph of its help, or nothing.
    pub run_about: &'static str,
    /// Examples of `fiber run` for its help: what follows the name of the backend.
    pub run_examples: &'static [&'static str],
    /// Its options of each command that looks for sessions.
    pub place_options: &'static [BackendOption],
    /// Changes a configuration by the values of its `place_options`.
    pub place: fn(&OptionValues, &mut Config),
    /// Options for containers that `fiber run` refuses for this backend, and the end of the message
    /// `--image is for containers, but …`: how it runs programs, and the remedy.
    pub refused: (&'static [&'static str], &'static str),
    /// Connects to its sessions.
    pub connect: Connect,
}

/// Connects to the sessions of a backend.
pub type Connect = for<'a> fn(&'a Config) -> LocalBoxFuture<'a, Result<Box<dyn Cluster>>>;

impl SessionBackend {
    /// Returns a backend that takes all options of `fiber run` and has none of its own.
    pub const fn new(
        name: &'static str,
        title: &'static str,
        about: &'static str,
        connect: Connect,
    ) -> SessionBackend {
        SessionBackend {
            name,
            title,
            about,
            run_options: &[],
            run_about: "",
            run_examples: &[],
            place_options: &[],
            place: |_, _| {},
            refused: (&[], ""),
            connect,
        }
    }

    /// Returns whether `fiber run` takes an option for containers.
    pub fn takes(&self, option: &str) -> bool {
        !self.refused.0.contains(&option)
    }

    /// Connects to its sessions.
    ///
    /// # Errors
    /// [`Error::System`] if the cluster does not answer.
    pub async fn connect(&self, config: &Config) -> Result<Box<dyn Cluster>> {
        (self.connect)(config).await
    }
}

/// Returns the backend that the configuration names.
///
/// # Errors
/// [`Error::Config`] if there is none of this name, or if this build lacks it.
pub fn configured(config: &Config) -> Result<&'static SessionBackend> {
    let name = &config.backend;
    session_backends().find(|backend| backend.name == *name).ok_or_else(|| {
        if !missing().any(|missing| missing == name) {
            return no_sessions(name);
        }
        let problem = format!(
            "this command was built without it: `make install FEATURES={name}` in a clone of fiber \
             installs it with this backend"
        );
        ConfigProblem::value("backend", name, problem).into()
    })
}

/// Returns the error for a backend without sessions in which the command could act.
pub(crate) fn no_sessions(backend: &str) -> Error {
    Error::from(ConfigProblem::value(
        "backend",
        backend,
        "it has no sessions that this command can see: choose another one by `--backend docker`, \
         FIBER_BACKEND, or `backend` in fiber.toml",
    ))
}
