//! The backend.

use std::sync::Arc;
use std::time::SystemTime;

use fiber_core::{Config, Error, Result};
use futures_util::future::{LocalBoxFuture, ready};
use tokio::sync::OnceCell;

use super::allocation::{Allocation, Host};
use super::task;
use crate::batch::{is_this_host, listen};
use crate::{Backend, BackendError, Job, JobSpec, ListenAddress, Machine, Room, shell};

/// Runs jobs as tasks of this process's job of Grid Engine.
#[derive(Debug)]
pub(crate) struct GridEngine {
    config: Config,
    allocation: OnceCell<Allocation>,
}

impl GridEngine {
    /// Creates the backend as configured. It looks for its job on first use.
    pub(crate) fn new(config: &Config) -> GridEngine {
        GridEngine { config: config.clone(), allocation: OnceCell::new() }
    }

    async fn allocation(&self) -> Result<&Allocation, BackendError> {
        let find = async || {
            let mut allocation = Allocation::find()?;
            allocation.ask_for_the_end().await;
            Ok(allocation)
        };
        self.allocation.get_or_try_init(find).await
    }

    async fn hosts(&self) -> Result<&[Host]> {
        let allocation = self.allocation().await;
        let allocation =
            allocation.map_err(|problem| Error::system("Grid Engine can't be used", problem))?;
        Ok(&allocation.hosts)
    }

    async fn listen(&self) -> Result<ListenAddress> {
        let other = self.hosts().await?.iter().find(|host| !is_this_host(&host.name));
        listen::choose(&self.config, other.map(|host| host.name.as_str()))
            .map_err(|problem| Error::system("Grid Engine can't be used", problem))
    }

    async fn start(&self, spec: JobSpec) -> Result<Arc<dyn Job>, BackendError> {
        let allocation = self.allocation().await?;
        let host = allocation.host(spec.machine.as_deref())?;
        let line = task::line(&self.config, allocation, &spec)?;
        shell::start(task::Task::on(host), line, spec)
    }
}

impl Backend for GridEngine {
    fn name(&self) -> &'static str {
        "gridengine"
    }

    fn listen_address(&self) -> LocalBoxFuture<'_, Result<ListenAddress>> {
        Box::pin(self.listen())
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
        Box::pin(async move { Ok(Some(self.hosts().await?.iter().map(machine).collect())) })
    }

    fn default_processes(&self) -> Option<usize> {
        let allocation = Allocation::find().ok()?;
        Some(allocation.hosts.iter().map(|host| host.slots as usize).sum())
    }

    fn ends_at(&self) -> Option<SystemTime> {
        self.allocation.get().and_then(|allocation| allocation.ends_at)
    }

    /// Does nothing: what runs on a host ends with its session, and with the job.
    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(ready(Ok(Vec::new())))
    }
}
