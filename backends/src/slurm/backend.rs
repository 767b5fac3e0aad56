//! The backend.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::SystemTime;

use fiber_core::{Config, Error, Meta, Result};
use futures_util::future::LocalBoxFuture;

use super::allocation::{self, Allocation, Node};
use super::pilot::SlurmPilots;
use super::{commands, launcher, step};
use crate::batch::{self, Pilots, listen};
use crate::interface::bind_address;
use crate::owner::new_session;
use crate::single_flight::SingleFlightCell;
use crate::{Backend, BackendError, Job, JobSpec, ListenAddress, Machine, SlurmSection};

const NO_ALLOCATION: &str = "this process is in no allocation of Slurm: start it in one (`sbatch`, \
    `salloc`, or `fiber run --backend slurm`), or let it submit jobs of its own (`slurm.pilots`)";

/// Runs jobs as steps of this process's allocation, and as pilots.
#[derive(Debug)]
pub(crate) struct Slurm {
    config: Config,
    section: SlurmSection,
    allocation: SingleFlightCell<Option<Allocation>>,
    pilots: Pilots<SlurmPilots>,
}

impl Slurm {
    /// Creates the backend as configured. It runs Slurm's commands on first use.
    pub(crate) fn new(config: &Config) -> Slurm {
        Slurm {
            config: config.clone(),
            section: config.section(),
            allocation: SingleFlightCell::default(),
            pilots: Pilots::new(SlurmPilots(config.section())),
        }
    }

    async fn allocation(&self) -> Result<Option<&Allocation>, BackendError> {
        self.allocation.get_or_try_init(Allocation::find).await.map(Option::as_ref)
    }

    /// Returns the nodes of the allocation, or none outside of one.
    ///
    /// # Errors
    /// There are neither nodes nor pilots.
    async fn nodes(&self) -> Result<&[Node], BackendError> {
        match self.allocation().await? {
            Some(allocation) => Ok(&allocation.nodes),
            None if self.pilots.are_allowed() => Ok(&[]),
            None => Err(NO_ALLOCATION.into()),
        }
    }

    async fn listen(&self) -> Result<ListenAddress, BackendError> {
        let nodes = self.nodes().await?;
        let own = own_node(nodes);
        let other = nodes.iter().find(|node| Some(&node.name) != own.as_ref());
        let is_configured = bind_address(&self.config)?.is_some();
        let address = if is_configured || other.is_none() && !self.pilots.are_allowed() {
            None
        } else {
            let name = other.map(|node| node.name.as_str());
            let address = commands::node_address(name).await?;
            address.or_else(|| name.map(String::from))
        };
        listen::choose(&self.config, address.as_deref())
    }

    async fn start(&self, mut spec: JobSpec) -> Result<Arc<dyn Job>, BackendError> {
        if let Some(pilot) = self.pilots.submit_if_asked(&spec).await? {
            return Ok(pilot);
        }
        let allocation = self.allocation().await?.ok_or(NO_ALLOCATION)?;
        let arguments = self.arguments(allocation, &mut spec)?;
        step::start(&spec, arguments)
    }

    /// Returns the arguments of the `srun` of a job. Adds to its environment what they need.
    fn arguments(
        &self,
        allocation: &Allocation,
        spec: &mut JobSpec,
    ) -> Result<Vec<OsString>, BackendError> {
        let size = StepSize::of(allocation, spec)?;
        let mut options = vec![
            format!("--jobid={}", allocation.job),
            // By this name, `fiber ps` lists the step.
            format!("--job-name={}", spec.name),
            // Beside the batch script and other steps, on no more cores than asked for.
            "--overlap".into(),
            "--exact".into(),
            "--nodes=1".into(),
            "--ntasks=1".into(),
            format!("--cpus-per-task={}", size.cores),
            format!("--mem={}M", size.megabytes),
            "--mpi=none".into(),
            // A batch job may be configured to pass nothing on.
            "--export=ALL".into(),
            // It says what happens to the step.
            "--verbose".into(),
        ];
        options.extend(spec.machine.iter().map(|node| format!("--nodelist={node}")));
        options.extend(size.gpus.map(|count| match count {
            0 => "--gres=none".into(),
            count => format!("--gres=gpu:{count}"),
        }));
        let mut arguments: Vec<OsString> = options.into_iter().map(OsString::from).collect();
        if self.section.copy {
            // `srun` overwrites a file that is there, so nobody else may know the next name.
            let copy = format!("/tmp/fiber-{}-of-{}", new_session(), allocation.job);
            arguments.push(format!("--bcast={copy}").into());
            spec.environment.push((launcher::COPY, copy));
        }
        arguments.push(batch::program_path()?);
        arguments.extend(spec.arguments.iter().cloned());
        Ok(arguments)
    }
}

/// The resources that a step asks for.
struct StepSize {
    cores: u32,
    /// 0 is all that the allocation has on the node.
    megabytes: u64,
    /// `None`: all of the allocation on the node.
    gpus: Option<u32>,
}

impl StepSize {
    /// Returns the size for one process, or of all that the allocation has on the machine.
    ///
    /// # Errors
    /// The allocation has no such node. `srun` would wait for it for ever.
    fn of(allocation: &Allocation, spec: &JobSpec) -> Result<StepSize, BackendError> {
        if let Some(name) = &spec.machine {
            let node =
                allocation.nodes.iter().find(|node| node.name == *name).ok_or_else(|| {
                    format!("the allocation of the job {} has no node `{name}`", allocation.job)
                })?;
            return Ok(StepSize { cores: node.cores, megabytes: 0, gpus: None });
        }
        let Meta { cpu, memory, gpu, .. } = &spec.meta;
        let cores = cpu.map_or(1, |cores| cores.ceil().max(1.0) as u32);
        let megabytes = memory.map_or(0, |size| size.as_u64().div_ceil(1 << 20));
        let gpus = gpu.unwrap_or(0);
        let largest = |of: fn(&Node) -> u64| allocation.nodes.iter().map(of).max().unwrap_or(0);
        let lacks = |asked: String, had: String| {
            Err(refused!(
                "it asks for {asked}, but no node of the job {} has more than {had}: ask for less, \
                 or for larger nodes",
                allocation.job
            ))
        };
        let most = largest(|node| node.cores.into());
        if u64::from(cores) > most {
            return lacks(format!("{cores} cores"), most.to_string());
        }
        let most = largest(|node| node.memory.unwrap_or(u64::MAX));
        if megabytes.saturating_mul(1 << 20) > most {
            let size = bytesize::ByteSize::mib(megabytes);
            return lacks(format!("{size} of memory"), bytesize::ByteSize(most).to_string());
        }
        let most = largest(|node| node.gpus.into());
        if u64::from(gpus) > most {
            return lacks(fiber_core::gpus_in_words(gpus), most.to_string());
        }
        Ok(StepSize { cores, megabytes, gpus: Some(gpus) })
    }
}

/// Returns the name of the node on which this process runs, if it is one of the allocation's.
fn own_node(nodes: &[Node]) -> Option<String> {
    let name = std::env::var("SLURMD_NODENAME").ok();
    let is_own =
        |node: &&Node| Some(&node.name) == name.as_ref() || batch::is_this_host(&node.name);
    nodes.iter().find(is_own).map(|node| node.name.clone())
}

pub(super) fn unusable(problem: BackendError) -> Error {
    Error::system("Slurm can't be used", problem)
}

impl Backend for Slurm {
    fn name(&self) -> &'static str {
        "slurm"
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
        Box::pin(async move {
            let nodes = self.nodes().await.map_err(unusable)?;
            let machine =
                |node: &Node| Machine { name: node.name.clone(), room: Some(node.room()) };
            Ok(Some(nodes.iter().map(machine).collect()))
        })
    }

    fn another_machine<'a>(
        &'a self,
        meta: &'a Meta,
    ) -> LocalBoxFuture<'a, Result<Option<Machine>>> {
        let machine = self.pilots.another_machine(meta);
        Box::pin(std::future::ready(machine.map_err(unusable)))
    }

    fn default_processes(&self) -> Option<usize> {
        allocation::cores()
    }

    fn ends_at(&self) -> Option<SystemTime> {
        self.allocation.get().and_then(Option::as_ref).and_then(|allocation| allocation.ends_at)
    }

    /// Cancels the pilots of processes that are gone, and removes their files. Steps end with their
    /// `srun`, and that with this process.
    fn sweep(&self) -> LocalBoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async move { self.pilots.sweep().await.map_err(batch::pilots_stay) })
    }
}
