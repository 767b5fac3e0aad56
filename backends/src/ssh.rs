//! Jobs on machines that ssh reaches, one host each.
//!
//! This uses the system's `ssh` with the user's configuration, keys and known hosts; it never asks
//! for a password. Each job is one [session](session): a small script checks the machine, copies
//! the program into a cache there if need be, and starts it.

mod listen;
mod machines;
mod problem;
mod program;
mod session;
#[cfg(feature = "cluster")]
mod sessions;

use std::path::Path;
use std::sync::Arc;

use fiber_core::{Config, ConfigProblem, Error, Result};
use futures_util::future::LocalBoxFuture;
use tokio::process::Command;
use tokio::sync::OnceCell;

use self::listen::Routes;
use self::machines::SshMachine;
use self::program::Program;
use crate::error::system_error;
use crate::{
    Backend, BackendEntry, BackendError, Job, JobSpec, ListenAddress, Machine, Room, SshSection,
    shell,
};

pub(crate) const ENTRY: BackendEntry = {
    let entry = BackendEntry::new("ssh", |config| Ok(Arc::new(Ssh::new(config)?)));
    #[cfg(feature = "cluster")]
    let entry = entry.sessions(&sessions::SESSIONS);
    entry
};

/// Runs jobs on machines that ssh reaches.
#[derive(Debug)]
pub(crate) struct Ssh {
    config: Config,
    section: SshSection,
    machines: Vec<SshMachine>,
    routes: OnceCell<Routes>,
    program: OnceCell<Program>,
}

impl Ssh {
    /// Creates the backend as configured. It connects to a machine with the first job there.
    ///
    /// # Errors
    /// [`Error::Config`] for machines that can't be read, and without any.
    pub(crate) fn new(config: &Config) -> Result<Ssh> {
        let section: SshSection = config.section();
        let machines = machines::of(&section)?;
        if let Some(path) = section.config.as_ref().filter(|path| !path.is_file()) {
            let problem = "there is no such file: correct it, or leave it out";
            return Err(ConfigProblem::value("ssh.config", path.display(), problem).into());
        }
        Ok(Ssh {
            config: config.clone(),
            section,
            machines,
            routes: OnceCell::new(),
            program: OnceCell::new(),
        })
    }

    async fn routes(&self) -> Result<&Routes, BackendError> {
        self.routes
            .get_or_try_init(|| listen::find(&self.config, &self.section, &self.machines))
            .await
    }

    async fn start(&self, mut spec: JobSpec) -> Result<Arc<dyn Job>, BackendError> {
        let machine = match &spec.machine {
            Some(name) => self.machines.iter().find(|machine| machine.name == *name),
            None => self.machines.first(),
        };
        let machine = machine.ok_or("it is for a machine that is not among `ssh.hosts`")?.clone();
        let routes = self.routes().await?;
        if let Some(parent) = &mut spec.parent {
            parent.address = routes.address_for(&machine.name, parent.address.clone());
        }
        let program = self.program.get_or_try_init(async || Program::current()).await?;
        let line = session::line(&self.config, &self.section, program, &spec);
        let ssh = session::Ssh::new(&self.config, &self.section, machine, program);
        shell::start(ssh, line, spec)
    }
}

impl Backend for Ssh {
    fn name(&self) -> &'static str {
        "ssh"
    }

    fn listen_address(&self) -> LocalBoxFuture<'_, Result<ListenAddress>> {
        Box::pin(async move {
            let routes = self.routes().await.map_err(system_error("machines can't be used"))?;
            Ok(routes.listen.clone())
        })
    }

    fn create(&self, spec: JobSpec) -> LocalBoxFuture<'_, Result<Arc<dyn Job>>> {
        Box::pin(async move {
            let name = spec.name.clone();
            self.start(spec).await.map_err(|problem| Error::not_started(name, problem))
        })
    }

    fn machines(&self) -> LocalBoxFuture<'_, Result<Option<Vec<Machine>>>> {
        let machine = |machine: &SshMachine| Machine {
            name: machine.name.clone(),
            // The machine itself knows how many GPUs it has.
            room: machine.cores.map(|cpu| Room { cpu, memory: None, gpu: u32::MAX }),
        };
        let machines = self.machines.iter().map(machine).collect();
        Box::pin(std::future::ready(Ok(Some(machines))))
    }

    /// Does nothing: what runs on a machine ends with its session.
    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

/// Returns the command `ssh`, with the configuration's options.
fn ssh(config: Option<&Path>) -> Command {
    let mut command = Command::new("ssh");
    if let Some(config) = config {
        command.arg("-F").arg(config);
    }
    command
}
