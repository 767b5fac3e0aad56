//! A backend outside of fiber: processes of this host, each started by a command such as `nice`,
//! `taskset` or `numactl`.

use std::process::Command;
use std::sync::Arc;

use fiber::backend::{
    Backend, BackendEntry, Job, JobSpec, ListenAddress, Local, LocalBoxFuture, SectionEntry,
};
use fiber::config::{Config, ConfigSource};
use fiber::error::{ConfigProblem, Result};

fiber::config::section! {
    /// Options of the backend `launcher`.
    pub(crate) struct LauncherSection in "launcher" {
        /// The command that starts each process, with its options. It has to become the process, as
        /// `nice` does, and not to wait for it.
        command: String = "nice -n 10".into(),
    }
}

// A child is the same program, so it finds the backend, too.
fiber::backend::register!(
    BackendEntry::new("launcher", |config| Ok(Arc::new(Launcher::new(config)?)))
        .section(SectionEntry::of::<LauncherSection>())
);

/// Starts processes of this host by a command.
#[derive(Debug)]
pub(crate) struct Launcher {
    /// The command's words.
    command: Vec<String>,
    local: Local,
}

impl Launcher {
    /// Creates the backend as configured.
    ///
    /// # Errors
    /// There is no command.
    pub(crate) fn new(config: &Config) -> Result<Launcher> {
        let LauncherSection { command, .. } = config.section();
        let words: Vec<String> = command.split_whitespace().map(String::from).collect();
        if words.is_empty() {
            let problem = ConfigProblem::InvalidValue {
                source: ConfigSource::Merged,
                option: "launcher.command".into(),
                value: command,
                problem: "name a command, as in `nice -n 10`".into(),
            };
            return Err(problem.into());
        }
        Ok(Launcher { command: words, local: Local::new(config) })
    }
}

impl Backend for Launcher {
    fn name(&self) -> &'static str {
        "launcher"
    }

    /// Children of this process reach it as those of the backend `local` do.
    fn listen_address(&self) -> LocalBoxFuture<'_, Result<ListenAddress>> {
        self.local.listen_address()
    }

    fn create(&self, spec: JobSpec) -> LocalBoxFuture<'_, Result<Arc<dyn Job>>> {
        Box::pin(async move {
            let mut command = Command::new(&self.command[0]);
            command.args(&self.command[1..]).arg(Local::program());
            self.local.launch(&spec, command)
        })
    }

    /// The kernel ends children with their parent, so nothing is left over.
    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
