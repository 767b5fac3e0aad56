//! The backend.

use std::sync::Arc;
use std::time::SystemTime;

use fiber_backends::batch::{self, Pilots, is_this_host, listen};
use fiber_backends::{Backend, BackendError, Job, JobSpec, ListenAddress, Machine, Room, shell};
use fiber_core::{Config, Error, Meta, Result};
use futures_util::future::{LocalBoxFuture, ready};
use tokio::sync::OnceCell;

use super::allocation::{Allocation, Host};
use super::pilot::GridEnginePilots;
use super::{commands, task};

/// Runs jobs as tasks of this process's job of Grid Engine, and as pilots.
#[derive(Debug)]
pub(crate) struct GridEngine {
    config: Config,
    allocation: OnceCell<Option<Allocation>>,
    pilots: Pilots<GridEnginePilots>,
}

impl GridEngine {
    /// Creates the backend as configured. It looks for its job on first use.
    pub(crate) fn new(config: &Config) -> GridEngine {
        GridEngine {
            config: config.clone(),
            allocation: OnceCell::new(),
            pilots: Pilots::new(GridEnginePilots::new(config)),
        }
    }

    async fn allocation(&self) -> Result<Option<&Allocation>, BackendError> {
        let find = async || {
            let mut allocation = Allocation::find()?;
            if let Some(allocation) = &mut allocation {
                allocation.ask_for_the_end().await;
            }
            Ok(allocation)
        };
        self.allocation.get_or_try_init(find).await.map(Option::as_ref)
    }

    /// Returns the hosts of the job, or none outside of one.
    ///
    /// # Errors
    /// There are neither hosts nor pilots.
    async fn hosts(&self) -> Result<&[Host], BackendError> {
        match self.allocation().await? {
            Some(allocation) => Ok(&allocation.hosts),
            None if self.pilots.are_allowed() => Ok(&[]),
            None => Err(Allocation::missing()),
        }
    }

    async fn listen(&self) -> Result<ListenAddress, BackendError> {
        let mut other = self.hosts().await?.iter().map(|host| host.name.clone());
        let mut other = other.find(|name| !is_this_host(name));
        if other.is_none() && self.pilots.are_allowed() {
            let hosts = commands::run("qconf", &["-sel"]).await?;
            other = hosts.lines().map(String::from).find(|name| !is_this_host(name));
        }
        listen::choose(&self.config, other.as_deref())
    }

    async fn start(&self, spec: JobSpec) -> Result<Arc<dyn Job>, BackendError> {
        if let Some(pilot) = self.pilots.submit_if_asked(&spec).await? {
            return Ok(pilot);
        }
        let allocation = self.allocation().await?.ok_or_else(Allocation::missing)?;
        let host = allocation.host(spec.machine.as_deref())?;
        let line = task::line(&self.config, allocation, &spec)?;
        shell::start(task::Task::on(host), line, spec)
    }
}

pub(super) fn unusable(problem: BackendError) -> Error {
    Error::system("Grid Engine can't be used", problem)
}

impl Backend for GridEngine {
    fn name(&self) -> &'static str {
        "gridengine"
    }

    fn listen_address(&self) -> LocalBoxFuture<'_, Result<ListenAddress>> {
        Box::pin(async move { self.listen().await.map_err(unusable) })
    }

    fn create(&self, spec: JobSpec) -> LocalBoxFuture<'_, Result<Arc<dyn Job>>> {
        Box::pin(async move {
            let name = spec.name.clone();
            self.start(spec).await.map_err(|problem| Error::not_started(name, problem))
        })
    }

    fn machines(&self) -> LocalBoxFuture<'_, Result<Option<Vec<Machine>>>> {
        let machine = |host: &Host| Machine {
            name: host.name.clone(),
            // Only the host itself knows its graphics processors.
            room: Some(Room { cpu: host.slots.into(), memory: None, gpu: u32::MAX }),
        };
        Box::pin(async move {
            let hosts = self.hosts().await.map_err(unusable)?;
            Ok(Some(hosts.iter().map(machine).collect()))
        })
    }

    fn another_machine<'a>(
        &'a self,
        meta: &'a Meta,
    ) -> LocalBoxFuture<'a, Result<Option<Machine>>> {
        let machine = self.pilots.another_machine(meta);
        Box::pin(ready(machine.map_err(unusable)))
    }

    fn default_processes(&self) -> Option<usize> {
        let allocation = Allocation::find().ok()??;
        Some(allocation.hosts.iter().map(|host| host.slots as usize).sum())
    }

    fn ends_at(&self) -> Option<SystemTime> {
        self.allocation.get().and_then(Option::as_ref).and_then(|allocation| allocation.ends_at)
    }

    /// Cancels the pilots of processes that are gone, and removes their files. Tasks end with their
    /// session, and with the job.
    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async move { self.pilots.sweep().await.map_err(batch::pilots_stay) })
    }
}
